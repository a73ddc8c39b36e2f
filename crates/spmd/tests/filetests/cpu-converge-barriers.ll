; RUN: converge-barriers
define void @__elinvar_entry(ptr %a, ptr %n) {
start:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %m = load i32, ptr %n, align 4
  %c = icmp ult i32 %t, %m
  br i1 %c, label %head, label %out
head:
  %k = phi i32 [ 0, %start ], [ %next, %head ]
  %r = phi i32 [ 0, %start ], [ %sum, %head ]
  call void @__elinvar_threadgroup_barrier(i32 0)
  %term = add i32 %k, %t
  %sum = add i32 %r, %term
  %next = add i32 %k, 1
  %again = icmp ult i32 %next, 3
  br i1 %again, label %head, label %out
out:
  %result = phi i32 [ 7, %start ], [ %sum, %head ]
  %other = call i32 @__elinvar_simd_shuffle_down_u32(i32 %result, i16 4)
  store i32 %other, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
declare i32 @__elinvar_simd_shuffle_down_u32(i32, i16)
; CHECK: define void @__elinvar_entry(ptr %a, ptr %n) {
; CHECK-NEXT: start:
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %m = load i32, ptr %n, align 4
; CHECK-NEXT: %c = icmp ult i32 %t, %m
; CHECK-NEXT: br i1 %c, label %15, label %16
; CHECK-NEXT: head:
; CHECK-NEXT: br label %14
; CHECK-NEXT: out:
; CHECK-NEXT: %other = call i32 @__elinvar_simd_shuffle_down_u32(i32 %incoming.5, i16 4)
; CHECK-NEXT: store i32 %other, ptr %a, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: 0:
; CHECK-NEXT: %term = add i32 %crossing.2, %t
; CHECK-NEXT: %sum = add i32 %crossing.3, %term
; CHECK-NEXT: %next = add i32 %crossing.2, 1
; CHECK-NEXT: %again = icmp ult i32 %next, 3
; CHECK-NEXT: %1 = select i1 %again, i32 0, i32 2
; CHECK-NEXT: br label %9
; CHECK-NEXT: 2:
; CHECK-NEXT: %pc = phi i32 [ 2, %16 ], [ 0, %15 ], [ %pc.2, %9 ]
; CHECK-NEXT: %crossing = phi i32 [ undef, %16 ], [ undef, %15 ], [ %crossing.2, %9 ]
; CHECK-NEXT: %crossing.1 = phi i32 [ undef, %16 ], [ undef, %15 ], [ %crossing.3, %9 ]
; CHECK-NEXT: %incoming = phi i32 [ 0, %16 ], [ 0, %15 ], [ %incoming.3, %9 ]
; CHECK-NEXT: %incoming.1 = phi i32 [ 0, %16 ], [ 0, %15 ], [ %incoming.4, %9 ]
; CHECK-NEXT: %incoming.2 = phi i32 [ 7, %16 ], [ 7, %15 ], [ %incoming.5, %9 ]
; CHECK-NEXT: %3 = icmp eq i32 %pc, 0
; CHECK-NEXT: br i1 %3, label %head, label %4
; CHECK-NEXT: 4:
; CHECK-NEXT: %pc.1 = phi i32 [ %pc, %2 ], [ 1, %14 ]
; CHECK-NEXT: %crossing.2 = phi i32 [ %crossing, %2 ], [ %incoming, %14 ]
; CHECK-NEXT: %crossing.3 = phi i32 [ %crossing.1, %2 ], [ %incoming.1, %14 ]
; CHECK-NEXT: %5 = icmp eq i32 %pc.1, 1
; CHECK-NEXT: %6 = call i64 @__elinvar_simd_ballot(i1 %5)
; CHECK-NEXT: %7 = icmp ne i64 %6, 0
; CHECK-NEXT: br i1 %7, label %13, label %9
; CHECK-NEXT: 8:
; CHECK-NEXT: br label %out
; CHECK-NEXT: 9:
; CHECK-NEXT: %pc.2 = phi i32 [ %pc.1, %4 ], [ %pc.1, %13 ], [ %1, %0 ]
; CHECK-NEXT: %incoming.3 = phi i32 [ %incoming, %4 ], [ %incoming, %13 ], [ %next, %0 ]
; CHECK-NEXT: %incoming.4 = phi i32 [ %incoming.1, %4 ], [ %incoming.1, %13 ], [ %sum, %0 ]
; CHECK-NEXT: %incoming.5 = phi i32 [ %incoming.2, %4 ], [ %incoming.2, %13 ], [ %sum, %0 ]
; CHECK-NEXT: %10 = icmp eq i32 %pc.2, 0
; CHECK-NEXT: %11 = call i64 @__elinvar_simd_ballot(i1 %10)
; CHECK-NEXT: %12 = icmp ne i64 %11, 0
; CHECK-NEXT: br i1 %12, label %2, label %8
; CHECK-NEXT: 13:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 0)
; CHECK-NEXT: br i1 %5, label %0, label %9
; CHECK-NEXT: 14:
; CHECK-NEXT: br label %4
; CHECK-NEXT: 15:
; CHECK-NEXT: br label %2
; CHECK-NEXT: 16:
; CHECK-NEXT: br label %2
