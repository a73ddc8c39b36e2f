; RUN: vectorize group=32
; Without `disjoint`, an `or` of a row and a column is no sum: the loads are gathers.
define void @__elinvar_entry(ptr %a, ptr %b, ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %stride = load i64, ptr %n, align 8
  %row = lshr i32 %t, 3
  %wide = zext i32 %row to i64
  %start = mul i64 %wide, %stride
  %p = getelementptr float, ptr %a, i64 %start
  %pair = and i32 %t, 7
  %column = shl i32 %pair, 1
  %k = load i32, ptr %n, align 4
  %i = or i32 %k, %column
  %w = sext i32 %i to i64
  %q = getelementptr float, ptr %p, i64 %w
  %x = load float, ptr %q, align 4
  %j = or i32 %i, 1
  %v = sext i32 %j to i64
  %r = getelementptr float, ptr %p, i64 %v
  %y = load float, ptr %r, align 4
  %s = fadd float %x, %y
  call void @__elinvar_simdgroup_barrier(i32 0)
  %sum = call float @__elinvar_simd_shuffle_xor_f32(float %s, i16 1)
  %o = getelementptr float, ptr %b, i32 %t
  store float %sum, ptr %o, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_simdgroup_barrier(i32)
declare float @__elinvar_simd_shuffle_xor_f32(float, i16)

; CHECK: call <32 x float> @llvm.masked.gather
; CHECK: call <32 x float> @llvm.masked.gather
; CHECK-NOT: load <16 x float>
