; RUN: approximate-math target=nvptx
define void @__elinvar_entry(ptr %a) {
  %v = load float, ptr %a, align 4
  %q = fdiv float 1.0, %v
  store float %q, ptr %a, align 4
  ret void
}

; CHECK: %q = fdiv float 1.0, %v
; CHECK-NOT: llvm.nvvm.div
