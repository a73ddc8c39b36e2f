; RUN: approximate-math target=nvptx approximate
define void @__elinvar_entry(ptr %a) {
  %v = load float, ptr %a, align 4
  %q = fdiv float 1.0, %v
  store float %q, ptr %a, align 4
  ret void
}

; CHECK: %q = call float @llvm.nvvm.div.rn.f(float 1.0, float %v)
