; RUN: vectorize group=8 gib=16
define void @__elinvar_entry(ptr %a, ptr %x, ptr %c) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %w = zext i32 %t to i64
  %at = getelementptr i32, ptr %a, i64 %w
  %i = load i32, ptr %at, align 4
  %z = zext i32 %i to i64
  %q = getelementptr float, ptr %x, i64 %z
  %v = load float, ptr %q, align 4
  %n = load i32, ptr %c, align 4
  %s = add i32 %n, %t
  %l = zext i32 %s to i64
  %r = getelementptr float, ptr %x, i64 %l
  store float %v, ptr %r, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; In 16 GiB of floats, a `uint` index may exceed 31 bits, and one that wraps around stays inside.
; CHECK: load <8 x i32>
; CHECK-NOT: sext <8 x i32>
; CHECK: zext <8 x i32>
; CHECK-NEXT: getelementptr float
; CHECK: @llvm.masked.gather
; CHECK-NOT: store <8 x float>
; CHECK: @llvm.masked.scatter
