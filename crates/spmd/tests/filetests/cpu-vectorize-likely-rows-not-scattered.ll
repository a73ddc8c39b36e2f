; RUN: vectorize group=64
; Indices from memory, and clamped ones of every other element, are not tested.
define void @__elinvar_entry(ptr %a, ptr %b, ptr %n) {
  %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %ip = getelementptr i32, ptr %n, i32 %i
  %from = load i32, ptr %ip, align 4
  %least = call i32 @llvm.umin.i32(i32 %from, i32 100)
  %l = zext i32 %least to i64
  %lp = getelementptr inbounds float, ptr %a, i64 %l
  %x = load float, ptr %lp, align 4
  %twice = shl i32 %i, 1
  %clamped = call i32 @llvm.umin.i32(i32 %twice, i32 100)
  %w = zext i32 %clamped to i64
  %wp = getelementptr inbounds float, ptr %a, i64 %w
  %y = load float, ptr %wp, align 4
  %sum = fadd float %x, %y
  %o = getelementptr float, ptr %b, i32 %i
  store float %sum, ptr %o, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @llvm.umin.i32(i32, i32)

; CHECK-NOT: freeze <8 x ptr>
; CHECK: call <8 x float> @llvm.masked.gather
; CHECK-NOT: freeze <8 x ptr>
; CHECK: call <8 x float> @llvm.masked.gather
; CHECK-NOT: freeze <8 x ptr>
