; RUN: retarget target=nvptx
define void @__elinvar_entry(ptr %flag) {
  br label %wait
wait:
  %f = load volatile i32, ptr %flag, align 4
  %set = icmp ne i32 %f, 0
  br i1 %set, label %go, label %wait
go:
  store volatile i32 2, ptr %flag, align 4
  ret void
}
; CHECK: %f = load volatile i32
; CHECK: store volatile i32 2
