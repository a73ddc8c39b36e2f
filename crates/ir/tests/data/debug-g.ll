; ModuleID = 'debug.cpp'
source_filename = "debug.cpp"
target datalayout = "e-m:e-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128-Fn32"
target triple = "aarch64-unknown-linux-gnu"

; Function Attrs: mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite)
define dso_local void @_Z6kernelPfPKfj(ptr nocapture noundef writeonly %0, ptr nocapture noundef readonly %1, i32 noundef %2) local_unnamed_addr #0 !dbg !10 {
    #dbg_value(ptr %0, !19, !DIExpression(), !24)
    #dbg_value(ptr %1, !20, !DIExpression(), !24)
    #dbg_value(i32 %2, !21, !DIExpression(), !24)
    #dbg_value(i32 0, !22, !DIExpression(), !25)
  %4 = icmp eq i32 %2, 0, !dbg !26
  br i1 %4, label %7, label %5, !dbg !28

5:                                                ; preds = %3
  %6 = zext i32 %2 to i64, !dbg !26
  br label %8, !dbg !28

7:                                                ; preds = %21, %3
  ret void, !dbg !29

8:                                                ; preds = %5, %21
  %9 = phi i64 [ 0, %5 ], [ %25, %21 ]
    #dbg_value(i64 %9, !22, !DIExpression(), !25)
  %10 = getelementptr inbounds float, ptr %1, i64 %9, !dbg !30
  %11 = load float, ptr %10, align 4, !dbg !30, !tbaa !31
    #dbg_value(float %11, !35, !DIExpression(), !40)
    #dbg_value(ptr %1, !42, !DIExpression(), !57)
    #dbg_value(float %11, !47, !DIExpression(), !57)
    #dbg_value(float 0.000000e+00, !48, !DIExpression(), !57)
    #dbg_value(i32 0, !49, !DIExpression(), !59)
  br label %12, !dbg !60

12:                                               ; preds = %12, %8
  %13 = phi i64 [ 0, %8 ], [ %19, %12 ]
  %14 = phi float [ 0.000000e+00, %8 ], [ %18, %12 ]
    #dbg_value(float %14, !48, !DIExpression(), !57)
    #dbg_value(i64 %13, !49, !DIExpression(), !59)
  %15 = fmul float %11, %14, !dbg !61
    #dbg_value(float %15, !52, !DIExpression(), !62)
  %16 = getelementptr inbounds float, ptr %1, i64 %13, !dbg !63
  %17 = load float, ptr %16, align 4, !dbg !63, !tbaa !31
  %18 = fadd float %15, %17, !dbg !64
    #dbg_value(float %18, !48, !DIExpression(), !57)
  %19 = add nuw nsw i64 %13, 1, !dbg !65
    #dbg_value(i64 %19, !49, !DIExpression(), !59)
  %20 = icmp eq i64 %19, 4, !dbg !66
  br i1 %20, label %21, label %12, !dbg !60, !llvm.loop !67

21:                                               ; preds = %12
  %22 = fmul float %11, %11, !dbg !71
  %23 = fadd float %22, %18, !dbg !72
  %24 = getelementptr inbounds float, ptr %0, i64 %9, !dbg !73
  store float %23, ptr %24, align 4, !dbg !74, !tbaa !31
  %25 = add nuw nsw i64 %9, 1, !dbg !75
    #dbg_value(i64 %25, !22, !DIExpression(), !25)
  %26 = icmp eq i64 %25, %6, !dbg !26
  br i1 %26, label %7, label %8, !dbg !28, !llvm.loop !76
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind memory(argmem: readwrite) "frame-pointer"="non-leaf" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="generic" "target-features"="+fp-armv8,+neon,+v8a,-fmv" }

!llvm.dbg.cu = !{!0}
!llvm.linker.options = !{}
!llvm.module.flags = !{!2, !3, !4, !5, !6, !7, !8}
!llvm.ident = !{!9}

