; RUN: simdgroup target=nvptx approximate
; Rows are 48 bytes apart: both factors are loaded by `ldmatrix`.
@tile = internal global [768 x half] undef, section "elinvar.threadgroup", align 2

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
  %begin = getelementptr half, ptr @tile, i64 %own.wide
  %p0 = getelementptr half, ptr %begin, i64 %left.0
  %a0 = load half, ptr %p0, align 2
  %p1 = getelementptr half, ptr %begin, i64 %left.1
  %a1 = load half, ptr %p1, align 2
  %q0 = getelementptr half, ptr getelementptr (i8, ptr @tile, i64 16), i64 %left.0
  %b0 = load half, ptr %q0, align 2
  %q1 = getelementptr half, ptr getelementptr (i8, ptr @tile, i64 16), i64 %left.1
  %b1 = load half, ptr %q1, align 2
  %fa0 = fpext half %a0 to float
  %fa1 = fpext half %a1 to float
  %fb0 = fpext half %b0 to float
  %fb1 = fpext half %b1 to float
  %d0 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %fa0, float %fa1, float %fb0, float %fb1, float 0.0, float 0.0, i32 0)
  %d1 = call float @__elinvar_simd_matrix_multiply_accumulate_f32(float %fa0, float %fa1, float %fb0, float %fb1, float 0.0, float 0.0, i32 1)
  store float %d0, ptr %out, align 4
  store float %d1, ptr %out, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @__elinvar_dispatch_threads_per_threadgroup(i32)
declare float @__elinvar_simd_matrix_multiply_accumulate_f32(float, float, float, float, float, float, i32)

; CHECK: @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x1.trans.b16.p3(ptr addrspace(3) %address)
; CHECK: @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x1.b16.p3(ptr addrspace(3) %address)
; CHECK: call { i32 } @elinvar.matrix_load.1(ptr
; CHECK: call { i32 } @elinvar.matrix_load.1.trans(ptr
; CHECK-NOT: call i32 @elinvar.product.Word.half
; CHECK-NOT: call i32 @elinvar.product.Turned.half
