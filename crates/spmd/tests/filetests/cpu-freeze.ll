; RUN: freeze checks=4
define void @__elinvar_entry(ptr %a) {
  %v = load i32, ptr %a, align 4
  %w = add nsw i32 %v, undef
  store i32 %w, ptr %a, align 4
  unreachable
}
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = load i32, ptr %a, align 4
; CHECK-NEXT: %v = freeze i32 %1
; CHECK-NEXT: %w = add i32 %v, zeroinitializer
; CHECK-NEXT: store i32 %w, ptr %a, align 4
; CHECK-NEXT: ret void
