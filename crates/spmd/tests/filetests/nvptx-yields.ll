; RUN: yields target=nvptx
; A yield is a barrier of all memory, and sleeps before it unless it never does.
define void @__elinvar_entry(ptr %a, i32 %ns) {
  store i32 1, ptr %a, align 4
  call void @__elinvar_yield(i32 0, i32 0)
  store i32 2, ptr %a, align 4
  call void @__elinvar_yield(i32 1, i32 %ns)
  ret void
}
declare void @__elinvar_yield(i32, i32)
; CHECK: define void @__elinvar_entry(ptr %a, i32 %ns) {
; CHECK-NEXT: store i32 1, ptr %a, align 4
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 3)
; CHECK-NEXT: store i32 2, ptr %a, align 4
; CHECK-NEXT: call void @elinvar_sleep(i32 %ns)
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 3)
; CHECK-NEXT: ret void
