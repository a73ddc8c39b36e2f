; ModuleID = 'intrinsics.cpp'
source_filename = "intrinsics.cpp"
target datalayout = "e-i64:64-i128:128-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

%struct.Big = type { [40 x float] }

@.str = private unnamed_addr constant [7 x i8] c"%d %f\0A\00", align 1

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef nofpclass(nan inf) float @_Z4mathffi(float noundef nofpclass(nan inf) %0, float noundef nofpclass(nan inf) %1, i32 noundef %2) local_unnamed_addr #0 {
  %4 = tail call fast float @llvm.fma.f32(float %0, float %1, float 1.000000e+00)
  %5 = icmp eq i32 %2, 0
  br i1 %5, label %12, label %6

6:                                                ; preds = %3
  %7 = tail call fast float @llvm.fabs.f32(float %1)
  %8 = tail call fast float @llvm.minnum.f32(float %4, float %7)
  %9 = tail call fast float @llvm.sqrt.f32(float %0)
  %10 = fadd fast float %8, %9
  %11 = fneg fast float %10
  br label %14

12:                                               ; preds = %3
  %13 = fdiv fast float %4, %1
  br label %14

14:                                               ; preds = %12, %6
  %15 = phi fast float [ %11, %6 ], [ %13, %12 ]
  %16 = tail call fast float @llvm.floor.f32(float %0)
  %17 = tail call range(i32 0, 33) i32 @llvm.ctpop.i32(i32 %2)
  %18 = uitofp nneg i32 %17 to float
  %19 = or i32 %2, 1
  %20 = tail call range(i32 0, 32) i32 @llvm.ctlz.i32(i32 %19, i1 true)
  %21 = uitofp nneg i32 %20 to float
  %22 = fadd fast float %16, %18
  %23 = fadd fast float %22, %21
  %24 = fadd fast float %23, %15
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

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.sqrt.f32(float) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare float @llvm.floor.f32(float) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.ctpop.i32(i32) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none)
declare i32 @llvm.ctlz.i32(i32, i1 immarg) #2

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite)
declare void @llvm.lifetime.end.p0(i64 immarg, ptr nocapture) #1

; Function Attrs: mustprogress nounwind
define dso_local void @_Z6memoryP3BigPKS_(ptr nocapture noundef writeonly %0, ptr nocapture noundef readonly %1) local_unnamed_addr #3 {
  %3 = alloca %struct.Big, align 4
  call void @llvm.lifetime.start.p0(i64 160, ptr nonnull %3) #11
  call void @llvm.memcpy.p0.p0.i64(ptr noundef nonnull align 4 dereferenceable(160) %3, ptr noundef nonnull align 4 dereferenceable(160) %1, i64 160, i1 false), !tbaa.struct !3
  call void @_Z7consumeP3Big(ptr noundef nonnull %3) #12
  call void @llvm.memset.p0.i64(ptr noundef nonnull align 4 dereferenceable(160) %0, i8 0, i64 160, i1 false)
  %4 = getelementptr inbounds i8, ptr %3, i64 8
  %5 = load float, ptr %4, align 4, !tbaa !7
  %6 = getelementptr inbounds i8, ptr %0, i64 12
  store float %5, ptr %6, align 4, !tbaa !7
  call void @llvm.memmove.p0.p0.i64(ptr noundef nonnull align 4 dereferenceable(16) %0, ptr noundef nonnull align 4 dereferenceable(16) %1, i64 16, i1 false)
  call void @llvm.lifetime.end.p0(i64 160, ptr nonnull %3) #11
  ret void
}

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memcpy.p0.p0.i64(ptr noalias nocapture writeonly, ptr noalias nocapture readonly, i64, i1 immarg) #4

declare dso_local void @_Z7consumeP3Big(ptr noundef) local_unnamed_addr #5

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: write)
declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg) #6

; Function Attrs: mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite)
declare void @llvm.memmove.p0.p0.i64(ptr nocapture writeonly, ptr nocapture readonly, i64, i1 immarg) #4

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(inaccessiblemem: write)
define dso_local noundef ptr @_Z7alignedPf(ptr noundef returned %0) local_unnamed_addr #7 {
  call void @llvm.assume(i1 true) [ "align"(ptr %0, i64 16) ]
  ret ptr %0
}

