; RUN: lower-bfloat
define void @__elinvar_entry(ptr %a, float %f) {
  %x = load bfloat, ptr %a, align 2
  %y = fptrunc float %f to bfloat
  %s = fadd contract bfloat %x, %y
  %n = fneg bfloat %s
  %c = fcmp olt bfloat %n, %x
  %i = fptosi bfloat %n to i32
  %m = call bfloat @llvm.fabs.bf16(bfloat %n)
  store bfloat %m, ptr %a, align 2
  ret void
}
declare bfloat @llvm.fabs.bf16(bfloat)
; CHECK: define void @__elinvar_entry(ptr %a, float %f) {
; CHECK-NEXT: %x = load bfloat, ptr %a, align 2
; CHECK-NEXT: %1 = bitcast float %f to i32
; CHECK-NEXT: %2 = lshr i32 %1, 16
; CHECK-NEXT: %3 = and i32 %2, 1
; CHECK-NEXT: %4 = add i32 %3, 32767
; CHECK-NEXT: %5 = add i32 %1, %4
; CHECK-NEXT: %6 = lshr i32 %5, 16
; CHECK-NEXT: %7 = or i32 %2, 64
; CHECK-NEXT: %8 = fcmp uno float %f, zeroinitializer
; CHECK-NEXT: %9 = select i1 %8, i32 %7, i32 %6
; CHECK-NEXT: %10 = trunc i32 %9 to i16
; CHECK-NEXT: %y = bitcast i16 %10 to bfloat
; CHECK-NEXT: %11 = fpext bfloat %x to float
; CHECK-NEXT: %12 = fpext bfloat %y to float
; CHECK-NEXT: %13 = fadd float %11, %12
; CHECK-NEXT: %14 = bitcast float %13 to i32
; CHECK-NEXT: %15 = lshr i32 %14, 16
; CHECK-NEXT: %16 = and i32 %15, 1
; CHECK-NEXT: %17 = add i32 %16, 32767
; CHECK-NEXT: %18 = add i32 %14, %17
; CHECK-NEXT: %19 = lshr i32 %18, 16
; CHECK-NEXT: %20 = or i32 %15, 64
; CHECK-NEXT: %21 = fcmp uno float %13, zeroinitializer
; CHECK-NEXT: %22 = select i1 %21, i32 %20, i32 %19
; CHECK-NEXT: %23 = trunc i32 %22 to i16
; CHECK-NEXT: %s = bitcast i16 %23 to bfloat
; CHECK-NEXT: %24 = bitcast bfloat %s to i16
; CHECK-NEXT: %25 = xor i16 %24, -32768
; CHECK-NEXT: %n = bitcast i16 %25 to bfloat
; CHECK-NEXT: %26 = fpext bfloat %n to float
; CHECK-NEXT: %27 = fpext bfloat %x to float
; CHECK-NEXT: %c = fcmp olt float %26, %27
; CHECK-NEXT: %28 = fpext bfloat %n to float
; CHECK-NEXT: %i = fptosi float %28 to i32
; CHECK-NEXT: %29 = bitcast bfloat %n to i16
; CHECK-NEXT: %30 = and i16 %29, 32767
; CHECK-NEXT: %m = bitcast i16 %30 to bfloat
; CHECK-NEXT: store bfloat %m, ptr %a, align 2
; CHECK-NEXT: ret void
