; RUN: lower-logging target=nvptx
define void @__elinvar_entry(ptr %a) {
  %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %w = zext i32 %i to i64
  %at = getelementptr i64, ptr %a, i64 %w
  store i64 7, ptr %at, align 8
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NOT: elinvar_log
