; ModuleID = 'control.cpp'
source_filename = "control.cpp"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; Function Attrs: mustprogress noinline nounwind optnone
define dso_local i32 @sum(ptr noundef %0, i32 noundef %1) #0 {
  %3 = alloca ptr, align 8
  %4 = alloca i32, align 4
  %5 = alloca i32, align 4
  %6 = alloca i32, align 4
  store ptr %0, ptr %3, align 8
  store i32 %1, ptr %4, align 4
  store i32 0, ptr %5, align 4
  store i32 0, ptr %6, align 4
  br label %7

7:                                                ; preds = %29, %2
  %8 = load i32, ptr %6, align 4
  %9 = load i32, ptr %4, align 4
  %10 = icmp slt i32 %8, %9
  br i1 %10, label %11, label %32

11:                                               ; preds = %7
  %12 = load ptr, ptr %3, align 8
  %13 = load i32, ptr %6, align 4
  %14 = sext i32 %13 to i64
  %15 = getelementptr inbounds i32, ptr %12, i64 %14
  %16 = load i32, ptr %15, align 4
  %17 = icmp slt i32 %16, 0
  br i1 %17, label %18, label %19

18:                                               ; preds = %11
  br label %29

19:                                               ; preds = %11
  %20 = load ptr, ptr %3, align 8
  %21 = load i32, ptr %6, align 4
  %22 = sext i32 %21 to i64
  %23 = getelementptr inbounds i32, ptr %20, i64 %22
  %24 = load i32, ptr %23, align 4
  %25 = load i32, ptr %6, align 4
  %26 = mul nsw i32 %24, %25
  %27 = load i32, ptr %5, align 4
  %28 = add nsw i32 %27, %26
  store i32 %28, ptr %5, align 4
  br label %29

29:                                               ; preds = %19, %18
  %30 = load i32, ptr %6, align 4
  %31 = add nsw i32 %30, 1
  store i32 %31, ptr %6, align 4
  br label %7, !llvm.loop !5

32:                                               ; preds = %7
  %33 = load i32, ptr %5, align 4
  ret i32 %33
}

; Function Attrs: mustprogress noinline nounwind optnone
define dso_local float @pick(i32 noundef %0, float noundef %1) #0 {
  %3 = alloca float, align 4
  %4 = alloca i32, align 4
  %5 = alloca float, align 4
  store i32 %0, ptr %4, align 4
  store float %1, ptr %5, align 4
  %6 = load i32, ptr %4, align 4
  switch i32 %6, label %19 [
    i32 0, label %7
    i32 1, label %9
    i32 7, label %12
    i32 -3, label %16
  ]

7:                                                ; preds = %2
  %8 = load float, ptr %5, align 4
  store float %8, ptr %3, align 4
  br label %20

9:                                                ; preds = %2
  %10 = load float, ptr %5, align 4
  %11 = fneg float %10
  store float %11, ptr %3, align 4
  br label %20

12:                                               ; preds = %2
  %13 = load float, ptr %5, align 4
  %14 = load float, ptr %5, align 4
  %15 = fmul float %13, %14
  store float %15, ptr %3, align 4
  br label %20

16:                                               ; preds = %2
  %17 = load float, ptr %5, align 4
  %18 = fadd float %17, 1.000000e+00
  store float %18, ptr %3, align 4
  br label %20

19:                                               ; preds = %2
  store float 0x3FB99999A0000000, ptr %3, align 4
  br label %20

20:                                               ; preds = %19, %16, %12, %9, %7
  %21 = load float, ptr %3, align 4
  ret float %21
}

; Function Attrs: mustprogress noinline nounwind optnone
define dso_local i32 @collatz(i32 noundef %0) #0 {
  %2 = alloca i32, align 4
  %3 = alloca i32, align 4
  store i32 %0, ptr %2, align 4
  store i32 0, ptr %3, align 4
  br label %4

4:                                                ; preds = %25, %1
  %5 = load i32, ptr %2, align 4
  %6 = and i32 %5, 1
  %7 = icmp ne i32 %6, 0
  br i1 %7, label %8, label %12

8:                                                ; preds = %4
  %9 = load i32, ptr %2, align 4
  %10 = mul i32 3, %9
  %11 = add i32 %10, 1
  br label %15

12:                                               ; preds = %4
  %13 = load i32, ptr %2, align 4
  %14 = udiv i32 %13, 2
  br label %15

15:                                               ; preds = %12, %8
  %16 = phi i32 [ %11, %8 ], [ %14, %12 ]
  store i32 %16, ptr %2, align 4
  %17 = load i32, ptr %3, align 4
  %18 = add i32 %17, 1
  store i32 %18, ptr %3, align 4
  br label %19

19:                                               ; preds = %15
  %20 = load i32, ptr %2, align 4
  %21 = icmp ne i32 %20, 1
  br i1 %21, label %22, label %25

22:                                               ; preds = %19
  %23 = load i32, ptr %3, align 4
  %24 = icmp ult i32 %23, 1000
  br label %25

25:                                               ; preds = %22, %19
  %26 = phi i1 [ false, %19 ], [ %24, %22 ]
  br i1 %26, label %4, label %27, !llvm.loop !7

27:                                               ; preds = %25
  %28 = load i32, ptr %3, align 4
  ret i32 %28
}

; Function Attrs: mustprogress noinline nounwind optnone
define dso_local zeroext i1 @both(i1 noundef zeroext %0, i1 noundef zeroext %1) #0 {
  %3 = alloca i8, align 1
  %4 = alloca i8, align 1
  %5 = zext i1 %0 to i8
  store i8 %5, ptr %3, align 1
  %6 = zext i1 %1 to i8
  store i8 %6, ptr %4, align 1
  %7 = load i8, ptr %3, align 1
  %8 = trunc i8 %7 to i1
  br i1 %8, label %9, label %12

9:                                                ; preds = %2
  %10 = load i8, ptr %4, align 1
  %11 = trunc i8 %10 to i1
  br label %12

12:                                               ; preds = %9, %2
  %13 = phi i1 [ false, %2 ], [ %11, %9 ]
  ret i1 %13
}

attributes #0 = { mustprogress noinline nounwind optnone "frame-pointer"="all" "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }

!llvm.linker.options = !{}
!llvm.module.flags = !{!0, !1, !2, !3}
!llvm.ident = !{!4}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{i32 7, !"frame-pointer", i32 2}
!4 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!5 = distinct !{!5, !6}
!6 = !{!"llvm.loop.mustprogress"}
!7 = distinct !{!7, !6}
