; RUN: lower-half
define void @__elinvar_entry(ptr %a) {
  %h = load bfloat, ptr %a, align 2
  %v = call i16 @llvm.fptosi.sat.i16.bf16(bfloat %h)
  store i16 %v, ptr %a, align 2
  ret void
}
declare i16 @llvm.fptosi.sat.i16.bf16(bfloat)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %h = load bfloat, ptr %a, align 2
; CHECK-NEXT: %v = call i16 @llvm.fptosi.sat.i16.bf16(bfloat %h)
; CHECK-NEXT: store i16 %v, ptr %a, align 2
; CHECK-NEXT: ret void
