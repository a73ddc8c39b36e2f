; RUN: yields target=nvptx
; Barriers of a threadgroup do not sleep.
define void @__elinvar_entry(ptr %a) {
  store i32 1, ptr %a, align 4
  call void @__elinvar_threadgroup_barrier(i32 3)
  ret void
}
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: store i32 1, ptr %a, align 4
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 3)
; CHECK-NOT: elinvar_sleep
