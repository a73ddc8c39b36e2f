; A loop with a trip count from memory around two barriers, and a private array that outlives them.
target triple = "x86_64-pc-linux-gnu"

define void @__elinvar_entry(ptr %data, ptr %n, ptr %shared) {
entry:
  %mine = alloca [4 x i32], align 4
  %local = tail call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
  %wide = zext i32 %local to i64
  call void @llvm.memset.p0.i64(ptr %mine, i8 0, i64 16, i1 false)
  %rounds = load i32, ptr %n, align 4
  %slot = getelementptr inbounds i32, ptr %shared, i64 %wide
  br label %head

head:
  %round = phi i32 [ 0, %entry ], [ %next, %body ]
  %value = phi i32 [ %local, %entry ], [ %sum, %body ]
  %more = icmp ult i32 %round, %rounds
  br i1 %more, label %body, label %exit

body:
  store i32 %value, ptr %slot, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  %first = load i32, ptr %shared, align 4
  %sum = add i32 %first, %value
  %masked = and i32 %round, 3
  %index = zext i32 %masked to i64
  %keep = getelementptr inbounds [4 x i32], ptr %mine, i64 0, i64 %index
  store i32 %sum, ptr %keep, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  %next = add i32 %round, 1
  br label %head

exit:
  %kept = load i32, ptr %mine, align 4
  %result = add i32 %kept, %value
  %to = getelementptr inbounds i32, ptr %data, i64 %wide
  store i32 %result, ptr %to, align 4
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
