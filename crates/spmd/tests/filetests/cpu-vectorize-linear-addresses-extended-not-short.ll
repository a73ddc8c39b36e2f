; RUN: vectorize lanes=8
; Extended sums of 16 bits may wrap around inside.

define void @__elinvar_entry(ptr %in, ptr %out, ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %first = load i16, ptr %n, align 2
  %t16 = trunc i32 %t to i16
  %a = shl i16 %t16, 1
  %i = add i16 %first, %a
  %j = add i16 %i, 1
  %v = sext i16 %i to i64
  %w = sext i16 %j to i64
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

; CHECK-NOT: load <16 x float>
