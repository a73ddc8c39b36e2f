; RUN: barrier-divergence
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %c = icmp ult i32 %t, 3
  br i1 %c, label %in, label %out
in:
  call void @__elinvar_threadgroup_barrier(i32 2)
  br label %out
out:
  store i32 1, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: error: threadgroup_barrier under control flow that differs between the threads of a threadgroup
