; RUN: converge-barriers
define void @__elinvar_entry(ptr %a) {
start:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  br label %head
head:
  %k = phi i32 [ 0, %start ], [ %next, %more ]
  %in = icmp ult i32 %k, %t
  br i1 %in, label %more, label %out
more:
  call void @__elinvar_threadgroup_barrier(i32 0)
  %next = add i32 %k, 1
  br label %head
out:
  store i32 %k, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: start:
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: br label %14
; CHECK-NEXT: head:
; CHECK-NEXT: %in = icmp ult i32 %incoming, %t
; CHECK-NEXT: %0 = select i1 %in, i32 1, i32 2
; CHECK-NEXT: br label %3
; CHECK-NEXT: more:
; CHECK-NEXT: %next = add i32 %crossing.1, 1
; CHECK-NEXT: br label %13
; CHECK-NEXT: out:
; CHECK-NEXT: store i32 %crossing.1, ptr %a, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: 1:
; CHECK-NEXT: %pc = phi i32 [ 0, %14 ], [ %pc.2, %8 ]
; CHECK-NEXT: %crossing = phi i32 [ undef, %14 ], [ %crossing.1, %8 ]
; CHECK-NEXT: %incoming = phi i32 [ 0, %14 ], [ %incoming.1, %8 ]
; CHECK-NEXT: %2 = icmp eq i32 %pc, 0
; CHECK-NEXT: br i1 %2, label %head, label %3
; CHECK-NEXT: 3:
; CHECK-NEXT: %pc.1 = phi i32 [ %pc, %1 ], [ %0, %head ]
; CHECK-NEXT: %crossing.1 = phi i32 [ %crossing, %1 ], [ %incoming, %head ]
; CHECK-NEXT: %4 = icmp eq i32 %pc.1, 1
; CHECK-NEXT: %5 = call i64 @__elinvar_simd_ballot(i1 %4)
; CHECK-NEXT: %6 = icmp ne i64 %5, 0
; CHECK-NEXT: br i1 %6, label %12, label %8
; CHECK-NEXT: 7:
; CHECK-NEXT: br label %out
; CHECK-NEXT: 8:
; CHECK-NEXT: %pc.2 = phi i32 [ %pc.1, %3 ], [ %pc.1, %12 ], [ 0, %13 ]
; CHECK-NEXT: %incoming.1 = phi i32 [ %incoming, %3 ], [ %incoming, %12 ], [ %next, %13 ]
; CHECK-NEXT: %9 = icmp eq i32 %pc.2, 0
; CHECK-NEXT: %10 = call i64 @__elinvar_simd_ballot(i1 %9)
; CHECK-NEXT: %11 = icmp ne i64 %10, 0
; CHECK-NEXT: br i1 %11, label %1, label %7
; CHECK-NEXT: 12:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 0)
; CHECK-NEXT: br i1 %4, label %more, label %8
; CHECK-NEXT: 13:
; CHECK-NEXT: br label %8
; CHECK-NEXT: 14:
; CHECK-NEXT: br label %1
