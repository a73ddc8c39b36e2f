; RUN: retarget target=nvptx
define void @__elinvar_entry(ptr %a) {
  %v = load i32, ptr %a, align 4
  %w = add i32 %v, 1
  store i32 %w, ptr %a, align 4
  ret void
}

; CHECK: target triple = "nvptx64-nvidia-cuda"
; CHECK: define ptx_kernel void @kernel(
