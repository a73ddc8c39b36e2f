; RUN: shared-memory target=nvptx
@table = internal constant i32 3, align 4

define void @__elinvar_entry(ptr %a) {
  %v = load i32, ptr @table, align 4
  store i32 %v, ptr %a, align 4
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %v = load i32, ptr @table, align 4
; CHECK-NEXT: store i32 %v, ptr %a, align 4
; CHECK-NEXT: ret void
