; RUN: simdgroup target=nvptx approximate
; Lanes are permuted for the product; shuffles name the lanes of the threads, unless the simdgroup is not whole.
define void @__elinvar_entry(ptr %out, ptr %in) {
  %h = load half, ptr %in, align 2
  %f = fpext half %h to float
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %f, float %f, float %f, float %f, float 0.0, float 0.0, i32 0)
  %by = load i16, ptr %in, align 2
  %x = call float @__elinvar_simd_shuffle_xor_f32(float %d0, i16 8)
  %y = call float @__elinvar_simd_shuffle_xor_f32(float %x, i16 17)
  %z = call float @__elinvar_simd_shuffle_f32(float %y, i16 %by)
  store float %z, ptr %out, align 4
  ret void
}
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)
declare float @__elinvar_simd_shuffle_xor_f32(float, i16)
declare float @__elinvar_simd_shuffle_f32(float, i16)

; CHECK: call i32 @elinvar.product.Word.half
; CHECK: i16 2, i16 8
; CHECK-NEXT: call float @elinvar.simd_shuffle_xor_f32(float %d0, i16 %
; CHECK-NEXT: call float @elinvar.simd_shuffle_xor_f32(float %x, i16 17
; CHECK-NEXT: and i16 %by, 17
; CHECK-NEXT: shl i16 %by, 1
; CHECK: select i1
; CHECK-NEXT: call float @elinvar.simd_shuffle_f32(float %y, i16 %
