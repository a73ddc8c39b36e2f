; RUN: zero-shared-memory target=nvptx
@tile = internal global [64 x float] undef, section "elinvar.threadgroup", align 4

define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr float, ptr @tile, i32 %t
  store float 1.0, ptr %p, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  %v = load float, ptr %p, align 4
  store float %v, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr float, ptr @tile, i32 %t
; CHECK-NEXT: store float 1.0, ptr %p, align 4
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: %v = load float, ptr %p, align 4
; CHECK-NEXT: store float %v, ptr %a, align 4
; CHECK-NEXT: ret void
