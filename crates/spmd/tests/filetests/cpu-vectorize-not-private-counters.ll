; RUN: vectorize lanes=8
; The previous value of one update is used, so another thread could observe the order of updates.

define void @__elinvar_entry(ptr %data, ptr %bins) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %w = zext i32 %t to i64
  %from = getelementptr i8, ptr %data, i64 %w
  %v = load i8, ptr %from, align 1
  %k = zext i8 %v to i64
  %bin = getelementptr i32, ptr %bins, i64 %k
  %old = atomicrmw add ptr %bin, i32 1 monotonic, align 4
  %n = trunc i32 %old to i8
  store i8 %n, ptr %from, align 1
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK-NOT: alloca [8192 x i8]
; CHECK: atomicrmw add
; CHECK-NOT: alloca [8192 x i8]
