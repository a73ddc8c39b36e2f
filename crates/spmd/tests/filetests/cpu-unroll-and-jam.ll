; RUN: vectorize group=16 lanes=8
define void @__elinvar_entry(ptr %a, ptr %b) {
entry:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %at = getelementptr float, ptr %a, i32 %t
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi float [ 0.0, %entry ], [ %sum, %loop ]
  %p = getelementptr float, ptr %b, i32 %k
  %v = load float, ptr %p, align 4
  %w = load float, ptr %at, align 4
  %m = fmul float %v, %w
  %sum = fadd float %s, %m
  %next = add i32 %k, 1
  %more = icmp ult i32 %next, 8
  br i1 %more, label %loop, label %end
end:
  store float %sum, ptr %at, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: fmul <8 x float>
; CHECK: fmul <8 x float>
; CHECK-NEXT: fadd <8 x float>
; CHECK-NEXT: fadd <8 x float>
