; RUN: simdgroup target=nvptx approximate
; The next thread is not in the next lane if lanes are permuted, so they are not.
define void @__elinvar_entry(ptr %out, ptr %in) {
  %h = load half, ptr %in, align 2
  %f = fpext half %h to float
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %f, float %f, float %f, float %f, float 0.0, float 0.0, i32 0)
  %x = call float @__elinvar_simd_shuffle_xor_f32(float %d0, i16 8)
  %y = call float @__elinvar_simd_shuffle_up_f32(float %x, i16 1)
  store float %y, ptr %out, align 4
  ret void
}
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)
declare float @__elinvar_simd_shuffle_xor_f32(float, i16)
declare float @__elinvar_simd_shuffle_up_f32(float, i16)

; CHECK: call i32 @elinvar.product.Left.half
; CHECK: call float @elinvar.simd_shuffle_xor_f32(float %d0, i16 8
; CHECK-NOT: product.Word
