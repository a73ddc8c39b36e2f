; RUN: vectorize
define void @__elinvar_entry(ptr %flag, ptr %out) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  br label %wait
wait:
  %f = load volatile i32, ptr %flag, align 4
  %set = icmp ne i32 %f, 0
  br i1 %set, label %go, label %wait
go:
  %w = zext i32 %t to i64
  %p = getelementptr i32, ptr %flag, i64 %w
  store volatile i32 2, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: load volatile i32
; CHECK: store volatile i32 2
; CHECK-NOT: load i32, ptr %flag
