; RUN: lower-scale
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
; CHECK-NEXT: %1 = ashr i32 %p, 1
; CHECK-NEXT: %2 = sub i32 %p, %1
; CHECK-NEXT: %3 = add i32 %1, 127
; CHECK-NEXT: %4 = shl i32 %3, 23
; CHECK-NEXT: %5 = bitcast i32 %4 to float
; CHECK-NEXT: %6 = add i32 %2, 127
; CHECK-NEXT: %7 = shl i32 %6, 23
; CHECK-NEXT: %8 = bitcast i32 %7 to float
; CHECK-NEXT: %9 = fmul float %x, %5
; CHECK-NEXT: %s = fmul float %9, %8
; CHECK-NEXT: store float %s, ptr %q, align 4
; CHECK-NEXT: ret void
