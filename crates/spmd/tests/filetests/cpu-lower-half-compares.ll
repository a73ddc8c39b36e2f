; RUN: lower-half
; For a target without instructions for halves.
define void @__elinvar_entry(ptr %a) {
  %h = load half, ptr %a, align 2
  %m = call half @llvm.maxnum.f16(half %h, half 0xH3C00)
  %c = fcmp olt half %h, %m
  %s = select i1 %c, half %h, half %m
  store half %s, ptr %a, align 2
  ret void
}
declare half @llvm.maxnum.f16(half, half)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %h = load half, ptr %a, align 2
; CHECK-NEXT: %1 = fpext half %h to float
; CHECK-NEXT: %2 = call float @llvm.arithmetic.fence.f32(float %1)
; CHECK-NEXT: %3 = fpext half 0xH3C00 to float
; CHECK-NEXT: %4 = call float @llvm.arithmetic.fence.f32(float %3)
; CHECK-NEXT: %5 = call float @llvm.maxnum.f32(float %2, float %4)
; CHECK-NEXT: %6 = call float @llvm.arithmetic.fence.f32(float %5)
; CHECK-NEXT: %m = fptrunc float %6 to half
; CHECK-NEXT: %7 = fpext half %h to float
; CHECK-NEXT: %8 = call float @llvm.arithmetic.fence.f32(float %7)
; CHECK-NEXT: %9 = fpext half %m to float
; CHECK-NEXT: %10 = call float @llvm.arithmetic.fence.f32(float %9)
; CHECK-NEXT: %c = fcmp olt float %8, %10
; CHECK-NEXT: %s = select i1 %c, half %h, half %m
; CHECK-NEXT: store half %s, ptr %a, align 2
; CHECK-NEXT: ret void
