; ModuleID = 'intrinsics.cpp'
source_filename = "intrinsics.cpp"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

%struct.Big = type { [40 x float] }

@.str = private unnamed_addr constant [7 x i8] c"%d %f\0A\00", align 1

; Function Attrs: mustprogress noinline nounwind
define dso_local noundef float @_Z4mathffi(float noundef %0, float noundef %1, i32 noundef %2) local_unnamed_addr #0 {
  %4 = tail call float @llvm.fma.f32(float %0, float %1, float 1.000000e+00)
  %5 = tail call float @sqrtf(float noundef %0) #12
  %6 = icmp eq i32 %2, 0
  br i1 %6, label %12, label %7

7:                                                ; preds = %3
  %8 = tail call float @llvm.fabs.f32(float %1)
  %9 = tail call float @llvm.minnum.f32(float %4, float %8)
  %10 = fadd float %9, %5
  %11 = fneg float %10
  br label %14

12:                                               ; preds = %3
  %13 = fdiv float %4, %1
  br label %14

14:                                               ; preds = %12, %7
  %15 = phi float [ %11, %7 ], [ %13, %12 ]
  %16 = tail call float @llvm.floor.f32(float %0)
  %17 = fadd float %16, %15
  %18 = tail call range(i32 0, 33) i32 @llvm.ctpop.i32(i32 %2)
  %19 = uitofp nneg i32 %18 to float
  %20 = fadd float %17, %19
  %21 = or i32 %2, 1
  %22 = tail call range(i32 0, 32) i32 @llvm.ctlz.i32(i32 %21, i1 true)
  %23 = uitofp nneg i32 %22 to float
  %24 = fadd float %20, %23
  ret float %24
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.start.p0(i64 immarg, ptr nocapture) #1

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.fma.f32(float, float, float) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.fabs.f32(float) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.minnum.f32(float, float) #2

; Function Attrs: nounwind
declare float @sqrtf(float noundef) local_unnamed_addr #3

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.floor.f32(float) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.ctpop.i32(i32) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.ctlz.i32(i32, i1 immarg) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #1

; Function Attrs: mustprogress noinline nounwind
define dso_local void @_Z6memoryP3BigPKS_(ptr nocapture noundef writeonly %0, ptr nocapture noundef readonly %1) local_unnamed_addr #0 {
  %3 = alloca %struct.Big, align 4
  call void @llvm.lifetime.start.p0(i64 160, ptr nonnull %3) #13
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 4 dereferenceable(160) %3, ptr noundef nonnull align 4 dereferenceable(160) %1, i64 160, i1 false), !tbaa.struct !4
  call void @_Z7consumeP3Big(ptr noundef nonnull %3) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 4 dereferenceable(160) %0, i8 0, i64 160, i1 false)
  %4 = getelementptr inbounds i8, ptr %3, i64 8
  %5 = load float, ptr %4, align 4, !tbaa !8
  %6 = getelementptr inbounds i8, ptr %0, i64 12
  store float %5, ptr %6, align 4, !tbaa !8
  call void @llvm.memmove.p0.p0.i64(ptr noundef nonnull align 4 dereferenceable(16) %0, ptr noundef nonnull align 4 dereferenceable(16) %1, i64 16, i1 false)
  call void @llvm.lifetime.end.p0(i64 160, ptr nonnull %3) #13
  ret void
}

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #4

declare void @_Z7consumeP3Big(ptr noundef) local_unnamed_addr #5

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg) #6

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memmove.p0.p0.i64(ptr nocapture writeonly, ptr nocapture readonly, i64, i1 immarg) #4

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(inaccessiblemem: write)
define dso_local noundef ptr @_Z7alignedPf(ptr noundef returned %0) local_unnamed_addr #7 {
  call void @llvm.assume(i1 true) [ "align"(ptr %0, i64 16) ]
  ret ptr %0
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write)
declare void @llvm.assume(i1 noundef) #8

; Function Attrs: mustprogress noinline nounwind
define dso_local void @_Z6reportid(i32 noundef %0, double noundef %1) local_unnamed_addr #0 {
  %3 = icmp sgt i32 %0, 0
  tail call void @llvm.assume(i1 %3)
  %4 = tail call noundef i32 (ptr, ...) @_Z6printfPKcz(ptr noundef nonnull @.str, i32 noundef %0, double noundef %1) #12
  ret void
}

declare noundef i32 @_Z6printfPKcz(ptr noundef, ...) local_unnamed_addr #5

; Function Attrs: mustprogress noinline nounwind
define dso_local noundef i32 @_Z7throughPFiifEi(ptr nocapture noundef readonly %0, i32 noundef %1) local_unnamed_addr #0 {
  %3 = tail call noundef i32 %0(i32 noundef %1, float noundef 2.000000e+00) #12
  ret i32 %3
}

; Function Attrs: mustprogress noinline noreturn nounwind memory(inaccessiblemem: write)
define dso_local void @_Z4stopv() local_unnamed_addr #9 {
  tail call void @llvm.trap()
  unreachable
}

; Function Attrs: cold noreturn nounwind memory(inaccessiblemem: write)
declare void @llvm.trap() #10

; Function Attrs: mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none)
define dso_local noundef i32 @_Z7convertdjlPv(double noundef %0, i32 noundef %1, i64 noundef %2, ptr noundef %3) local_unnamed_addr #11 {
  %5 = fptosi double %0 to i32
  %6 = fptoui double %0 to i32
  %7 = add nsw i32 %5, %6
  %8 = uitofp i32 %1 to float
  %9 = fptosi float %8 to i32
  %10 = add nsw i32 %7, %9
  %11 = trunc i64 %2 to i32
  %12 = add nsw i32 %10, %11
  %13 = shl i32 %11, 16
  %14 = ashr exact i32 %13, 16
  %15 = ptrtoint ptr %3 to i64
  %16 = trunc i64 %15 to i32
  %17 = shl i32 %1, 24
  %18 = ashr exact i32 %17, 24
  %19 = add i32 %12, %18
  %20 = add i32 %19, %14
  %21 = add i32 %20, %16
  ret i32 %21
}

attributes #0 = { mustprogress noinline nounwind "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #3 = { nounwind "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #4 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #5 = { "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #6 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #7 = { mustprogress nofree noinline norecurse nosync nounwind willreturn memory(inaccessiblemem: write) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #8 = { mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #9 = { mustprogress noinline noreturn nounwind memory(inaccessiblemem: write) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #10 = { cold noreturn nounwind memory(inaccessiblemem: write) }
attributes #11 = { mustprogress nofree noinline norecurse nosync nounwind willreturn memory(none) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #12 = { nobuiltin nounwind "no-builtins" }
attributes #13 = { nounwind }

!llvm.linker.options = !{}
!llvm.module.flags = !{!0, !1, !2}
!llvm.ident = !{!3}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!4 = !{i64 0, i64 160, !5}
!5 = !{!6, !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C++ TBAA"}
!8 = !{!9, !9, i64 0}
!9 = !{!"float", !6, i64 0}
