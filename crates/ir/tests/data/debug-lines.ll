; ModuleID = 'debug.cpp'
source_filename = "debug.cpp"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

; Function Attrs: mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite)
define dso_local void @_Z6kernelPfPKfj(ptr nocapture noundef writeonly %0, ptr nocapture noundef readonly %1, i32 noundef %2) local_unnamed_addr #0 !dbg !8 {
  %4 = icmp eq i32 %2, 0, !dbg !11
  br i1 %4, label %7, label %5, !dbg !12

5:                                                ; preds = %3
  %6 = zext i32 %2 to i64, !dbg !11
  br label %8, !dbg !12

7:                                                ; preds = %21, %3
  ret void, !dbg !13

8:                                                ; preds = %5, %21
  %9 = phi i64 [ 0, %5 ], [ %25, %21 ]
  %10 = getelementptr inbounds float, ptr %1, i64 %9, !dbg !14
  %11 = load float, ptr %10, align 4, !dbg !14, !tbaa !15
  br label %12, !dbg !19

12:                                               ; preds = %12, %8
  %13 = phi i64 [ 0, %8 ], [ %19, %12 ]
  %14 = phi float [ 0.000000e+00, %8 ], [ %18, %12 ]
  %15 = fmul float %11, %14, !dbg !22
  %16 = getelementptr inbounds float, ptr %1, i64 %13, !dbg !23
  %17 = load float, ptr %16, align 4, !dbg !23, !tbaa !15
  %18 = fadd float %15, %17, !dbg !24
  %19 = add nuw nsw i64 %13, 1, !dbg !25
  %20 = icmp eq i64 %19, 4, !dbg !26
  br i1 %20, label %21, label %12, !dbg !19, !llvm.loop !27

21:                                               ; preds = %12
  %22 = fmul float %11, %11, !dbg !31
  %23 = fadd float %22, %18, !dbg !34
  %24 = getelementptr inbounds float, ptr %0, i64 %9, !dbg !35
  store float %23, ptr %24, align 4, !dbg !36, !tbaa !15
  %25 = add nuw nsw i64 %9, 1, !dbg !37
  %26 = icmp eq i64 %25, %6, !dbg !11
  br i1 %26, label %7, label %8, !dbg !12, !llvm.loop !38
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite) "min-legal-vector-width"="0" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }

!llvm.dbg.cu = !{!0}
!llvm.linker.options = !{}
!llvm.module.flags = !{!2, !3, !4, !5, !6}
!llvm.ident = !{!7}

!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !1, producer: "Debian clang version 19.1.7 (3~deb12u1)", isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly, splitDebugInlining: false, nameTableKind: None)
!1 = !DIFile(filename: "debug.cpp", directory: "/src", checksumkind: CSK_MD5, checksum: "e708aad36cd7bbaf2c47b9d9d88d25bb")
!2 = !{i32 7, !"Dwarf Version", i32 5}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = !{i32 1, !"wchar_size", i32 4}
!5 = !{i32 8, !"PIC Level", i32 2}
!6 = !{i32 7, !"PIE Level", i32 2}
!7 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!8 = distinct !DISubprogram(name: "kernel", scope: !1, file: !1, line: 8, type: !9, scopeLine: 8, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!9 = !DISubroutineType(types: !10)
!10 = !{}
!11 = !DILocation(line: 9, column: 26, scope: !8)
!12 = !DILocation(line: 9, column: 3, scope: !8)
!13 = !DILocation(line: 11, column: 1, scope: !8)
!14 = !DILocation(line: 10, column: 21, scope: !8)
!15 = !{!16, !16, i64 0}
!16 = !{!"float", !17, i64 0}
!17 = !{!"omnipotent char", !18, i64 0}
!18 = !{!"Simple C++ TBAA"}
!19 = !DILocation(line: 5, column: 3, scope: !20, inlinedAt: !21)
!20 = distinct !DISubprogram(name: "poly<4>", scope: !1, file: !1, line: 2, type: !9, scopeLine: 2, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!21 = distinct !DILocation(line: 10, column: 30, scope: !8)
!22 = !DILocation(line: 5, column: 45, scope: !20, inlinedAt: !21)
!23 = !DILocation(line: 5, column: 58, scope: !20, inlinedAt: !21)
!24 = !DILocation(line: 5, column: 56, scope: !20, inlinedAt: !21)
!25 = !DILocation(line: 5, column: 26, scope: !20, inlinedAt: !21)
!26 = !DILocation(line: 5, column: 21, scope: !20, inlinedAt: !21)
!27 = distinct !{!27, !19, !28, !29, !30}
!28 = !DILocation(line: 5, column: 64, scope: !20, inlinedAt: !21)
!29 = !{!"llvm.loop.mustprogress"}
!30 = !{!"llvm.loop.unroll.disable"}
!31 = !DILocation(line: 1, column: 48, scope: !32, inlinedAt: !33)
!32 = distinct !DISubprogram(name: "square", scope: !1, file: !1, line: 1, type: !9, scopeLine: 1, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0)
!33 = distinct !DILocation(line: 10, column: 14, scope: !8)
!34 = !DILocation(line: 10, column: 28, scope: !8)
!35 = !DILocation(line: 10, column: 5, scope: !8)
!36 = !DILocation(line: 10, column: 12, scope: !8)
!37 = !DILocation(line: 9, column: 31, scope: !8)
!38 = distinct !{!38, !12, !39, !29, !30}
!39 = !DILocation(line: 10, column: 47, scope: !8)
