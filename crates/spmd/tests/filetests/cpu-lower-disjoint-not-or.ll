; RUN: lower-disjoint
; Operands may have bits in common.
define void @__elinvar_entry(ptr %a, ptr %b) {
  %n = load i32, ptr %b, align 4
  %i = or i32 %n, 1
  %x = xor i32 %i, 4
  store i32 %x, ptr %a, align 4
  ret void
}
; CHECK: %i = or i32 %n, 1
; CHECK-NEXT: %x = xor i32 %i, 4
