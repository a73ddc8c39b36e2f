; RUN: soa-private-arrays lanes=2 group=3
define void @__elinvar_entry(ptr %a, ptr %b) {
  %part = alloca [2 x i32], align 16
  %i = load i64, ptr %b, align 8
  %k = and i64 %i, 1
  store i32 5, ptr %part, align 16
  %at = getelementptr i32, ptr %part, i64 %k
  %v = load i32, ptr %at, align 4
  store i32 %v, ptr %a, align 4
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a, ptr %b) {
; CHECK-NEXT: %part = alloca [4 x i32], align 16
; CHECK-NEXT: %i = load i64, ptr %b, align 8
; CHECK-NEXT: %k = and i64 %i, 1
; CHECK-NEXT: store i32 5, ptr %part, align 4
; CHECK-NEXT: %at = getelementptr [2 x i32], ptr %part, i64 %k
; CHECK-NEXT: %v = load i32, ptr %at, align 4
; CHECK-NEXT: store i32 %v, ptr %a, align 4
; CHECK-NEXT: ret void
