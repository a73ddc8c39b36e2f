; RUN: lower-bfloat
define void @__elinvar_entry(ptr %a, i1 %c) {
start:
  %x = load bfloat, ptr %a, align 2
  br i1 %c, label %one, label %both
one:
  %s = call bfloat @__elinvar_simd_sum_bf16(bfloat %x)
  %h = call bfloat @half_of(bfloat %s)
  br label %both
both:
  %p = phi bfloat [ %h, %one ], [ 0xR7F80, %start ]
  %m = select i1 %c, bfloat %p, bfloat 0xR8000
  %i = bitcast bfloat %m to i16
  %w = insertvalue { bfloat, i16 } poison, bfloat %m, 0
  %q = getelementptr bfloat, ptr %a, i64 3
  store bfloat %m, ptr %q, align 2
  ret void
}
define internal bfloat @half_of(bfloat %x) noinline {
  ret bfloat %x
}
declare bfloat @__elinvar_simd_sum_bf16(bfloat)
; CHECK: define void @__elinvar_entry(ptr %a, i1 %c) {
; CHECK-NEXT: start:
; CHECK-NEXT: %x = load i16, ptr %a, align 2
; CHECK-NEXT: br i1 %c, label %one, label %both
; CHECK-NEXT: one:
; CHECK-NEXT: %0 = bitcast i16 %x to bfloat
; CHECK-NEXT: %1 = call bfloat @__elinvar_simd_sum_bf16(bfloat %0)
; CHECK-NEXT: %s = bitcast bfloat %1 to i16
; CHECK-NEXT: %h = call i16 @half_of(i16 %s)
; CHECK-NEXT: br label %both
; CHECK-NEXT: both:
; CHECK-NEXT: %p = phi i16 [ %h, %one ], [ 32640, %start ]
; CHECK-NEXT: %m = select i1 %c, i16 %p, i16 -32768
; CHECK-NEXT: %2 = bitcast i16 %m to bfloat
; CHECK-NEXT: %w = insertvalue { bfloat, i16 } poison, bfloat %2, 0
; CHECK-NEXT: %q = getelementptr i16, ptr %a, i64 3
; CHECK-NEXT: store i16 %m, ptr %q, align 2
; CHECK-NEXT: ret void
