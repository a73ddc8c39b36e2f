; RUN: vectorize lanes=8
; The counters' table is used if the buffer is small and apart from the other; an address outside of it is updated atomically. The
; table is combined with the buffer at the end.

define void @__elinvar_entry(ptr %data, ptr %bins) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %w = zext i32 %t to i64
  %from = getelementptr i8, ptr %data, i64 %w
  %v = load i8, ptr %from, align 1
  %k = zext i8 %v to i64
  %bin = getelementptr i32, ptr %bins, i64 %k
  %old = atomicrmw add ptr %bin, i32 1 monotonic, align 4
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: alloca [8192 x i8], align 64
; CHECK: call void @llvm.memset.p0.i64
; CHECK: atomicrmw add
; CHECK: icmp ult <8 x i64>
; CHECK: add i32
; CHECK: atomicrmw add
