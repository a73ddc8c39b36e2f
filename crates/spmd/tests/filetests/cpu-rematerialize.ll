; RUN: vectorize
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %i = add i32 %t, 5
  %p = getelementptr i32, ptr %a, i32 %i
  %v = load i32, ptr %p, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  store i32 %i, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)

; CHECK: add i32 %62, 5
; CHECK: store i32 1, ptr %arrived
; CHECK-NOT: getelementptr i8, ptr %scratch
; CHECK: add i32
