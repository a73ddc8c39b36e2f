; RUN: mem2reg lanes=1 group=2
define void @__elinvar_entry(ptr %a) {
  br label %head
head:
  %i = phi i32 [ 0, %0 ], [ %next, %head ]
  %at = getelementptr i32, ptr %a, i32 %i
  store i32 %i, ptr %at, align 4
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, 9
  br i1 %more, label %head, label %end
end:
  ret void
}
; CHECK: define i32 @elinvar_threadgroups(ptr nocapture noundef readonly %launch, ptr noalias noundef align 64 %scratch, i64 noundef %begin, i64 noundef %end) nounwind null_pointer_is_valid "no-builtin-memcpy" "no-builtin-memset" {
; CHECK-NEXT: entry:
; CHECK-NEXT: %args = load ptr, ptr %launch
; CHECK-NEXT: %0 = getelementptr ptr, ptr %args, i64 0
; CHECK-NEXT: %1 = load ptr, ptr %0
; CHECK-NEXT: %2 = getelementptr i8, ptr %launch, i64 8
; CHECK-NEXT: %grid = load i32, ptr %2
; CHECK-NEXT: %3 = getelementptr i8, ptr %launch, i64 12
; CHECK-NEXT: %grid.1 = load i32, ptr %3
; CHECK-NEXT: %4 = getelementptr i8, ptr %launch, i64 16
; CHECK-NEXT: %grid.2 = load i32, ptr %4
; CHECK-NEXT: %5 = getelementptr i8, ptr %launch, i64 20
; CHECK-NEXT: %groups = load i32, ptr %5
; CHECK-NEXT: %6 = getelementptr i8, ptr %launch, i64 24
; CHECK-NEXT: %groups.1 = load i32, ptr %6
; CHECK-NEXT: %7 = getelementptr i8, ptr %launch, i64 28
; CHECK-NEXT: %groups.2 = load i32, ptr %7
; CHECK-NEXT: %8 = zext i32 %groups to i64
; CHECK-NEXT: %9 = zext i32 %groups.1 to i64
; CHECK-NEXT: %10 = urem i64 %begin, %8
; CHECK-NEXT: %11 = udiv i64 %begin, %8
; CHECK-NEXT: %12 = urem i64 %11, %9
; CHECK-NEXT: %13 = udiv i64 %11, %9
; CHECK-NEXT: %14 = trunc i64 %10 to i32
; CHECK-NEXT: %15 = trunc i64 %12 to i32
; CHECK-NEXT: %16 = trunc i64 %13 to i32
; CHECK-NEXT: br label %runs
; CHECK-NEXT: runs:
; CHECK-NEXT: %17 = phi i32 [ undef, %entry ], [ %59, %41 ]
; CHECK-NEXT: %group.z = phi i32 [ %16, %entry ], [ %49, %41 ]
; CHECK-NEXT: %group.y = phi i32 [ %15, %entry ], [ %51, %41 ]
; CHECK-NEXT: %run.x = phi i32 [ %14, %entry ], [ %50, %41 ]
; CHECK-NEXT: %group.index = phi i64 [ %begin, %entry ], [ %43, %41 ]
; CHECK-NEXT: %18 = icmp ult i64 %group.index, %end
; CHECK-NEXT: br i1 %18, label %run, label %exit
; CHECK-NEXT: run:
; CHECK-NEXT: %19 = sub nuw i64 %end, %group.index
; CHECK-NEXT: %20 = sub nuw i32 %groups, %run.x
; CHECK-NEXT: %21 = zext i32 %20 to i64
; CHECK-NEXT: %22 = icmp ult i64 %19, %21
; CHECK-NEXT: %23 = trunc i64 %19 to i32
; CHECK-NEXT: %24 = select i1 %22, i32 %23, i32 %20
; CHECK-NEXT: %25 = add nuw i32 %run.x, %24
; CHECK-NEXT: %26 = and i1 true, true
; CHECK-NEXT: br label %row
; CHECK-NEXT: row:
; CHECK-NEXT: %27 = phi i32 [ %17, %run ], [ %59, %38 ]
; CHECK-NEXT: %row.1 = phi i32 [ 0, %run ], [ %39, %38 ]
; CHECK-NEXT: br label %group
; CHECK-NEXT: group:
; CHECK-NEXT: %28 = phi i32 [ %27, %row ], [ %59, %35 ]
; CHECK-NEXT: %group.x = phi i32 [ %run.x, %row ], [ %36, %35 ]
; CHECK-NEXT: %29 = mul nuw i32 %group.x, 2
; CHECK-NEXT: %30 = sub nuw i32 %grid, %29
; CHECK-NEXT: %31 = icmp uge i32 %30, 2
; CHECK-NEXT: %32 = select i1 %31, i32 2, i32 %30
; CHECK-NEXT: %33 = and i1 %26, %31
; CHECK-NEXT: br label %34
; CHECK-NEXT: 34:
; CHECK-NEXT: br label %52
; CHECK-NEXT: 35:
; CHECK-NEXT: %36 = add nuw i32 %group.x, 1
; CHECK-NEXT: %37 = icmp ult i32 %36, %25
; CHECK-NEXT: br i1 %37, label %group, label %38
; CHECK-NEXT: 38:
; CHECK-NEXT: %39 = add nuw i32 %row.1, 1
; CHECK-NEXT: %40 = icmp ult i32 %39, 1
; CHECK-NEXT: br i1 %40, label %row, label %41
; CHECK-NEXT: 41:
; CHECK-NEXT: %42 = zext i32 %24 to i64
; CHECK-NEXT: %43 = add nuw i64 %group.index, %42
; CHECK-NEXT: %44 = icmp eq i32 %25, %groups
; CHECK-NEXT: %45 = add i32 %group.y, 1
; CHECK-NEXT: %46 = select i1 %44, i32 %45, i32 %group.y
; CHECK-NEXT: %47 = icmp eq i32 %46, %groups.1
; CHECK-NEXT: %48 = add i32 %group.z, 1
; CHECK-NEXT: %49 = select i1 %47, i32 %48, i32 %group.z
; CHECK-NEXT: %50 = select i1 %44, i32 0, i32 %25
; CHECK-NEXT: %51 = select i1 %47, i32 0, i32 %46
; CHECK-NEXT: br label %runs
; CHECK-NEXT: exit:
; CHECK-NEXT: ret i32 0
; CHECK-NEXT: 52:
; CHECK-NEXT: br label %53
; CHECK-NEXT: 53:
; CHECK-NEXT: %54 = phi i32 [ %28, %52 ], [ %59, %58 ]
; CHECK-NEXT: %step = phi i32 [ 0, %52 ], [ %60, %58 ]
; CHECK-NEXT: %55 = zext i32 %step to i64
; CHECK-NEXT: %56 = udiv i32 %step, 2
; CHECK-NEXT: %57 = urem i32 %step, 2
; CHECK-NEXT: br i1 %33, label %63, label %71
; CHECK-NEXT: 58:
; CHECK-NEXT: %59 = phi i32 [ %54, %71 ], [ %65, %69 ]
; CHECK-NEXT: %60 = add nuw nsw i32 %step, 1
; CHECK-NEXT: %61 = icmp ult i32 %60, 2
; CHECK-NEXT: br i1 %61, label %53, label %62
; CHECK-NEXT: 62:
; CHECK-NEXT: br label %35
; CHECK-NEXT: 63:
; CHECK-NEXT: br label %64
; CHECK-NEXT: 64:
; CHECK-NEXT: %65 = phi i32 [ 0, %63 ], [ %67, %70 ]
; CHECK-NEXT: %66 = getelementptr i32, ptr %1, i32 %65
; CHECK-NEXT: store i32 %65, ptr %66, align 4
; CHECK-NEXT: %67 = add i32 %65, 1
; CHECK-NEXT: %68 = icmp ult i32 %67, 9
; CHECK-NEXT: br i1 %68, label %70, label %69
; CHECK-NEXT: 69:
; CHECK-NEXT: br label %58
; CHECK-NEXT: 70:
; CHECK-NEXT: br label %64
; CHECK-NEXT: 71:
; CHECK-NEXT: %72 = insertelement <1 x i32> poison, i32 %57, i64 0
; CHECK-NEXT: %73 = shufflevector <1 x i32> %72, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %74 = insertelement <1 x i32> poison, i32 %32, i64 0
; CHECK-NEXT: %75 = shufflevector <1 x i32> %74, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %76 = icmp ult <1 x i32> %73, %75
; CHECK-NEXT: %77 = and <1 x i1> <i1 true>, %76
; CHECK-NEXT: %78 = bitcast <1 x i1> %77 to i1
; CHECK-NEXT: %79 = icmp eq i1 %78, true
; CHECK-NEXT: br i1 %79, label %63, label %58
; CHECK-NEXT: 80:
; CHECK-NEXT: unreachable
