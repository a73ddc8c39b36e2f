; RUN: scalarize
define void @__elinvar_entry(ptr %a) {
  %v = load <2 x float>, ptr %a, align 8
  %w = fadd <2 x float> %v, %v
  store <2 x float> %w, ptr %a, align 8
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = load float, ptr %a, align 8
; CHECK-NEXT: %2 = getelementptr i8, ptr %a, i64 4
; CHECK-NEXT: %3 = load float, ptr %2, align 4
; CHECK-NEXT: %4 = fadd float %1, %1
; CHECK-NEXT: %5 = fadd float %3, %3
; CHECK-NEXT: store float %4, ptr %a, align 8
; CHECK-NEXT: %6 = getelementptr i8, ptr %a, i64 4
; CHECK-NEXT: store float %5, ptr %6, align 4
; CHECK-NEXT: ret void
