; RUN: freeze
define void @__elinvar_entry(ptr %a) {
  %v = load i32, ptr %a, align 4
  %w = add nsw i32 %v, 1
  store i32 %w, ptr %a, align 4
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %v = load i32, ptr %a, align 4
; CHECK-NEXT: %w = add nsw i32 %v, 1
; CHECK-NEXT: store i32 %w, ptr %a, align 4
; CHECK-NEXT: ret void
