; RUN: simdgroup target=nvptx
; Of floats, a lane loads the row and the columns that it multiplies.
@tile = internal global [768 x float] undef, section "elinvar.threadgroup", align 4

define void @__elinvar_entry(ptr %out) {
  %x = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %y = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
  %z = call i32 @__elinvar_thread_position_in_threadgroup(i32 2)
  %width = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 0)
  %height = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 1)
  %layers = mul i32 %height, %z
  %rows = add i32 %layers, %y
  %before = mul i32 %rows, %width
  %index = add i32 %before, %x
  %lane = and i32 %index, 31
  %simdgroup = lshr i32 %index, 5
  %high = lshr i32 %index, 2
  %row.high = and i32 %high, 4
  %half = lshr i32 %lane, 1
  %row.low = and i32 %half, 3
  %row = or disjoint i32 %row.low, %row.high
  %column.high = and i32 %half, 4
  %twice = shl nuw nsw i32 %lane, 1
  %column.low = and i32 %twice, 2
  %column = or disjoint i32 %column.high, %column.low
  %r = zext nneg i32 %row to i64
  %c = zext nneg i32 %column to i64
  %c1 = or disjoint i64 %c, 1
  %own = mul i32 %simdgroup, 192
  %own.wide = zext i32 %own to i64
  %at = mul nuw nsw i64 %r, 24
  %left.0 = or disjoint i64 %at, %c
  %left.1 = or disjoint i64 %at, %c1
  %begin = getelementptr float, ptr @tile, i64 %own.wide
  %p0 = getelementptr float, ptr %begin, i64 %left.0
  %a0 = load float, ptr %p0, align 4
  %p1 = getelementptr float, ptr %begin, i64 %left.1
  %a1 = load float, ptr %p1, align 4
  %q0 = getelementptr float, ptr getelementptr (i8, ptr @tile, i64 16), i64 %left.0
  %b0 = load float, ptr %q0, align 4
  %q1 = getelementptr float, ptr getelementptr (i8, ptr @tile, i64 16), i64 %left.1
  %b1 = load float, ptr %q1, align 4
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %a0, float %a1, float %b0, float %b1, float 0.0, float 0.0, i32 0)
  %d1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %a0, float %a1, float %b0, float %b1, float 0.0, float 0.0, i32 1)
  store float %d0, ptr %out, align 4
  store float %d1, ptr %out, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @__elinvar_dispatch_threads_per_threadgroup(i32)
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)

; CHECK: load <2 x float>, ptr addrspace(3)
; CHECK: load <4 x float>, ptr addrspace(3)
; CHECK: @elinvar.matrix_load.Left(ptr %p0, i32 0, i32 96, i32 192, i32 384,
; CHECK: @elinvar.matrix_load.Right(ptr %q0, i32 0, i32 96, i32 192, i32 384,
; CHECK-NOT: @elinvar.product.Left.float
; CHECK-NOT: @elinvar.product.Right.float
