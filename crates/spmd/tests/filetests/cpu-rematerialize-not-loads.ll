; RUN: vectorize
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %i = add i32 %t, 5
  %p = getelementptr i32, ptr %a, i32 %i
  %v = load i32, ptr %p, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  store i32 %v, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)

; CHECK: load <8 x i32>
; CHECK: getelementptr i8, ptr %scratch
; CHECK: store <8 x i32>
; CHECK: store i32 1, ptr %arrived
