; RUN: simdgroup target=nvptx approximate
; The second product's left factor is the first one's result.
define void @__elinvar_entry(ptr %out, ptr %in) {
  %h = load half, ptr %in, align 2
  %a = fpext half %h to float
  %p = getelementptr half, ptr %in, i32 1
  %g = load half, ptr %p, align 2
  %r = fpext half %g to float
  %c0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %a, float %a, float %r, float %r, float 0.0, float 0.0, i32 0)
  %c1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %a, float %a, float %r, float %r, float 0.0, float 0.0, i32 1)
  %t = fptrunc float %c0 to half
  %b = fpext half %t to float
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %b, float %b, float %r, float %r, float 0.0, float 0.0, i32 0)
  %d1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %b, float %b, float %r, float %r, float 0.0, float 0.0, i32 1)
  %v = fadd float %d0, %d1
  %w = fadd float %c1, %v
  store float %w, ptr %out, align 4
  ret void
}
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)

; CHECK: call { float, float } @elinvar.product.Tiles.1.1.half(
; CHECK: fptrunc
; CHECK: call { float, float } @elinvar.product.Tiles.1.1.half(
; CHECK-NOT: product.Tiles
