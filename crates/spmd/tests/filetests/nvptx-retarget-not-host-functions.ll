; RUN: retarget target=nvptx
define void @__elinvar_entry(ptr %a) {
  %v = call float @cosf(float 1.0)
  store float %v, ptr %a, align 4
  ret void
}
declare float @cosf(float)
; CHECK: error: a call of `cosf` on an NVIDIA GPU
