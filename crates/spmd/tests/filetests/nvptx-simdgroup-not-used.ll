; RUN: simdgroup target=nvptx
define void @__elinvar_entry(ptr %a) {
  %v = load i32, ptr %a, align 4
  %w = add i32 %v, 1
  store i32 %w, ptr %a, align 4
  ret void
}

; CHECK-NOT: elinvar.
; CHECK: %w = add i32 %v, 1
; CHECK-NOT: mask
