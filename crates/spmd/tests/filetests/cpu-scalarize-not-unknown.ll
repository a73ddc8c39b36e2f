; RUN: scalarize
define void @__elinvar_entry(ptr %a) {
  %v = load <2 x float>, ptr %a, align 8
  %w = call float @llvm.vector.reduce.fadd.v2f32(float 0.0, <2 x float> %v)
  store float %w, ptr %a, align 4
  ret void
}
declare float @llvm.vector.reduce.fadd.v2f32(float, <2 x float>)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %v = load <2 x float>, ptr %a, align 8
; CHECK-NEXT: %w = call float @llvm.vector.reduce.fadd.v2f32(float 0.0, <2 x float> %v)
; CHECK-NEXT: store float %w, ptr %a, align 4
; CHECK-NEXT: ret void
