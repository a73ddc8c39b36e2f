; RUN: vectorize group=dynamic
; The threadgroup's size is a value: it is loaded from the launch, and positions are counted. In a round of the reduction, iterations end
; early if all threads are in one row.
@partial = internal global [256 x float] undef, section "elinvar.threadgroup", align 16

define void @__elinvar_entry(ptr %in, ptr %out) {
  %x = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %y = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
  %sx = call i32 @__elinvar_threads_per_threadgroup(i32 0)
  %above = mul i32 %y, %sx
  %t = add i32 %above, %x
  %w = zext i32 %t to i64
  %mine = getelementptr [256 x float], ptr @partial, i64 0, i64 %w
  %from = getelementptr float, ptr %in, i64 %w
  %v = load float, ptr %from, align 4
  store float %v, ptr %mine, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  br label %loop

loop:
  %before = phi i32 [ %sx, %0 ], [ %step, %join ]
  %step = lshr i32 %before, 1
  %has = icmp ugt i32 %step, %t
  br i1 %has, label %then, label %join

then:
  %other = add nuw i32 %step, %t
  %o = zext i32 %other to i64
  %theirs = getelementptr [256 x float], ptr @partial, i64 0, i64 %o
  %a = load float, ptr %theirs, align 4
  %b = load float, ptr %mine, align 4
  %sum = fadd float %a, %b
  store float %sum, ptr %mine, align 4
  br label %join

join:
  call void @__elinvar_threadgroup_barrier(i32 2)
  %more = icmp ugt i32 %before, 3
  br i1 %more, label %loop, label %end

end:
  %p = getelementptr float, ptr %out, i64 %w
  %r = load float, ptr %mine, align 4
  store float %r, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @__elinvar_threads_per_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: %size = load i32, ptr
; CHECK: %size.1 = load i32, ptr
; CHECK: %size.2 = load i32, ptr
; CHECK-NEXT: = mul nuw nsw i32 %size.1, %size.2
; CHECK-NEXT: = add nuw nsw i32 %size, 7
; CHECK: = and i32 %size, 7
; CHECK: = mul nuw i32 %group.y, %size.1
; CHECK: = mul nuw i32 %group.z, %size.2
; CHECK: = mul nuw i32 %group.x, %size
