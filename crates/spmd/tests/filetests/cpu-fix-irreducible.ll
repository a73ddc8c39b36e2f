; RUN: fix-irreducible lanes=32
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
define void @__elinvar_entry(ptr %a) {
entry:
  %x = call float @__elinvar_simd_sum_f32(float 1.0)
  br label %outer
outer:
  %i = phi i32 [ 0, %entry ], [ %i2, %latch ]
  %n = load i32, ptr %a
  %none = icmp eq i32 %n, 0
  br i1 %none, label %latch, label %inner
inner:
  %j = phi i32 [ 0, %outer ], [ %j2, %met ]
  %j2 = add i32 %j, 1
  %leave = icmp eq i32 %j2, %n
  br i1 %leave, label %latch, label %met
met:
  call void @__elinvar_threadgroup_barrier(i32 2)
  %m = load i32, ptr %a
  %more = icmp ult i32 %j2, %m
  br i1 %more, label %inner, label %latch
latch:
  %i2 = add i32 %i, 1
  %again = icmp ult i32 %i2, 9
  br i1 %again, label %outer, label %end
end:
  ret void
}
declare float @__elinvar_simd_sum_f32(float)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: entry:
; CHECK-NEXT: %x = call float @__elinvar_simd_sum_f32(float 1.0)
; CHECK-NEXT: br label %outer
; CHECK-NEXT: outer:
; CHECK-NEXT: %i = phi i32 [ 0, %entry ], [ %i2, %latch ]
; CHECK-NEXT: %n = load i32, ptr %a
; CHECK-NEXT: %none = icmp eq i32 %n, 0
; CHECK-NEXT: br i1 %none, label %latch, label %inner
; CHECK-NEXT: inner:
; CHECK-NEXT: %j = phi i32 [ 0, %outer ], [ %j2, %2 ]
; CHECK-NEXT: %j2 = add i32 %j, 1
; CHECK-NEXT: %leave = icmp eq i32 %j2, %n
; CHECK-NEXT: br i1 %leave, label %latch, label %met
; CHECK-NEXT: met:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: br label %0
; CHECK-NEXT: latch:
; CHECK-NEXT: %i2 = add i32 %i, 1
; CHECK-NEXT: %again = icmp ult i32 %i2, 9
; CHECK-NEXT: br i1 %again, label %outer, label %end
; CHECK-NEXT: end:
; CHECK-NEXT: ret void
; CHECK-NEXT: 0:
; CHECK-NEXT: %m = load i32, ptr %a
; CHECK-NEXT: %more = icmp ult i32 %j2, %m
; CHECK-NEXT: br i1 %more, label %1, label %latch
; CHECK-NEXT: 1:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: br label %2
; CHECK-NEXT: 2:
; CHECK-NEXT: br label %inner
