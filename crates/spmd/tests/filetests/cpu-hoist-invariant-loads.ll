; RUN: hoist-invariant-loads invariant=0,8
define void @__elinvar_entry(ptr %a, ptr %c) {
  %p = getelementptr i32, ptr %c, i64 1
  %v = load i32, ptr %p, align 4
  store i32 %v, ptr %a, align 4
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a, ptr %c) {
; CHECK-NEXT: %1 = getelementptr i8, ptr %c, i64 4
; CHECK-NEXT: %v = load i32, ptr %1, align 4
; CHECK-NEXT: %p = getelementptr i32, ptr %c, i64 1
; CHECK-NEXT: store i32 %v, ptr %a, align 4
; CHECK-NEXT: ret void
