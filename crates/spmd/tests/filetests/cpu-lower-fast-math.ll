; RUN: lower-fast-math
define void @__elinvar_entry(ptr %a, float %x, float %y, float %z) {
  %product = fmul contract float %x, %y
  %sum = fadd reassoc contract float %product, %z
  %p1 = fmul fast float %x, %x
  %difference = fsub contract float %p1, %sum
  %p2 = fmul contract float %y, %y
  %reverse = fsub contract float %z, %p2
  %p3 = fmul contract float %x, %z
  %p4 = fmul contract float %y, %z
  %both = fadd contract float %p3, %p4
  %quotient = fdiv reassoc arcp contract afn float %difference, %reverse
  %less = fcmp nsz olt float %quotient, %both
  %chosen = select nsz i1 %less, float %quotient, float %both
  store float %chosen, ptr %a, align 4
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a, float %x, float %y, float %z) {
; CHECK-NEXT: %sum = call float @llvm.fmuladd.f32(float %x, float %y, float %z)
; CHECK-NEXT: %1 = fneg float %sum
; CHECK-NEXT: %difference = call float @llvm.fmuladd.f32(float %x, float %x, float %1)
; CHECK-NEXT: %2 = fneg float %y
; CHECK-NEXT: %reverse = call float @llvm.fmuladd.f32(float %2, float %y, float %z)
; CHECK-NEXT: %p4 = fmul float %y, %z
; CHECK-NEXT: %both = call float @llvm.fmuladd.f32(float %x, float %z, float %p4)
; CHECK-NEXT: %quotient = fdiv float %difference, %reverse
; CHECK-NEXT: %less = fcmp olt float %quotient, %both
; CHECK-NEXT: %chosen = select i1 %less, float %quotient, float %both
; CHECK-NEXT: store float %chosen, ptr %a, align 4
; CHECK-NEXT: ret void
