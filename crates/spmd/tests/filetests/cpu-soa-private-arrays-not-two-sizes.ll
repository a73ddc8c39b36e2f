; RUN: soa-private-arrays
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %x = alloca [4 x i32], align 4
  %p = getelementptr [4 x i32], ptr %x, i64 0, i32 %t
  store i32 %t, ptr %p, align 4
  %v = load i64, ptr %x, align 4
  store i64 %v, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %x = alloca [4 x i32], align 4
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr [4 x i32], ptr %x, i64 0, i32 %t
; CHECK-NEXT: store i32 %t, ptr %p, align 4
; CHECK-NEXT: %v = load i64, ptr %x, align 4
; CHECK-NEXT: store i64 %v, ptr %a, align 4
; CHECK-NEXT: ret void
