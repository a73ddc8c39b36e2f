; RUN: vectorize lanes=8 group=8
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  store i32 %t, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: store <8 x i32>
