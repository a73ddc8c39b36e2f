; RUN: vectorize lanes=8 group=8
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i128, ptr %a, i32 %t
  %v = load i128, ptr %p, align 16
  store i128 %v, ptr %a, align 16
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: load i128
; CHECK-NEXT: store i128
; CHECK-NOT: x i128>
