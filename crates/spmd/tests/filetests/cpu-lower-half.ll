; RUN: lower-half
define void @__elinvar_entry(ptr %a) {
  %h = load half, ptr %a, align 2
  %v = call i16 @llvm.fptosi.sat.i16.f16(half %h)
  store i16 %v, ptr %a, align 2
  ret void
}
declare i16 @llvm.fptosi.sat.i16.f16(half)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %h = load half, ptr %a, align 2
; CHECK-NEXT: %1 = fpext half %h to float
; CHECK-NEXT: %v = call i16 @llvm.fptosi.sat.i16.f32(float %1)
; CHECK-NEXT: store i16 %v, ptr %a, align 2
; CHECK-NEXT: ret void
