; RUN: retarget target=nvptx
define void @__elinvar_entry(ptr %a) {
  %v = call i32 @bcmp(ptr %a, ptr %a, i64 4)
  store i32 %v, ptr %a, align 4
  ret void
}
declare i32 @bcmp(ptr, ptr, i64)
; CHECK: error: a call of `bcmp` on an NVIDIA GPU
