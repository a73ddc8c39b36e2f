; RUN: vectorize group=64
; Neighbors with clamped and wrapped indices are loaded as rows where the lanes are consecutive, and gathered elsewhere.
define void @__elinvar_entry(ptr %a, ptr %b, ptr %n) {
  %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %size = load i32, ptr %n, align 4
  %left = call i32 @llvm.usub.sat.i32(i32 %i, i32 1)
  %l = zext i32 %left to i64
  %lp = getelementptr inbounds float, ptr %a, i64 %l
  %x = load float, ptr %lp, align 4
  %next = add i32 %i, 1
  %wrapped = urem i32 %next, %size
  %w = zext i32 %wrapped to i64
  %wp = getelementptr inbounds float, ptr %a, i64 %w
  %y = load float, ptr %wp, align 4
  %sum = fadd float %x, %y
  %o = getelementptr float, ptr %b, i32 %i
  store float %sum, ptr %o, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @llvm.usub.sat.i32(i32, i32)

; CHECK: freeze <8 x ptr>
; CHECK: icmp ne <8 x i64>
; CHECK: load <8 x float>
; CHECK: call <8 x float> @llvm.masked.gather
; CHECK: phi <8 x float>
; CHECK: icmp ne <8 x i64>
; CHECK: load <8 x float>
; CHECK: call <8 x float> @llvm.masked.gather
; CHECK: phi <8 x float>
