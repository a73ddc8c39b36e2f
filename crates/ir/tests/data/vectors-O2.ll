; ModuleID = 'vectors.cpp'
source_filename = "vectors.cpp"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef <4 x float> @_Z3madDv4_fS_f(<4 x float> noundef %0, <4 x float> noundef %1, float noundef %2) local_unnamed_addr #0 {
  %4 = insertelement <4 x float> poison, float %2, i64 0
  %5 = shufflevector <4 x float> %4, <4 x float> poison, <4 x i32> zeroinitializer
  %6 = tail call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %0, <4 x float> %1, <4 x float> %5)
  ret <4 x float> %6
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>) #1

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef <3 x float> @_Z7swizzleDv4_f(<4 x float> noundef %0) local_unnamed_addr #0 {
  %2 = shufflevector <4 x float> %0, <4 x float> poison, <3 x i32> <i32 2, i32 1, i32 0>
  ret <3 x float> %2
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef double @_Z6halvesDv4_DF16_DF16_(double noundef %0, half noundef %1) local_unnamed_addr #2 {
  %3 = bitcast double %0 to <4 x half>
  %4 = fpext <4 x half> %3 to <4 x float>
  %5 = insertelement <4 x half> poison, half %1, i64 0
  %6 = shufflevector <4 x half> %5, <4 x half> poison, <4 x i32> zeroinitializer
  %7 = fpext <4 x half> %6 to <4 x float>
  %8 = tail call <4 x float> @llvm.fmuladd.v4f32(<4 x float> %4, <4 x float> %7, <4 x float> <float 1.500000e+00, float 1.500000e+00, float 1.500000e+00, float 1.500000e+00>)
  %9 = fptrunc <4 x float> %8 to <4 x half>
  %10 = insertelement <4 x half> %9, half 0xH2E66, i64 0
  %11 = bitcast <4 x half> %10 to double
  ret double %11
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef float @_Z5widenDF16_(half noundef %0) local_unnamed_addr #2 {
  %2 = fpext half %0 to float
  ret float %2
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef range(i32 -1, 1) <4 x i32> @_Z7compareDv4_fS_(<4 x float> noundef %0, <4 x float> noundef %1) local_unnamed_addr #0 {
  %3 = fcmp olt <4 x float> %0, %1
  %4 = sext <4 x i1> %3 to <4 x i32>
  ret <4 x i32> %4
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef bfloat @_Z5brainDF16bf(bfloat noundef %0, float noundef %1) local_unnamed_addr #2 {
  %3 = fpext bfloat %0 to float
  %4 = fmul float %3, %1
  %5 = fptrunc float %4 to bfloat
  ret bfloat %5
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef float @_Z2atDv4_fi(<4 x float> noundef %0, i32 noundef %1) local_unnamed_addr #0 {
  %3 = extractelement <4 x float> %0, i32 %1
  ret float %3
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef <4 x float> @_Z5pickvDv4_iDv4_fS0_(<4 x i32> noundef %0, <4 x float> noundef %1, <4 x float> noundef %2) local_unnamed_addr #0 {
  %4 = icmp slt <4 x i32> %0, zeroinitializer
  %5 = select <4 x i1> %4, <4 x float> %1, <4 x float> %2
  ret <4 x float> %5
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind willreturn memory(none) "min-legal-vector-width"="128" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #2 = { mustprogress nofree norecurse nosync nounwind willreturn memory(none) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }

!llvm.linker.options = !{}
!llvm.module.flags = !{!0, !1, !2}
!llvm.ident = !{!3}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
