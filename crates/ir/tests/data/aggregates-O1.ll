; ModuleID = 'aggregates.cpp'
source_filename = "aggregates.cpp"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

%struct.Node = type { %struct.Vec, ptr, [3 x i32] }
%struct.Vec = type { float, float, float }
%struct.Packed = type <{ i8, i32, i16 }>
%union.Bits = type { float }

$_ZTW3tls = comdat any

$shared_counter = comdat any

$_ZZ5twiceIfET_S0_E4last = comdat any

$_ZZ5twiceIiET_S0_E4last = comdat any

@tile = dso_local global [64 x i32] zeroinitializer, section "elinvar.threadgroup", align 16
@.str = private unnamed_addr constant [19 x i8] c"a \22quoted\22 \\ text\0A\00", align 1
@text = dso_local local_unnamed_addr global ptr @.str, align 8
@nodes = dso_local global [2 x %struct.Node] [%struct.Node { %struct.Vec { float 1.000000e+00, float 2.000000e+00, float 0x3FB99999A0000000 }, ptr getelementptr (i8, ptr @nodes, i64 40), [3 x i32] [i32 1, i32 2, i32 3] }, %struct.Node zeroinitializer], align 16
@packed = dso_local local_unnamed_addr global %struct.Packed <{ i8 1, i32 2, i16 3 }>, align 1
@into = dso_local local_unnamed_addr global ptr getelementptr inbounds (i8, ptr @tile, i64 20), align 8
@tls = dso_local thread_local global i32 3, align 4
@bits = dso_local local_unnamed_addr global %union.Bits { float 1.500000e+00 }, align 4
@_ZL5table = internal unnamed_addr constant [2 x [3 x i32]] [[3 x i32] [i32 1, i32 2, i32 3], [3 x i32] [i32 4, i32 5, i32 -6]], align 16
@shared_counter = linkonce_odr dso_local local_unnamed_addr global i32 7, comdat, align 4
@elsewhere = external local_unnamed_addr global i32, align 4
@_ZZ5twiceIfET_S0_E4last = linkonce_odr dso_local local_unnamed_addr global float 0.000000e+00, comdat, align 4
@_ZZ5twiceIiET_S0_E4last = linkonce_odr dso_local local_unnamed_addr global i32 0, comdat, align 4
@llvm.compiler.used = appending global [1 x ptr] [ptr @tile], section "llvm.metadata"

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, argmem: none, inaccessiblemem: none)
define dso_local { <2 x float>, float } @_Z4makef(float noundef %0) local_unnamed_addr #0 {
  %2 = insertelement <2 x float> poison, float %0, i64 0
  %3 = fadd float %0, 1.000000e+00
  %4 = insertelement <2 x float> %2, float %3, i64 1
  %5 = load float, ptr @_ZZ5twiceIfET_S0_E4last, align 4, !tbaa !4
  store float %0, ptr @_ZZ5twiceIfET_S0_E4last, align 4, !tbaa !4
  %6 = fadd float %0, %0
  %7 = fadd float %6, %5
  %8 = insertvalue { <2 x float>, float } poison, <2 x float> %4, 0
  %9 = insertvalue { <2 x float>, float } %8, float %7, 1
  ret { <2 x float>, float } %9
}

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #1

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, inaccessiblemem: none)
define dso_local noundef i32 @_Z3useiiP4NodeP6Opaque(i32 noundef %0, i32 noundef %1, ptr nocapture noundef readonly %2, ptr noundef readnone %3) local_unnamed_addr #2 {
  %5 = alloca %struct.Node, align 8
  call void @llvm.lifetime.start.p0(i64 40, ptr nonnull %5) #8
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 8 dereferenceable(40) %5, ptr noundef nonnull align 8 dereferenceable(40) %2, i64 40, i1 false), !tbaa.struct !8
  %6 = and i32 %0, 1
  %7 = zext nneg i32 %6 to i64
  %8 = sext i32 %1 to i64
  %9 = getelementptr inbounds [2 x [3 x i32]], ptr @_ZL5table, i64 0, i64 %7, i64 %8
  %10 = load i32, ptr %9, align 4, !tbaa !12
  %11 = load i32, ptr @shared_counter, align 4, !tbaa !12
  %12 = load i32, ptr @elsewhere, align 4, !tbaa !12
  %13 = getelementptr inbounds i8, ptr %5, i64 24
  %14 = sext i32 %0 to i64
  %15 = getelementptr inbounds [3 x i32], ptr %13, i64 0, i64 %14
  %16 = load i32, ptr %15, align 4, !tbaa !12
  %17 = load i32, ptr getelementptr inbounds (i8, ptr @packed, i64 1), align 1, !tbaa !14
  %18 = load i32, ptr @_ZZ5twiceIiET_S0_E4last, align 4, !tbaa !12
  store i32 %0, ptr @_ZZ5twiceIiET_S0_E4last, align 4, !tbaa !12
  %19 = shl nsw i32 %0, 1
  %20 = icmp ne ptr %3, null
  %21 = zext i1 %20 to i32
  %22 = tail call align 4 ptr @llvm.threadlocal.address.p0(ptr align 4 @tls)
  %23 = load i32, ptr %22, align 4, !tbaa !12
  %24 = or disjoint i32 %19, %21
  %25 = add i32 %24, %10
  %26 = add i32 %25, %11
  %27 = add i32 %26, %12
  %28 = add i32 %27, %16
  %29 = add i32 %28, %17
  %30 = add i32 %29, %18
  %31 = add nsw i32 %30, %23
  call void @llvm.lifetime.end.p0(i64 40, ptr nonnull %5) #8
  ret i32 %31
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #3

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare nonnull ptr @llvm.threadlocal.address.p0(ptr nonnull) #4

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #3

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef range(i64 0, -1) i64 @_Z4highy(i64 noundef %0) local_unnamed_addr #5 {
  %2 = zext i64 %0 to i128
  %3 = mul nuw i128 %2, %2
  %4 = lshr i128 %3, 64
  %5 = trunc nuw i128 %4 to i64
  ret i64 %5
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: write)
define dso_local noundef zeroext i1 @_Z4overiiPi(i32 noundef %0, i32 noundef %1, ptr nocapture noundef writeonly %2) local_unnamed_addr #6 {
  %4 = tail call { i32, i1 } @llvm.sadd.with.overflow.i32(i32 %0, i32 %1)
  %5 = extractvalue { i32, i1 } %4, 1
  %6 = extractvalue { i32, i1 } %4, 0
  store i32 %6, ptr %2, align 4
  ret i1 %5
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare { i32, i1 } @llvm.sadd.with.overflow.i32(i32, i32) #4

