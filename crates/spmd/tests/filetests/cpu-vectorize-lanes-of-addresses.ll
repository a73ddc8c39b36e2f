; RUN: vectorize group=8
define void @__elinvar_entry(ptr %a, ptr %bins) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i8, ptr %a, i32 %t
  %v = load i8, ptr %p, align 1
  %i = zext i8 %v to i64
  %q = getelementptr inbounds i32, ptr %bins, i64 %i
  %old = atomicrmw add ptr %q, i32 1 monotonic, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: load <8 x i8>
; CHECK: store <8 x i8>
; CHECK-NEXT: getelementptr i8
; CHECK-NEXT: load i64
; CHECK-NEXT: trunc i64
; CHECK-NEXT: lshr i64
; CHECK: zext i8
; CHECK: getelementptr i32, ptr
; CHECK-NOT: extractelement <8 x ptr>
; CHECK: atomicrmw add ptr
