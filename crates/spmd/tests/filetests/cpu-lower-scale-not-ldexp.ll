; RUN: lower-scale
; Of other operands two products may round twice.
define void @__elinvar_entry(ptr %a) {
  %x = load float, ptr %a, align 4
  %s = call float @llvm.ldexp.f32.i32(float %x, i32 -140)
  store float %s, ptr %a, align 4
  ret void
}
declare float @llvm.ldexp.f32.i32(float, i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %x = load float, ptr %a, align 4
; CHECK-NEXT: %s = call float @llvm.ldexp.f32.i32(float %x, i32 -140)
; CHECK-NEXT: store float %s, ptr %a, align 4
; CHECK-NEXT: ret void
