; RUN: converge-barriers target=nvptx
; Lanes enter %end before the second barrier and behind it: it is duplicated, so that the first store before those lanes pass.
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  %x = load i32, ptr %p, align 4
  %c = icmp ult i32 %x, 3
  br i1 %c, label %end, label %on
on:
  call void @__elinvar_threadgroup_barrier(i32 2)
  %d = icmp ult i32 %x, 5
  br i1 %d, label %end, label %rest
rest:
  call void @__elinvar_threadgroup_barrier(i32 2)
  store i32 2, ptr %p, align 4
  ret void
end:
  %v = phi i32 [ 7, %0 ], [ %x, %on ]
  store i32 %v, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr i32, ptr %a, i32 %t
; CHECK-NEXT: %x = load i32, ptr %p, align 4
; CHECK-NEXT: %c = icmp ult i32 %x, 3
; CHECK-NEXT: br i1 %c, label %1, label %on
; CHECK-NEXT: on:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: %d = icmp ult i32 %x, 5
; CHECK-NEXT: br i1 %d, label %end, label %rest
; CHECK-NEXT: rest:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: store i32 2, ptr %p, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: end:
; CHECK-NEXT: %v = phi i32 [ %x, %on ]
; CHECK-NEXT: store i32 %v, ptr %p, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: 1:
; CHECK-NEXT: %2 = phi i32 [ 7, %0 ]
; CHECK-NEXT: store i32 %2, ptr %p, align 4
; CHECK-NEXT: ret void
