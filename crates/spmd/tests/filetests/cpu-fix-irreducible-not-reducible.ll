; RUN: fix-irreducible
define void @__elinvar_entry(ptr %a) {
  %r = call float @__elinvar_simd_sum_f32(float 1.0)
  store float %r, ptr %a, align 4
  ret void
}
declare float @__elinvar_simd_sum_f32(float)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %r = call float @__elinvar_simd_sum_f32(float 1.0)
; CHECK-NEXT: store float %r, ptr %a, align 4
; CHECK-NEXT: ret void
