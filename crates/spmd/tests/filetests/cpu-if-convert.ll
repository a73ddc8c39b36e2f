; RUN: if-convert lanes=8 group=64
define void @__elinvar_entry(ptr %a) {
entry:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr float, ptr %a, i32 %t
  %x = load float, ptr %p, align 4
  %zero = fcmp oeq float %x, 0.0
  br i1 %zero, label %special, label %normal
special:
  %odd = trunc i32 %t to i1
  br i1 %odd, label %end, label %minus
minus:
  %m = fneg float %x
  br label %end
normal:
  %y = fmul float %x, 3.0
  br label %end
end:
  %r = phi float [ 1.0, %special ], [ %m, %minus ], [ %y, %normal ]
  store float %r, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: entry:
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr float, ptr %a, i32 %t
; CHECK-NEXT: %x = load float, ptr %p, align 4
; CHECK-NEXT: %zero = fcmp oeq float %x, 0.0
; CHECK-NEXT: %odd = trunc i32 %t to i1
; CHECK-NEXT: %m = fneg float %x
; CHECK-NEXT: %0 = select i1 %odd, float 1.0, float %m
; CHECK-NEXT: %y = fmul float %x, 3.0
; CHECK-NEXT: %1 = select i1 %zero, float %0, float %y
; CHECK-NEXT: store float %1, ptr %p, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: special:
; CHECK-NEXT: unreachable
; CHECK-NEXT: minus:
; CHECK-NEXT: unreachable
; CHECK-NEXT: normal:
; CHECK-NEXT: unreachable
; CHECK-NEXT: end:
; CHECK-NEXT: unreachable
