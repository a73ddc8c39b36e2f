; ModuleID = 'control.cpp'
source_filename = "control.cpp"
target datalayout = "e-m:e-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32"
target triple = "aarch64-unknown-linux-gnu"

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: read)
define dso_local i32 @sum(ptr nocapture noundef readonly %0, i32 noundef %1) local_unnamed_addr #0 {
  %3 = icmp sgt i32 %1, 0
  br i1 %3, label %4, label %6

4:                                                ; preds = %2
  %5 = zext nneg i32 %1 to i64
  br label %8

6:                                                ; preds = %8, %2
  %7 = phi i32 [ 0, %2 ], [ %17, %8 ]
  ret i32 %7

8:                                                ; preds = %4, %8
  %9 = phi i64 [ 0, %4 ], [ %18, %8 ]
  %10 = phi i32 [ 0, %4 ], [ %17, %8 ]
  %11 = getelementptr inbounds i32, ptr %0, i64 %9
  %12 = load i32, ptr %11, align 4, !tbaa !5
  %13 = icmp slt i32 %12, 0
  %14 = trunc nuw nsw i64 %9 to i32
  %15 = mul nuw nsw i32 %12, %14
  %16 = select i1 %13, i32 0, i32 %15
  %17 = add nsw i32 %16, %10
  %18 = add nuw nsw i64 %9, 1
  %19 = icmp eq i64 %18, %5
  br i1 %19, label %6, label %8, !llvm.loop !9
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef float @pick(i32 noundef %0, float noundef %1) local_unnamed_addr #1 {
  switch i32 %0, label %9 [
    i32 0, label %10
    i32 1, label %3
    i32 7, label %5
    i32 -3, label %7
  ]

3:                                                ; preds = %2
  %4 = fneg float %1
  br label %10

5:                                                ; preds = %2
  %6 = fmul float %1, %1
  br label %10

7:                                                ; preds = %2
  %8 = fadd float %1, 1.000000e+00
  br label %10

9:                                                ; preds = %2
  br label %10

10:                                               ; preds = %2, %9, %7, %5, %3
  %11 = phi float [ 0x3FB99999A0000000, %9 ], [ %8, %7 ], [ %6, %5 ], [ %4, %3 ], [ %1, %2 ]
  ret float %11
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local i32 @collatz(i32 noundef %0) local_unnamed_addr #1 {
  br label %2

2:                                                ; preds = %2, %1
  %3 = phi i32 [ %0, %1 ], [ %10, %2 ]
  %4 = phi i32 [ 0, %1 ], [ %11, %2 ]
  %5 = and i32 %3, 1
  %6 = icmp eq i32 %5, 0
  %7 = mul i32 %3, 3
  %8 = add i32 %7, 1
  %9 = lshr exact i32 %3, 1
  %10 = select i1 %6, i32 %9, i32 %8
  %11 = add nuw nsw i32 %4, 1
  %12 = icmp ne i32 %10, 1
  %13 = icmp ult i32 %4, 999
  %14 = select i1 %12, i1 %13, i1 false
  br i1 %14, label %2, label %15, !llvm.loop !12

15:                                               ; preds = %2
  ret i32 %11
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef i1 @both(i1 noundef %0, i1 noundef %1) local_unnamed_addr #1 {
  %3 = and i1 %0, %1
  ret i1 %3
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: read) "frame-pointer"="non-leaf" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="generic" "target-features"="+fp-armv8,+neon,+v8a,-fmv" }
attributes #1 = { mustprogress nofree norecurse nosync nounwind willreturn memory(none) "frame-pointer"="non-leaf" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="generic" "target-features"="+fp-armv8,+neon,+v8a,-fmv" }

!llvm.linker.options = !{}
!llvm.module.flags = !{!0, !1, !2, !3}
!llvm.ident = !{!4}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{i32 7, !"frame-pointer", i32 1}
!4 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!5 = !{!6, !6, i64 0}
!6 = !{!"int", !7, i64 0}
!7 = !{!"omnipotent char", !8, i64 0}
!8 = !{!"Simple C++ TBAA"}
!9 = distinct !{!9, !10, !11}
!10 = !{!"llvm.loop.mustprogress"}
!11 = !{!"llvm.loop.unroll.disable"}
!12 = distinct !{!12, !10, !11}
