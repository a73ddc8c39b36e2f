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
; CHECK-NEXT: %group.z = phi i32 [ %16, %entry ], [ %46, %38 ]
; CHECK-NEXT: %group.y = phi i32 [ %15, %entry ], [ %48, %38 ]
; CHECK-NEXT: %run.x = phi i32 [ %14, %entry ], [ %47, %38 ]
; CHECK-NEXT: %group.index = phi i64 [ %begin, %entry ], [ %40, %38 ]
; CHECK-NEXT: %17 = icmp ult i64 %group.index, %end
; CHECK-NEXT: br i1 %17, label %run, label %exit
; CHECK-NEXT: run:
; CHECK-NEXT: %18 = sub nuw i64 %end, %group.index
; CHECK-NEXT: %19 = sub nuw i32 %groups, %run.x
; CHECK-NEXT: %20 = zext i32 %19 to i64
; CHECK-NEXT: %21 = icmp ult i64 %18, %20
; CHECK-NEXT: %22 = trunc i64 %18 to i32
; CHECK-NEXT: %23 = select i1 %21, i32 %22, i32 %19
; CHECK-NEXT: %24 = add nuw i32 %run.x, %23
; CHECK-NEXT: %25 = and i1 true, true
; CHECK-NEXT: br label %row
; CHECK-NEXT: row:
; CHECK-NEXT: %row.1 = phi i32 [ 0, %run ], [ %36, %35 ]
; CHECK-NEXT: br label %group
; CHECK-NEXT: group:
; CHECK-NEXT: %group.x = phi i32 [ %run.x, %row ], [ %33, %32 ]
; CHECK-NEXT: %26 = mul nuw i32 %group.x, 2
; CHECK-NEXT: %27 = sub nuw i32 %grid, %26
; CHECK-NEXT: %28 = icmp uge i32 %27, 2
; CHECK-NEXT: %29 = select i1 %28, i32 2, i32 %27
; CHECK-NEXT: %30 = and i1 %25, %28
; CHECK-NEXT: br label %31
; CHECK-NEXT: 31:
; CHECK-NEXT: br label %49
; CHECK-NEXT: 32:
; CHECK-NEXT: %33 = add nuw i32 %group.x, 1
; CHECK-NEXT: %34 = icmp ult i32 %33, %24
; CHECK-NEXT: br i1 %34, label %group, label %35
; CHECK-NEXT: 35:
; CHECK-NEXT: %36 = add nuw i32 %row.1, 1
; CHECK-NEXT: %37 = icmp ult i32 %36, 1
; CHECK-NEXT: br i1 %37, label %row, label %38
; CHECK-NEXT: 38:
; CHECK-NEXT: %39 = zext i32 %23 to i64
; CHECK-NEXT: %40 = add nuw i64 %group.index, %39
; CHECK-NEXT: %41 = icmp eq i32 %24, %groups
; CHECK-NEXT: %42 = add i32 %group.y, 1
; CHECK-NEXT: %43 = select i1 %41, i32 %42, i32 %group.y
; CHECK-NEXT: %44 = icmp eq i32 %43, %groups.1
; CHECK-NEXT: %45 = add i32 %group.z, 1
; CHECK-NEXT: %46 = select i1 %44, i32 %45, i32 %group.z
; CHECK-NEXT: %47 = select i1 %41, i32 0, i32 %24
; CHECK-NEXT: %48 = select i1 %44, i32 0, i32 %43
; CHECK-NEXT: br label %runs
; CHECK-NEXT: exit:
; CHECK-NEXT: ret i32 0
; CHECK-NEXT: 49:
; CHECK-NEXT: br label %50
; CHECK-NEXT: 50:
; CHECK-NEXT: %step = phi i32 [ 0, %49 ], [ %55, %54 ]
; CHECK-NEXT: %51 = zext i32 %step to i64
; CHECK-NEXT: %52 = udiv i32 %step, 2
; CHECK-NEXT: %53 = urem i32 %step, 2
; CHECK-NEXT: br i1 %30, label %58, label %66
; CHECK-NEXT: 54:
; CHECK-NEXT: %55 = add nuw nsw i32 %step, 1
; CHECK-NEXT: %56 = icmp ult i32 %55, 2
; CHECK-NEXT: br i1 %56, label %50, label %57
; CHECK-NEXT: 57:
; CHECK-NEXT: br label %32
; CHECK-NEXT: 58:
; CHECK-NEXT: br label %59
; CHECK-NEXT: 59:
; CHECK-NEXT: %60 = phi i32 [ 0, %58 ], [ %62, %65 ]
; CHECK-NEXT: %61 = getelementptr i32, ptr %1, i32 %60
; CHECK-NEXT: store i32 %60, ptr %61, align 4
; CHECK-NEXT: %62 = add i32 %60, 1
; CHECK-NEXT: %63 = icmp ult i32 %62, 9
; CHECK-NEXT: br i1 %63, label %65, label %64
; CHECK-NEXT: 64:
; CHECK-NEXT: br label %54
; CHECK-NEXT: 65:
; CHECK-NEXT: br label %59
; CHECK-NEXT: 66:
; CHECK-NEXT: %67 = insertelement <1 x i32> poison, i32 %53, i64 0
; CHECK-NEXT: %68 = shufflevector <1 x i32> %67, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %69 = insertelement <1 x i32> poison, i32 %29, i64 0
; CHECK-NEXT: %70 = shufflevector <1 x i32> %69, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %71 = icmp ult <1 x i32> %68, %70
; CHECK-NEXT: %72 = and <1 x i1> splat (i1 true), %71
; CHECK-NEXT: %73 = bitcast <1 x i1> %72 to i1
; CHECK-NEXT: %74 = icmp eq i1 %73, true
; CHECK-NEXT: br i1 %74, label %58, label %54
; CHECK-NEXT: 75:
; CHECK-NEXT: unreachable
