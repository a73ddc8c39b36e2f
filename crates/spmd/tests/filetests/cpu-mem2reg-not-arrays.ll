; RUN: mem2reg lanes=1 group=2
define void @__elinvar_entry(ptr %a, ptr %b) {
  %array = alloca [4 x i32], align 4
  %i = load i64, ptr %b, align 8
  %k = and i64 %i, 3
  store i32 1, ptr %array, align 4
  %at = getelementptr i32, ptr %array, i64 %k
  %v = load i32, ptr %at, align 4
  store i32 %v, ptr %a, align 4
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
; CHECK-NEXT: %5 = getelementptr i8, ptr %launch, i64 12
; CHECK-NEXT: %grid.1 = load i32, ptr %5
; CHECK-NEXT: %6 = getelementptr i8, ptr %launch, i64 16
; CHECK-NEXT: %grid.2 = load i32, ptr %6
; CHECK-NEXT: %7 = getelementptr i8, ptr %launch, i64 20
; CHECK-NEXT: %groups = load i32, ptr %7
; CHECK-NEXT: %8 = getelementptr i8, ptr %launch, i64 24
; CHECK-NEXT: %groups.1 = load i32, ptr %8
; CHECK-NEXT: %9 = getelementptr i8, ptr %launch, i64 28
; CHECK-NEXT: %groups.2 = load i32, ptr %9
; CHECK-NEXT: %private = alloca [1 x [4 x i32]], align 64
; CHECK-NEXT: %10 = zext i32 %groups to i64
; CHECK-NEXT: %11 = zext i32 %groups.1 to i64
; CHECK-NEXT: %12 = urem i64 %begin, %10
; CHECK-NEXT: %13 = udiv i64 %begin, %10
; CHECK-NEXT: %14 = urem i64 %13, %11
; CHECK-NEXT: %15 = udiv i64 %13, %11
; CHECK-NEXT: %16 = trunc i64 %12 to i32
; CHECK-NEXT: %17 = trunc i64 %14 to i32
; CHECK-NEXT: %18 = trunc i64 %15 to i32
; CHECK-NEXT: br label %runs
; CHECK-NEXT: runs:
; CHECK-NEXT: %group.z = phi i32 [ %18, %entry ], [ %48, %40 ]
; CHECK-NEXT: %group.y = phi i32 [ %17, %entry ], [ %50, %40 ]
; CHECK-NEXT: %run.x = phi i32 [ %16, %entry ], [ %49, %40 ]
; CHECK-NEXT: %group.index = phi i64 [ %begin, %entry ], [ %42, %40 ]
; CHECK-NEXT: %19 = icmp ult i64 %group.index, %end
; CHECK-NEXT: br i1 %19, label %run, label %exit
; CHECK-NEXT: run:
; CHECK-NEXT: %20 = sub nuw i64 %end, %group.index
; CHECK-NEXT: %21 = sub nuw i32 %groups, %run.x
; CHECK-NEXT: %22 = zext i32 %21 to i64
; CHECK-NEXT: %23 = icmp ult i64 %20, %22
; CHECK-NEXT: %24 = trunc i64 %20 to i32
; CHECK-NEXT: %25 = select i1 %23, i32 %24, i32 %21
; CHECK-NEXT: %26 = add nuw i32 %run.x, %25
; CHECK-NEXT: %27 = and i1 true, true
; CHECK-NEXT: br label %row
; CHECK-NEXT: row:
; CHECK-NEXT: %row.1 = phi i32 [ 0, %run ], [ %38, %37 ]
; CHECK-NEXT: br label %group
; CHECK-NEXT: group:
; CHECK-NEXT: %group.x = phi i32 [ %run.x, %row ], [ %35, %34 ]
; CHECK-NEXT: %28 = mul nuw i32 %group.x, 2
; CHECK-NEXT: %29 = sub nuw i32 %grid, %28
; CHECK-NEXT: %30 = icmp uge i32 %29, 2
; CHECK-NEXT: %31 = select i1 %30, i32 2, i32 %29
; CHECK-NEXT: %32 = and i1 %27, %30
; CHECK-NEXT: br label %33
; CHECK-NEXT: 33:
; CHECK-NEXT: br label %51
; CHECK-NEXT: 34:
; CHECK-NEXT: %35 = add nuw i32 %group.x, 1
; CHECK-NEXT: %36 = icmp ult i32 %35, %26
; CHECK-NEXT: br i1 %36, label %group, label %37
; CHECK-NEXT: 37:
; CHECK-NEXT: %38 = add nuw i32 %row.1, 1
; CHECK-NEXT: %39 = icmp ult i32 %38, 1
; CHECK-NEXT: br i1 %39, label %row, label %40
; CHECK-NEXT: 40:
; CHECK-NEXT: %41 = zext i32 %25 to i64
; CHECK-NEXT: %42 = add nuw i64 %group.index, %41
; CHECK-NEXT: %43 = icmp eq i32 %26, %groups
; CHECK-NEXT: %44 = add i32 %group.y, 1
; CHECK-NEXT: %45 = select i1 %43, i32 %44, i32 %group.y
; CHECK-NEXT: %46 = icmp eq i32 %45, %groups.1
; CHECK-NEXT: %47 = add i32 %group.z, 1
; CHECK-NEXT: %48 = select i1 %46, i32 %47, i32 %group.z
; CHECK-NEXT: %49 = select i1 %43, i32 0, i32 %26
; CHECK-NEXT: %50 = select i1 %46, i32 0, i32 %45
; CHECK-NEXT: br label %runs
; CHECK-NEXT: exit:
; CHECK-NEXT: ret i32 0
; CHECK-NEXT: 51:
; CHECK-NEXT: br label %52
; CHECK-NEXT: 52:
; CHECK-NEXT: %step = phi i32 [ 0, %51 ], [ %58, %57 ]
; CHECK-NEXT: %53 = zext i32 %step to i64
; CHECK-NEXT: %54 = udiv i32 %step, 2
; CHECK-NEXT: %55 = urem i32 %step, 2
; CHECK-NEXT: %56 = getelementptr i8, ptr %private, i64 0
; CHECK-NEXT: br i1 %32, label %61, label %66
; CHECK-NEXT: 57:
; CHECK-NEXT: %58 = add nuw nsw i32 %step, 1
; CHECK-NEXT: %59 = icmp ult i32 %58, 2
; CHECK-NEXT: br i1 %59, label %52, label %60
; CHECK-NEXT: 60:
; CHECK-NEXT: br label %34
; CHECK-NEXT: 61:
; CHECK-NEXT: %62 = load i64, ptr %3, align 8
; CHECK-NEXT: %63 = and i64 %62, 3
; CHECK-NEXT: store i32 1, ptr %56, align 4
; CHECK-NEXT: %64 = getelementptr i32, ptr %56, i64 %63
; CHECK-NEXT: %65 = load i32, ptr %64, align 4
; CHECK-NEXT: store i32 %65, ptr %1, align 4
; CHECK-NEXT: br label %57
; CHECK-NEXT: 66:
; CHECK-NEXT: %67 = insertelement <1 x i32> poison, i32 %55, i64 0
; CHECK-NEXT: %68 = shufflevector <1 x i32> %67, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %69 = insertelement <1 x i32> poison, i32 %31, i64 0
; CHECK-NEXT: %70 = shufflevector <1 x i32> %69, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %71 = icmp ult <1 x i32> %68, %70
; CHECK-NEXT: %72 = and <1 x i1> splat (i1 true), %71
; CHECK-NEXT: %73 = bitcast <1 x i1> %72 to i1
; CHECK-NEXT: %74 = icmp eq i1 %73, true
; CHECK-NEXT: br i1 %74, label %61, label %57
; CHECK-NEXT: 75:
; CHECK-NEXT: unreachable
