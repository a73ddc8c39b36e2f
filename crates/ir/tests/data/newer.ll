; What LLVM 20 and 21 add, and spellings that clang writes rarely.
source_filename = "newer \22quoted\22.cpp"
target datalayout = "e-m:e-i64:64"
target triple = "x86_64-unknown-linux-gnu"

%0 = type { i32, %"struct.a b" }
%"struct.a b" = type <{ i8, i32 }>
%opaque = type opaque

$"odd name" = comdat nodeduplicate

@0 = private unnamed_addr constant [3 x i8] c"\00a\FF", align 1
@"odd name" = linkonce_odr hidden global %0 { i32 1, %"struct.a b" <{ i8 2, i32 3 }> }, comdat, align 8
@in = internal global ptr getelementptr inbounds nuw (i8, ptr @"odd name", i64 4), section "a b", partition "p", comdat($"odd name"), align 8
@distance = global i64 ptrtoint (ptr @in to i64), align 8, !meta !0 #2
@v = external local_unnamed_addr addrspace(3) externally_initialized global [0 x float], align 4
@vt = constant { [2 x ptr] } zeroinitializer
@last = global ptr getelementptr inbounds inrange(-16, 8) ({ [2 x ptr] }, ptr @vt, i32 0, i32 0, i32 1)

; Function Attrs: nounwind
define fastcc range(i32 0, 8) i32 @newer(ptr dead_on_unwind noalias writable writeonly sret(%0) align 8 captures(none) initializes((0, 4), (8, 12)) %out, ptr captures(address, read_provenance) %"a\22b", i64 range(i64 -4, 5) %0) local_unnamed_addr #0 section "text" align 16 !prof !1 {
  %2 = getelementptr nusw nuw i8, ptr %out, i64 %0
  %3 = trunc nuw nsw i64 %0 to i32
  %4 = icmp samesign ult i32 %3, 7
  br i1 %4, label %"block 1", label %7

"block 1":                                        ; preds = %1
  %5 = uitofp nneg i32 %3 to float
  %6 = fptrunc nnan double 0x3FB99999A0000000 to float
  call void @llvm.assume(i1 true) [ "align"(ptr %out, i64 16), "nonnull"(ptr %2) ]
  br label %7

7:                                                ; preds = %"block 1", %1
  %8 = phi nsz float [ 0.000000e+00, %1 ], [ %6, %"block 1" ]
  %9 = zext nneg i32 %3 to i64
  %10 = or disjoint i64 %9, 1
  %11 = sdiv exact i64 %10, 3
  %12 = insertelement <4 x float> splat (float 1.000000e+00), float %8, i64 %11
  %13 = shufflevector <4 x float> %12, <4 x float> poison, <2 x i32> <i32 1, i32 undef>
  store <2 x float> %13, ptr %out, align 8, !nontemporal !0
  %14 = alloca i8, i64 %0, align 16, addrspace(5)
  %15 = select i1 %4, i32 -2147483648, i32 %3
  switch i32 %15, label %16 [
  ], !prof !1

16:                                               ; preds = %7
  %17 = musttail call fastcc range(i32 0, 8) i32 @newer(ptr dead_on_unwind noalias writable writeonly sret(%0) align 8 captures(none) initializes((0, 4), (8, 12)) %out, ptr captures(address, read_provenance) %"a\22b", i64 range(i64 -4, 5) 2) #1
  ret i32 %17
}

declare !meta !0 void @llvm.assume(i1 noundef) #1

attributes #0 = { nounwind uwtable(sync) memory(argmem: readwrite, errnomem: write) allocsize(0,1) "target-cpu"="x86-64" }
attributes #1 = { nocallback nofree nosync nounwind willreturn memory(inaccessiblemem: write) }
attributes #2 = { "bss-section"="b" }

!named = !{!0, !1}
!empty = !{}

!0 = !{i32 1}
!1 = distinct !{!1, !"branch ; weights", i32 1, float 2.000000e+00, ptr @0, null}
