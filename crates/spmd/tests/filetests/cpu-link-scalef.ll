; RUN: link scalef lanes=32
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
; CHECK: call <32 x float> @elinvar.ldexp.v32f32(<32 x float>
; CHECK-NOT: llvm.ldexp
; CHECK: define internal <32 x float> @elinvar.ldexp.v32f32(<32 x float> %a, <32 x i32> %n)
; CHECK: call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %a0, <16 x float> %by0, <16 x float> %a0, i16 -1, i32 4)
; CHECK: call <16 x float> @llvm.x86.avx512.mask.scalef.ps.512(<16 x float> %a1, <16 x float> %by1, <16 x float> %a1, i16 -1, i32 4)
