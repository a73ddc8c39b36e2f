; RUN: bounds checks=16
define void @__elinvar_entry(ptr %a) {
  %p = getelementptr i32, ptr %a, i64 3
  store i32 1, ptr %p, align 4
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = call ptr @__elinvar_fault_record()
; CHECK-NEXT: %2 = call i64 @__elinvar_argument_bytes(i32 0)
; CHECK-NEXT: %p = getelementptr i32, ptr %a, i64 3
; CHECK-NEXT: store i32 1, ptr %p, align 4
; CHECK-NEXT: ret void