; Function Attrs: nounwind
define weak_odr hidden noundef ptr @_ZTW3tls() local_unnamed_addr #7 comdat {
  %1 = tail call align 4 ptr @llvm.threadlocal.address.p0(ptr align 4 @tls)
  ret ptr %1
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, argmem: none, inaccessiblemem: none) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #1 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, inaccessiblemem: none) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #3 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #4 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #5 = { mustprogress nofree norecurse nosync nounwind willreturn memory(none) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #6 = { mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: write) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #7 = { nounwind "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #8 = { nounwind }

!llvm.linker.options = !{}
!llvm.module.flags = !{!0, !1, !2}
!llvm.ident = !{!3}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!4 = !{!5, !5, i64 0}
!5 = !{!"float", !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C++ TBAA"}
!8 = !{i64 0, i64 4, !4, i64 4, i64 4, !4, i64 8, i64 4, !4, i64 16, i64 8, !9, i64 24, i64 12, !11}
!9 = !{!10, !10, i64 0}
!10 = !{!"any pointer", !6, i64 0}
!11 = !{!6, !6, i64 0}
!12 = !{!13, !13, i64 0}
!13 = !{!"int", !6, i64 0}
!14 = !{!15, !13, i64 1}
!15 = !{!"_ZTS6Packed", !6, i64 0, !13, i64 1, !16, i64 5}
!16 = !{!"short", !6, i64 0}
