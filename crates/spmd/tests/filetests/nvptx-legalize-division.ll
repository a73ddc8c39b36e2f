; RUN: legalize-division target=nvptx
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

; CHECK: %p = getelementptr
; CHECK-NEXT: %v = load i32
; CHECK: udiv i32 7
; CHECK: select i1
; CHECK: shl i32 %q
