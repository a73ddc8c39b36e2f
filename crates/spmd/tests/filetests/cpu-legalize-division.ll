; RUN: legalize-division
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  %v = load i32, ptr %p, align 4
  %q = udiv i32 7, %v
  %s = shl i32 %q, %v
  store i32 %s, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr i32, ptr %a, i32 %t
; CHECK-NEXT: %v = load i32, ptr %p, align 4
; CHECK-NEXT: %1 = icmp eq i32 %v, 0
; CHECK-NEXT: %2 = select i1 %1, i32 1, i32 %v
; CHECK-NEXT: %3 = udiv i32 7, %2
; CHECK-NEXT: %q = select i1 %1, i32 0, i32 %3
; CHECK-NEXT: %4 = and i32 %v, 31
; CHECK-NEXT: %s = shl i32 %q, %4
; CHECK-NEXT: store i32 %s, ptr %p, align 4
; CHECK-NEXT: ret void
