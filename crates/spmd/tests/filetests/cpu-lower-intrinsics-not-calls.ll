; RUN: lower-intrinsics
define void @__elinvar_entry(ptr %a) {
  %v = call i32 @own(i32 3)
  store i32 %v, ptr %a, align 4
  ret void
}

define internal i32 @own(i32 %n) noinline {
  ret i32 %n
}
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %v = call i32 @own(i32 3)
; CHECK-NEXT: store i32 %v, ptr %a, align 4
; CHECK-NEXT: ret void
