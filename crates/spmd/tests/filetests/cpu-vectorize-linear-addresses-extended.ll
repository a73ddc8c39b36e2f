; RUN: vectorize lanes=8
; Both indices are extended sums of 32 bits, which may wrap around. In an object of 2 GiB, the addresses are neighbors nevertheless.

define void @__elinvar_entry(ptr %in, ptr %out, ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %first = load i32, ptr %n, align 4
  %a = shl i32 %t, 1
  %i = add i32 %first, %a
  %j = add i32 %i, 1
  %v = sext i32 %i to i64
  %w = sext i32 %j to i64
  %p = getelementptr float, ptr %in, i64 %v
  %q = getelementptr float, ptr %in, i64 %w
  %x = load float, ptr %p, align 4
  %y = load float, ptr %q, align 4
  %s = fadd float %x, %y
  %to = getelementptr float, ptr %out, i32 %t
  store float %s, ptr %to, align 4
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: load <16 x float>
; CHECK-NEXT: shufflevector <16 x float>
; CHECK-NEXT: shufflevector <16 x float>
; CHECK-NOT: load <16 x float>