; Function Attrs: mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write)
declare void @llvm.assume(i1 noundef) #8

; Function Attrs: mustprogress nounwind
define dso_local void @_Z6reportid(i32 noundef %0, double noundef nofpclass(nan inf) %1) local_unnamed_addr #3 {
  %3 = icmp sgt i32 %0, 0
  tail call void @llvm.assume(i1 %3)
  %4 = tail call noundef i32 (ptr, ...) @_Z6printfPKcz(ptr noundef nonnull @.str, i32 noundef %0, double noundef nofpclass(nan inf) %1) #12
  ret void
}

declare dso_local noundef i32 @_Z6printfPKcz(ptr noundef, ...) local_unnamed_addr #5

; Function Attrs: mustprogress nounwind
define dso_local noundef i32 @_Z7throughPFiifEi(ptr nocapture noundef readonly %0, i32 noundef %1) local_unnamed_addr #3 {
  %3 = tail call noundef i32 %0(i32 noundef %1, float noundef nofpclass(nan inf) 2.000000e+00) #12
  ret i32 %3
}

; Function Attrs: mustprogress noreturn nounwind memory(inaccessiblemem: write)
define dso_local void @_Z4stopv() local_unnamed_addr #9 {
  tail call void @llvm.trap()
  unreachable
}

; Function Attrs: cold noreturn nounwind memory(inaccessiblemem: write)
declare void @llvm.trap() #10

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(none)
define dso_local noundef i32 @_Z7convertdjlPv(double noundef nofpclass(nan inf) %0, i32 noundef %1, i64 noundef %2, ptr noundef %3) local_unnamed_addr #0 {
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

attributes #0 = { mustprogress nofree norecurse nosync nounwind willreturn memory(none) "approx-func-fp-math"="true" "frame-pointer"="all" "no-builtins" "no-infs-fp-math"="true" "no-nans-fp-math"="true" "no-signed-zeros-fp-math"="true" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-features"="+ptx42" "unsafe-fp-math"="true" }
attributes #1 = { mustprogress nocallback nofree nosync nounwind willreturn memory(argmem: readwrite) }
attributes #2 = { mustprogress nocallback nofree nosync nounwind speculatable willreturn memory(none) }
attributes #3 = { mustprogress nounwind "approx-func-fp-math"="true" "frame-pointer"="all" "no-builtins" "no-infs-fp-math"="true" "no-nans-fp-math"="true" "no-signed-zeros-fp-math"="true" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-features"="+ptx42" "unsafe-fp-math"="true" }
attributes #4 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: readwrite) }
attributes #5 = { "approx-func-fp-math"="true" "frame-pointer"="all" "no-builtins" "no-infs-fp-math"="true" "no-nans-fp-math"="true" "no-signed-zeros-fp-math"="true" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-features"="+ptx42" "unsafe-fp-math"="true" }
attributes #6 = { mustprogress nocallback nofree nounwind willreturn memory(argmem: write) }
attributes #7 = { mustprogress nofree norecurse nosync nounwind willreturn memory(inaccessiblemem: write) "approx-func-fp-math"="true" "frame-pointer"="all" "no-builtins" "no-infs-fp-math"="true" "no-nans-fp-math"="true" "no-signed-zeros-fp-math"="true" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-features"="+ptx42" "unsafe-fp-math"="true" }
attributes #8 = { mustprogress nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #9 = { mustprogress noreturn nounwind memory(inaccessiblemem: write) "approx-func-fp-math"="true" "frame-pointer"="all" "no-builtins" "no-infs-fp-math"="true" "no-nans-fp-math"="true" "no-signed-zeros-fp-math"="true" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-features"="+ptx42" "unsafe-fp-math"="true" }
attributes #10 = { cold noreturn nounwind memory(inaccessiblemem: write) }
attributes #11 = { nounwind }
attributes #12 = { nobuiltin nounwind "no-builtins" }

!llvm.linker.options = !{}
!llvm.module.flags = !{!0, !1}
!llvm.ident = !{!2}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 7, !"frame-pointer", i32 2}
!2 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!3 = !{i64 0, i64 160, !4}
!4 = !{!5, !5, i64 0}
!5 = !{!"omnipotent char", !6, i64 0}
!6 = !{!"Simple C++ TBAA"}
!7 = !{!8, !8, i64 0}
!8 = !{!"float", !5, i64 0}
