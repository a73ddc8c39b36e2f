; RUN: early-cse lanes=1 group=2
define void @__elinvar_entry(ptr %a, ptr %b) {
  %v = load i32, ptr %a, align 4
  store i32 %v, ptr %b, align 4
  %w = load i32, ptr %a, align 4
  %sum = add i32 %v, %w
  store i32 %sum, ptr %b, align 4
  ret void
}
; CHECK: define i32 @elinvar_threadgroups(ptr nocapture noundef readonly %launch, ptr noalias noundef align 64 %scratch, i64 noundef %begin, i64 noundef %end) nounwind null_pointer_is_valid "no-builtin-memcpy" "no-builtin-memset" {
; CHECK-NEXT: entry:
; CHECK-NEXT: %args = load ptr, ptr %launch
; CHECK-NEXT: %0 = getelementptr ptr, ptr %args, i64 0
; CHECK-NEXT: %1 = load ptr, ptr %0
; CHECK-NEXT: %2 = getelementptr ptr, ptr %args, i64 1
; CHECK-NEXT: %3 = load ptr, ptr %2
; CHECK-NEXT: %4 = getelementptr i8, ptr %launch, i64 8
; CHECK-NEXT: %grid = load i32, ptr %4
; CHECK-NEXT: %5 = getelementptr i8, ptr %launch, i64 20
; CHECK-NEXT: %groups = load i32, ptr %5
; CHECK-NEXT: %6 = zext i32 %groups to i64
; CHECK-NEXT: %7 = urem i64 %begin, %6
; CHECK-NEXT: %8 = trunc i64 %7 to i32
; CHECK-NEXT: br label %runs
; CHECK-NEXT: runs:
; CHECK-NEXT: %run.x = phi i32 [ %8, %entry ], [ %34, %30 ]
; CHECK-NEXT: %group.index = phi i64 [ %begin, %entry ], [ %32, %30 ]
; CHECK-NEXT: %9 = icmp ult i64 %group.index, %end
; CHECK-NEXT: br i1 %9, label %run, label %exit
; CHECK-NEXT: run:
; CHECK-NEXT: %10 = sub nuw i64 %end, %group.index
; CHECK-NEXT: %11 = sub nuw i32 %groups, %run.x
; CHECK-NEXT: %12 = zext i32 %11 to i64
; CHECK-NEXT: %13 = icmp ult i64 %10, %12
; CHECK-NEXT: %14 = trunc i64 %10 to i32
; CHECK-NEXT: %15 = select i1 %13, i32 %14, i32 %11
; CHECK-NEXT: %16 = add nuw i32 %run.x, %15
; CHECK-NEXT: %17 = and i1 true, true
; CHECK-NEXT: br label %row
; CHECK-NEXT: row:
; CHECK-NEXT: %row.1 = phi i32 [ 0, %run ], [ %28, %27 ]
; CHECK-NEXT: br label %group
; CHECK-NEXT: group:
; CHECK-NEXT: %group.x = phi i32 [ %run.x, %row ], [ %25, %24 ]
; CHECK-NEXT: %18 = mul nuw i32 %group.x, 2
; CHECK-NEXT: %19 = sub nuw i32 %grid, %18
; CHECK-NEXT: %20 = icmp uge i32 %19, 2
; CHECK-NEXT: %21 = select i1 %20, i32 2, i32 %19
; CHECK-NEXT: %22 = and i1 %17, %20
; CHECK-NEXT: br label %23
; CHECK-NEXT: 23:
; CHECK-NEXT: br label %35
; CHECK-NEXT: 24:
; CHECK-NEXT: %25 = add nuw i32 %group.x, 1
; CHECK-NEXT: %26 = icmp ult i32 %25, %16
; CHECK-NEXT: br i1 %26, label %group, label %27
; CHECK-NEXT: 27:
; CHECK-NEXT: %28 = add nuw i32 %row.1, 1
; CHECK-NEXT: %29 = icmp ult i32 %28, 1
; CHECK-NEXT: br i1 %29, label %row, label %30
; CHECK-NEXT: 30:
; CHECK-NEXT: %31 = zext i32 %15 to i64
; CHECK-NEXT: %32 = add nuw i64 %group.index, %31
; CHECK-NEXT: %33 = icmp eq i32 %16, %groups
; CHECK-NEXT: %34 = select i1 %33, i32 0, i32 %16
; CHECK-NEXT: br label %runs
; CHECK-NEXT: exit:
; CHECK-NEXT: ret i32 0
; CHECK-NEXT: 35:
; CHECK-NEXT: br label %36
; CHECK-NEXT: 36:
; CHECK-NEXT: %step = phi i32 [ 0, %35 ], [ %39, %38 ]
; CHECK-NEXT: %37 = urem i32 %step, 2
; CHECK-NEXT: br i1 %22, label %42, label %46
; CHECK-NEXT: 38:
; CHECK-NEXT: %39 = add nuw nsw i32 %step, 1
; CHECK-NEXT: %40 = icmp ult i32 %39, 2
; CHECK-NEXT: br i1 %40, label %36, label %41
; CHECK-NEXT: 41:
; CHECK-NEXT: br label %24
; CHECK-NEXT: 42:
; CHECK-NEXT: %43 = load i32, ptr %1, align 4
; CHECK-NEXT: store i32 %43, ptr %3, align 4
; CHECK-NEXT: %44 = load i32, ptr %1, align 4
; CHECK-NEXT: %45 = add i32 %43, %44
; CHECK-NEXT: store i32 %45, ptr %3, align 4
; CHECK-NEXT: br label %38
; CHECK-NEXT: 46:
; CHECK-NEXT: %47 = insertelement <1 x i32> poison, i32 %37, i64 0
; CHECK-NEXT: %48 = shufflevector <1 x i32> %47, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %49 = insertelement <1 x i32> poison, i32 %21, i64 0
; CHECK-NEXT: %50 = shufflevector <1 x i32> %49, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %51 = icmp ult <1 x i32> %48, %50
; CHECK-NEXT: %52 = and <1 x i1> splat (i1 true), %51
; CHECK-NEXT: %53 = bitcast <1 x i1> %52 to i1
; CHECK-NEXT: %54 = icmp eq i1 %53, true
; CHECK-NEXT: br i1 %54, label %42, label %38
; CHECK-NEXT: 55:
; CHECK-NEXT: unreachable
