; RUN: lower-scale scalef
define void @__elinvar_entry(ptr %a) {
  %p = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %q = getelementptr float, ptr %a, i32 %p
  %x = load float, ptr %q, align 4
  %s = call float @__elinvar_scale(float %x, i32 %p)
  store float %s, ptr %q, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare float @__elinvar_scale(float, i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %p = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %q = getelementptr float, ptr %a, i32 %p
; CHECK-NEXT: %x = load float, ptr %q, align 4
; CHECK-NEXT: %s = call float @llvm.ldexp.f32.i32(float %x, i32 %p)
; CHECK-NEXT: store float %s, ptr %q, align 4
; CHECK-NEXT: ret void
