; RUN: vectorize lanes=8
; The indices of both loads are sums of a common part and of 0 or 1: together, the lanes load pairs of neighbors.

define void @__elinvar_entry(ptr %in, ptr %out, ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %w = zext i32 %t to i64
  %first = load i64, ptr %n, align 8
  %a = shl i64 %w, 1
  %b = or disjoint i64 %a, 1
  %i = add i64 %first, %a
  %j = add i64 %first, %b
  %p = getelementptr float, ptr %in, i64 %i
  %q = getelementptr float, ptr %in, i64 %j
  %x = load float, ptr %p, align 4
  %y = load float, ptr %q, align 4
  %s = fadd float %x, %y
  %to = getelementptr float, ptr %out, i64 %w
  store float %s, ptr %to, align 4
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: load <16 x float>
; CHECK-NEXT: shufflevector <16 x float>
; CHECK-NEXT: shufflevector <16 x float>
