; RUN: simdgroup target=nvptx approximate
; The second product is moved to the first, whose result has a use before it.
define void @__elinvar_entry(ptr %out, ptr %in) {
  %h = load half, ptr %in, align 2
  %a = fpext half %h to float
  %p = getelementptr half, ptr %in, i32 1
  %g = load half, ptr %p, align 2
  %r = fpext half %g to float
  %q = getelementptr half, ptr %in, i32 2
  %k = load half, ptr %q, align 2
  %b = fpext half %k to float
  %c0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %a, float %a, float %r, float %r, float 0.0, float 0.0, i32 0)
  %c1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %a, float %a, float %r, float %r, float 0.0, float 0.0, i32 1)
  %u = fadd float %c0, %c1
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %b, float %b, float %r, float %r, float 0.0, float 0.0, i32 0)
  %d1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %b, float %b, float %r, float %r, float 0.0, float 0.0, i32 1)
  %v = fadd float %d0, %d1
  %w = fadd float %u, %v
  store float %w, ptr %out, align 4
  ret void
}
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)

; CHECK: call { float, float, float, float } @elinvar.product.Tiles.2.1.half(
; CHECK: fadd float %c0, %c1
; CHECK-NOT: product.Tiles
