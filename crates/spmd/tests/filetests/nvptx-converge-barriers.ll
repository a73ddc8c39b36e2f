; RUN: converge-barriers target=nvptx
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
; CHECK-NEXT: %0 = call i64 @__elinvar_simd_ballot(i1 %c)
; CHECK-NEXT: %1 = icmp ne i64 %0, 0
; CHECK-NEXT: br i1 %1, label %3, label %out
; CHECK-NEXT: head:
; CHECK-NEXT: br label %5
; CHECK-NEXT: out:
; CHECK-NEXT: %incoming = phi i32 [ 7, %start ], [ %incoming.4, %6 ]
; CHECK-NEXT: %other = call i32 @__elinvar_simd_shuffle_down_u32(i32 %incoming, i16 4)
; CHECK-NEXT: store i32 %other, ptr %a, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: 2:
; CHECK-NEXT: %term = add i32 %k, %t
; CHECK-NEXT: %sum = add i32 %crossing.1, %term
; CHECK-NEXT: br label %6
; CHECK-NEXT: 3:
; CHECK-NEXT: %crossing = phi i32 [ undef, %start ], [ %crossing.1, %6 ]
; CHECK-NEXT: %incoming.1 = phi i32 [ 0, %start ], [ %incoming.3, %6 ]
; CHECK-NEXT: %incoming.2 = phi i32 [ 7, %start ], [ %incoming.4, %6 ]
; CHECK-NEXT: %k = phi i32 [ 0, %start ], [ %next, %6 ]
; CHECK-NEXT: br i1 %c, label %head, label %5
; CHECK-NEXT: 4:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 0)
; CHECK-NEXT: %next = add i32 %k, 1
; CHECK-NEXT: %again = icmp ult i32 %next, 3
; CHECK-NEXT: br i1 %c, label %2, label %6
; CHECK-NEXT: 5:
; CHECK-NEXT: %crossing.1 = phi i32 [ %crossing, %3 ], [ %incoming.1, %head ]
; CHECK-NEXT: br label %4
; CHECK-NEXT: 6:
; CHECK-NEXT: %incoming.3 = phi i32 [ %incoming.1, %4 ], [ %sum, %2 ]
; CHECK-NEXT: %incoming.4 = phi i32 [ %incoming.2, %4 ], [ %sum, %2 ]
; CHECK-NEXT: br i1 %again, label %3, label %out
