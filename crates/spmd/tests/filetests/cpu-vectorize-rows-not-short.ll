; RUN: vectorize group=32
; Lanes whose rows have two elements, and those of the masked version, are gathered.
define void @__elinvar_entry(ptr %a, ptr %b, ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %stride = load i64, ptr %n, align 8
  %row = lshr i32 %t, 1
  %wide = zext i32 %row to i64
  %start = mul i64 %wide, %stride
  %column = and i32 %t, 1
  %w = zext i32 %column to i64
  %i = add i64 %start, %w
  %p = getelementptr float, ptr %a, i64 %i
  %x = load float, ptr %p, align 4
  call void @__elinvar_simdgroup_barrier(i32 0)
  %sum = call float @__elinvar_simd_shuffle_xor_f32(float %x, i16 1)
  %o = getelementptr float, ptr %b, i32 %t
  store float %sum, ptr %o, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_simdgroup_barrier(i32)
declare float @__elinvar_simd_shuffle_xor_f32(float, i16)

; CHECK: call <32 x float> @llvm.masked.gather
