; RUN: converge-barriers target=nvptx
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %c = icmp ult i32 %t, 3
  br i1 %c, label %in, label %out
in:
  call void @__elinvar_threadgroup_barrier(i32 2)
  store i32 1, ptr %a, align 4
  br label %out
out:
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %c = icmp ult i32 %t, 3
; CHECK-NEXT: br i1 %c, label %in, label %out
; CHECK-NEXT: in:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: store i32 1, ptr %a, align 4
; CHECK-NEXT: br label %out
; CHECK-NEXT: out:
; CHECK-NEXT: ret void
