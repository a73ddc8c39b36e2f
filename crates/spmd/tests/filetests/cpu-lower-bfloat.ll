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
; CHECK-NEXT: %x = load i16, ptr %a, align 2
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
; CHECK-NEXT: %11 = zext i16 %x to i32
; CHECK-NEXT: %12 = shl i32 %11, 16
; CHECK-NEXT: %13 = bitcast i32 %12 to float
; CHECK-NEXT: %14 = zext i16 %10 to i32
; CHECK-NEXT: %15 = shl i32 %14, 16
; CHECK-NEXT: %16 = bitcast i32 %15 to float
; CHECK-NEXT: %17 = fadd float %13, %16
; CHECK-NEXT: %18 = bitcast float %17 to i32
; CHECK-NEXT: %19 = lshr i32 %18, 16
; CHECK-NEXT: %20 = and i32 %19, 1
; CHECK-NEXT: %21 = add i32 %20, 32767
; CHECK-NEXT: %22 = add i32 %18, %21
; CHECK-NEXT: %23 = lshr i32 %22, 16
; CHECK-NEXT: %24 = or i32 %19, 64
; CHECK-NEXT: %25 = fcmp uno float %17, zeroinitializer
; CHECK-NEXT: %26 = select i1 %25, i32 %24, i32 %23
; CHECK-NEXT: %27 = trunc i32 %26 to i16
; CHECK-NEXT: %28 = xor i16 %27, -32768
; CHECK-NEXT: %29 = zext i16 %28 to i32
; CHECK-NEXT: %30 = shl i32 %29, 16
; CHECK-NEXT: %31 = bitcast i32 %30 to float
; CHECK-NEXT: %32 = zext i16 %x to i32
; CHECK-NEXT: %33 = shl i32 %32, 16
; CHECK-NEXT: %34 = bitcast i32 %33 to float
; CHECK-NEXT: %c = fcmp olt float %31, %34
; CHECK-NEXT: %35 = zext i16 %28 to i32
; CHECK-NEXT: %36 = shl i32 %35, 16
; CHECK-NEXT: %37 = bitcast i32 %36 to float
; CHECK-NEXT: %i = fptosi float %37 to i32
; CHECK-NEXT: %38 = and i16 %28, 32767
; CHECK-NEXT: store i16 %38, ptr %a, align 2
; CHECK-NEXT: ret void
