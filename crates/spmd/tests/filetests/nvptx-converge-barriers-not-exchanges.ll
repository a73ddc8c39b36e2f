; RUN: converge-barriers target=nvptx
; %out is left to from the middle of the loop, and stays behind it: its lanes of all iterations are to be in the sum.
define void @__elinvar_entry(ptr %a) {
entry:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  %x = load i32, ptr %p, align 4
  br label %head
head:
  %i = phi i32 [ 0, %entry ], [ %next, %latch ]
  %y = load i32, ptr %p, align 4
  %odd = icmp ult i32 %y, 3
  br i1 %odd, label %more, label %test
more:
  store i32 1, ptr %p, align 4
  br label %test
test:
  %stays = icmp ult i32 %i, %x
  br i1 %stays, label %latch, label %out
latch:
  call void @__elinvar_threadgroup_barrier(i32 2)
  %next = add i32 %i, 1
  %again = icmp ult i32 %t, 7
  br i1 %again, label %head, label %end
out:
  %s = call i32 @__elinvar_simd_sum_i32(i32 %x)
  store i32 %s, ptr %p, align 4
  br label %end
end:
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
declare i32 @__elinvar_simd_sum_i32(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: entry:
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr i32, ptr %a, i32 %t
; CHECK-NEXT: %x = load i32, ptr %p, align 4
; CHECK-NEXT: br label %20
; CHECK-NEXT: head:
; CHECK-NEXT: %y = load i32, ptr %p, align 4
; CHECK-NEXT: %odd = icmp ult i32 %y, 3
; CHECK-NEXT: br i1 %odd, label %more, label %19
; CHECK-NEXT: more:
; CHECK-NEXT: store i32 1, ptr %p, align 4
; CHECK-NEXT: br label %19
; CHECK-NEXT: test:
; CHECK-NEXT: %stays = icmp ult i32 %crossing.1, %x
; CHECK-NEXT: %0 = select i1 %stays, i32 2, i32 3
; CHECK-NEXT: br label %6
; CHECK-NEXT: latch:
; CHECK-NEXT: %next = add i32 %crossing.1, 1
; CHECK-NEXT: %again = icmp ult i32 %t, 7
; CHECK-NEXT: %1 = select i1 %again, i32 0, i32 4
; CHECK-NEXT: br label %14
; CHECK-NEXT: out:
; CHECK-NEXT: %s = call i32 @__elinvar_simd_sum_i32(i32 %x)
; CHECK-NEXT: store i32 %s, ptr %p, align 4
; CHECK-NEXT: br label %13
; CHECK-NEXT: end:
; CHECK-NEXT: ret void
; CHECK-NEXT: 2:
; CHECK-NEXT: %pc = phi i32 [ 0, %20 ], [ %pc.3, %14 ]
; CHECK-NEXT: %crossing = phi i32 [ undef, %20 ], [ %crossing.1, %14 ]
; CHECK-NEXT: %incoming = phi i32 [ 0, %20 ], [ %incoming.1, %14 ]
; CHECK-NEXT: %3 = icmp eq i32 %pc, 0
; CHECK-NEXT: br i1 %3, label %head, label %4
; CHECK-NEXT: 4:
; CHECK-NEXT: %pc.1 = phi i32 [ %pc, %2 ], [ 1, %19 ]
; CHECK-NEXT: %crossing.1 = phi i32 [ %crossing, %2 ], [ %incoming, %19 ]
; CHECK-NEXT: %5 = icmp eq i32 %pc.1, 1
; CHECK-NEXT: br i1 %5, label %test, label %6
; CHECK-NEXT: 6:
; CHECK-NEXT: %pc.2 = phi i32 [ %pc.1, %4 ], [ %0, %test ]
; CHECK-NEXT: %7 = icmp eq i32 %pc.2, 2
; CHECK-NEXT: %8 = call i64 @__elinvar_simd_ballot(i1 %7)
; CHECK-NEXT: %9 = icmp ne i64 %8, 0
; CHECK-NEXT: br i1 %9, label %18, label %14
; CHECK-NEXT: 10:
; CHECK-NEXT: %11 = icmp eq i32 %pc.3, 3
; CHECK-NEXT: br i1 %11, label %out, label %12
; CHECK-NEXT: 12:
; CHECK-NEXT: br label %end
; CHECK-NEXT: 13:
; CHECK-NEXT: br label %12
; CHECK-NEXT: 14:
; CHECK-NEXT: %pc.3 = phi i32 [ %pc.2, %6 ], [ %pc.2, %18 ], [ %1, %latch ]
; CHECK-NEXT: %incoming.1 = phi i32 [ %incoming, %6 ], [ %incoming, %18 ], [ %next, %latch ]
; CHECK-NEXT: %15 = icmp eq i32 %pc.3, 0
; CHECK-NEXT: %16 = call i64 @__elinvar_simd_ballot(i1 %15)
; CHECK-NEXT: %17 = icmp ne i64 %16, 0
; CHECK-NEXT: br i1 %17, label %2, label %10
; CHECK-NEXT: 18:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: br i1 %7, label %latch, label %14
; CHECK-NEXT: 19:
; CHECK-NEXT: br label %4
; CHECK-NEXT: 20:
; CHECK-NEXT: br label %2
