; RUN: vectorize group=32
; A factor and the sums are stored once, both products are accumulated in one place, and the result is loaded before it is used.
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr float, ptr %a, i32 %t
  %x = load float, ptr %p, align 4
  %c0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %x, float 2.0, float %x, float 3.0, float 0.0, float 0.0, i32 0)
  %c1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %x, float 2.0, float %x, float 3.0, float 0.0, float 0.0, i32 1)
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %x, float 2.0, float %x, float 2.0, float %c0, float %c1, i32 0)
  %d1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %x, float 2.0, float %x, float 2.0, float %c0, float %c1, i32 1)
  %sum = fadd float %d0, %d1
  store float %sum, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)

; CHECK: load <32 x float>
; CHECK: store <32 x float>
; CHECK: store <32 x float>
; CHECK: store <32 x float>
; CHECK: store <32 x float>
; CHECK: store <32 x float>
; CHECK: store <32 x float>
; CHECK-NOT: store
; CHECK: call void @elinvar.matrix.product(
; CHECK-NOT: store
; CHECK: call void @elinvar.matrix.product(
; CHECK-NEXT: load <32 x float>
; CHECK: fadd <32 x float>
