; RUN: lower-fast-math
define void @__elinvar_entry(ptr %a, float %x, float %y, float %z, i1 %c) {
  %twice = fmul contract float %x, %y
  %sum = fadd contract float %twice, %z
  %strict = fmul float %x, %z
  %other = fadd contract float %strict, %twice
  %kept = fmul contract float %sum, %other
  %exact = fadd float %kept, %z
  %outer = fmul contract float %exact, %exact
  br i1 %c, label %then, label %end
then:
  %inner = fadd contract float %outer, %z
  store float %inner, ptr %a, align 4
  br label %end
end:
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a, float %x, float %y, float %z, i1 %c) {
; CHECK-NEXT: %twice = fmul float %x, %y
; CHECK-NEXT: %sum = fadd float %twice, %z
; CHECK-NEXT: %strict = fmul float %x, %z
; CHECK-NEXT: %other = fadd float %strict, %twice
; CHECK-NEXT: %kept = fmul float %sum, %other
; CHECK-NEXT: %exact = fadd float %kept, %z
; CHECK-NEXT: %outer = fmul float %exact, %exact
; CHECK-NEXT: br i1 %c, label %then, label %end
; CHECK-NEXT: then:
; CHECK-NEXT: %inner = fadd float %outer, %z
; CHECK-NEXT: store float %inner, ptr %a, align 4
; CHECK-NEXT: br label %end
; CHECK-NEXT: end:
; CHECK-NEXT: ret void