!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: !1, producer: "Debian clang version 19.1.7 (3~deb12u1)", isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug, splitDebugInlining: false, nameTableKind: None)
!1 = !DIFile(filename: "debug.cpp", directory: "/src", checksumkind: CSK_MD5, checksum: "e708aad36cd7bbaf2c47b9d9d88d25bb")
!2 = !{i32 7, !"Dwarf Version", i32 5}
!3 = !{i32 2, !"Debug Info Version", i32 3}
!4 = !{i32 1, !"wchar_size", i32 4}
!5 = !{i32 8, !"PIC Level", i32 2}
!6 = !{i32 7, !"PIE Level", i32 2}
!7 = !{i32 7, !"frame-pointer", i32 1}
!8 = !{i32 7, !"debug-info-assignment-tracking", i1 true}
!9 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!10 = distinct !DISubprogram(name: "kernel", linkageName: "_Z6kernelPfPKfj", scope: !1, file: !1, line: 8, type: !11, scopeLine: 8, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !0, retainedNodes: !18)
!11 = !DISubroutineType(types: !12)
!12 = !{null, !13, !15, !17}
!13 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !14, size: 64)
!14 = !DIBasicType(name: "float", size: 32, encoding: DW_ATE_float)
!15 = !DIDerivedType(tag: DW_TAG_pointer_type, baseType: !16, size: 64)
!16 = !DIDerivedType(tag: DW_TAG_const_type, baseType: !14)
!17 = !DIBasicType(name: "unsigned int", size: 32, encoding: DW_ATE_unsigned)
!18 = !{!19, !20, !21, !22}
!19 = !DILocalVariable(name: "out", arg: 1, scope: !10, file: !1, line: 8, type: !13)
!20 = !DILocalVariable(name: "in", arg: 2, scope: !10, file: !1, line: 8, type: !15)
!21 = !DILocalVariable(name: "n", arg: 3, scope: !10, file: !1, line: 8, type: !17)
!22 = !DILocalVariable(name: "i", scope: !23, file: !1, line: 9, type: !17)
!23 = distinct !DILexicalBlock(scope: !10, file: !1, line: 9, column: 3)
!24 = !DILocation(line: 0, scope: !10)
!25 = !DILocation(line: 0, scope: !23)
!26 = !DILocation(line: 9, column: 26, scope: !27)
!27 = distinct !DILexicalBlock(scope: !23, file: !1, line: 9, column: 3)
!28 = !DILocation(line: 9, column: 3, scope: !23)
!29 = !DILocation(line: 11, column: 1, scope: !10)
!30 = !DILocation(line: 10, column: 21, scope: !27)
!31 = !{!32, !32, i64 0}
!32 = !{!"float", !33, i64 0}
!33 = !{!"omnipotent char", !34, i64 0}
!34 = !{!"Simple C++ TBAA"}
!35 = !DILocalVariable(name: "x", arg: 1, scope: !36, file: !1, line: 1, type: !14)
!36 = distinct !DISubprogram(name: "square", linkageName: "_ZL6squaref", scope: !1, file: !1, line: 1, type: !37, scopeLine: 1, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0, retainedNodes: !39)
!37 = !DISubroutineType(types: !38)
!38 = !{!14, !14}
!39 = !{!35}
!40 = !DILocation(line: 0, scope: !36, inlinedAt: !41)
!41 = distinct !DILocation(line: 10, column: 14, scope: !27)
!42 = !DILocalVariable(name: "c", arg: 1, scope: !43, file: !1, line: 2, type: !15)
!43 = distinct !DISubprogram(name: "poly<4>", linkageName: "_ZL4polyILi4EEfPKff", scope: !1, file: !1, line: 2, type: !44, scopeLine: 2, flags: DIFlagPrototyped | DIFlagAllCallsDescribed, spFlags: DISPFlagLocalToUnit | DISPFlagDefinition | DISPFlagOptimized, unit: !0, templateParams: !55, retainedNodes: !46)
!44 = !DISubroutineType(types: !45)
!45 = !{!14, !15, !14}
!46 = !{!42, !47, !48, !49, !52}
!47 = !DILocalVariable(name: "x", arg: 2, scope: !43, file: !1, line: 2, type: !14)
!48 = !DILocalVariable(name: "r", scope: !43, file: !1, line: 3, type: !14)
!49 = !DILocalVariable(name: "i", scope: !50, file: !1, line: 5, type: !51)
!50 = distinct !DILexicalBlock(scope: !43, file: !1, line: 5, column: 3)
!51 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!52 = !DILocalVariable(name: "t", scope: !53, file: !1, line: 5, type: !14)
!53 = distinct !DILexicalBlock(scope: !54, file: !1, line: 5, column: 31)
!54 = distinct !DILexicalBlock(scope: !50, file: !1, line: 5, column: 3)
!55 = !{!56}
!56 = !DITemplateValueParameter(name: "N", type: !51, value: i32 4)
!57 = !DILocation(line: 0, scope: !43, inlinedAt: !58)
!58 = distinct !DILocation(line: 10, column: 30, scope: !27)
!59 = !DILocation(line: 0, scope: !50, inlinedAt: !58)
!60 = !DILocation(line: 5, column: 3, scope: !50, inlinedAt: !58)
!61 = !DILocation(line: 5, column: 45, scope: !53, inlinedAt: !58)
!62 = !DILocation(line: 0, scope: !53, inlinedAt: !58)
!63 = !DILocation(line: 5, column: 58, scope: !53, inlinedAt: !58)
!64 = !DILocation(line: 5, column: 56, scope: !53, inlinedAt: !58)
!65 = !DILocation(line: 5, column: 26, scope: !54, inlinedAt: !58)
!66 = !DILocation(line: 5, column: 21, scope: !54, inlinedAt: !58)
!67 = distinct !{!67, !60, !68, !69, !70}
!68 = !DILocation(line: 5, column: 64, scope: !50, inlinedAt: !58)
!69 = !{!"llvm.loop.mustprogress"}
!70 = !{!"llvm.loop.unroll.disable"}
!71 = !DILocation(line: 1, column: 48, scope: !36, inlinedAt: !41)
!72 = !DILocation(line: 10, column: 28, scope: !27)
!73 = !DILocation(line: 10, column: 5, scope: !27)
!74 = !DILocation(line: 10, column: 12, scope: !27)
!75 = !DILocation(line: 9, column: 31, scope: !27)
!76 = distinct !{!76, !28, !77, !69, !70}
!77 = !DILocation(line: 10, column: 47, scope: !23)
