; RUN: vectorize group=16x4 lanes=8
; Rows of the threadgroup share the lines that lanes walk along.
define void @__elinvar_entry(ptr %a, ptr %b, ptr %n) {
entry:
  %x = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %y = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
  %row = load i32, ptr %n, align 4
  %own = mul i32 %row, %x
  %first = add i32 %own, 0
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %next, %loop ]
  %s = phi float [ 0.0, %entry ], [ %sum, %loop ]
  %index = add i32 %first, %k
  %p = getelementptr float, ptr %b, i32 %index
  %v = load float, ptr %p, align 4
  %m = fmul float %s, %v
  %sum = fadd float %m, %v
  %next = add i32 %k, 1
  %more = icmp ult i32 %next, 8
  br i1 %more, label %loop, label %end
end:
  %line = mul i32 %y, 16
  %to = add i32 %line, %x
  %at = getelementptr float, ptr %a, i32 %to
  store float %sum, ptr %at, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: masked.gather
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
; CHECK-NEXT: fmul <8 x float>
