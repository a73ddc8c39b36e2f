; RUN: vectorize group=32
; Copies of lanes apart are made lane by lane.
define void @__elinvar_entry(ptr %a, ptr %b, ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %stride = load i64, ptr %n, align 8
  %row = lshr i32 %t, 3
  %wide = zext i32 %row to i64
  %start = mul i64 %wide, %stride
  %column = and i32 %t, 7
  %w = zext i32 %column to i64
  %i = add i64 %start, %w
  %from = getelementptr [20 x i8], ptr %a, i64 %i
  %to = getelementptr [24 x i8], ptr %b, i32 %t
  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %to, ptr align 1 %from, i64 20, i1 false)
  %x = load float, ptr %a, align 4
  %y = call float @__elinvar_simd_shuffle_xor_f32(float %x, i16 1)
  store float %y, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare float @__elinvar_simd_shuffle_xor_f32(float, i16)

; CHECK-NOT: memmove
; CHECK: call void @llvm.memcpy.p0.p0.i64
; CHECK-NOT: memmove
