; RUN: grid-barriers target=nvptx
define void @__elinvar_entry(ptr %a) {
  store i32 1, ptr %a, align 4
  call void @__elinvar_grid_barrier()
  store i32 2, ptr %a, align 4
  ret void
}
declare void @__elinvar_grid_barrier()
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = call ptr @__elinvar_grid_counter()
; CHECK-NEXT: store i32 1, ptr %a, align 4
; CHECK-NEXT: call void @elinvar_grid_wait(ptr %1, ptr @elinvar_grid_chosen)
; CHECK-NEXT: store i32 2, ptr %a, align 4
; CHECK-NEXT: ret void
