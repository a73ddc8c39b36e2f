; RUN: vectorize lanes=8 group=8
; The function returns at a yield, and says whether the kernel was idle.
define void @__elinvar_entry(ptr %a, i32 %ns) {
  store i32 1, ptr %a, align 4
  call void @__elinvar_yield(i32 0, i32 0)
  store i32 2, ptr %a, align 4
  call void @__elinvar_yield(i32 1, i32 %ns)
  ret void
}
declare void @__elinvar_yield(i32, i32)
; CHECK: %resume = load i32
; CHECK-NEXT: switch i32 %resume
; CHECK-NEXT: i32 1, label
; CHECK-NEXT: i32 2, label
; CHECK: getelementptr i8, ptr %scratch, i64 4
; CHECK-NEXT: store i32 -2
; CHECK-NEXT: ret i32 -2
; CHECK: getelementptr i8, ptr %scratch, i64 4
; CHECK-NEXT: store i32 -1
; CHECK-NEXT: ret i32 -2
