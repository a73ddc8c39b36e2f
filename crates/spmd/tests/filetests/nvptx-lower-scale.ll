; RUN: lower-scale target=nvptx
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
; CHECK: %x = load float, ptr %q, align 4
; CHECK-NEXT: = ashr i32
; CHECK-NEXT: = sub i32
; CHECK-NEXT: = add i32
; CHECK-NEXT: = shl i32
; CHECK-NEXT: = bitcast i32
; CHECK-NEXT: = add i32
; CHECK-NEXT: = shl i32
; CHECK-NEXT: = bitcast i32
; CHECK-NEXT: = fmul float %x,
; CHECK-NEXT: %s = fmul float
; CHECK-NEXT: store float %s, ptr %q, align 4
; CHECK-NOT: __elinvar_scale(
