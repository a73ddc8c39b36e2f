; RUN: grid-barriers target=nvptx
; A barrier of the threadgroup only.
define void @__elinvar_entry(ptr %a) {
  store i32 1, ptr %a, align 4
  call void @__elinvar_threadgroup_barrier(i32 3)
  store i32 2, ptr %a, align 4
  ret void
}
declare void @__elinvar_threadgroup_barrier(i32)

; CHECK-NOT: elinvar_grid
; CHECK: call void @__elinvar_threadgroup_barrier(i32 3)
; CHECK-NOT: elinvar_grid
