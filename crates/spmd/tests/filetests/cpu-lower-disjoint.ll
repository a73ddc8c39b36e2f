; RUN: lower-disjoint
define void @__elinvar_entry(ptr %a, ptr %b) {
  %n = load i32, ptr %b, align 4
  %v = load <2 x i32>, ptr %b, align 8
  %m = shl i32 %n, 2
  %i = or disjoint i32 %m, 1
  %w = or disjoint <2 x i32> %v, splat (i32 1)
  %s = call i32 @twice(i32 %i)
  store i32 %s, ptr %a, align 4
  store <2 x i32> %w, ptr %a, align 8
  ret void
}
define i32 @twice(i32 %i) noinline {
  %even = shl i32 %i, 1
  %odd = or disjoint i32 %even, 1
  ret i32 %odd
}
; CHECK: %i = add nuw nsw i32 %m, 1
; CHECK-NEXT: %w = add nuw nsw <2 x i32> %v, splat (i32 1)
; CHECK: %odd = add nuw nsw i32 %even, 1
