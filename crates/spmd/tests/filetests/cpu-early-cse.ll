; RUN: early-cse lanes=1 group=2
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
; CHECK-NEXT: %3 = getelementptr i8, ptr %launch, i64 20
; CHECK-NEXT: %groups = load i32, ptr %3
; CHECK-NEXT: %4 = zext i32 %groups to i64
; CHECK-NEXT: %5 = urem i64 %begin, %4
; CHECK-NEXT: %6 = trunc i64 %5 to i32
; CHECK-NEXT: br label %runs
; CHECK-NEXT: runs:
; CHECK-NEXT: %run.x = phi i32 [ %6, %entry ], [ %32, %28 ]
; CHECK-NEXT: %group.index = phi i64 [ %begin, %entry ], [ %30, %28 ]
; CHECK-NEXT: %7 = icmp ult i64 %group.index, %end
; CHECK-NEXT: br i1 %7, label %run, label %exit
; CHECK-NEXT: run:
; CHECK-NEXT: %8 = sub nuw i64 %end, %group.index
; CHECK-NEXT: %9 = sub nuw i32 %groups, %run.x
; CHECK-NEXT: %10 = zext i32 %9 to i64
; CHECK-NEXT: %11 = icmp ult i64 %8, %10
; CHECK-NEXT: %12 = trunc i64 %8 to i32
; CHECK-NEXT: %13 = select i1 %11, i32 %12, i32 %9
; CHECK-NEXT: %14 = add nuw i32 %run.x, %13
; CHECK-NEXT: %15 = and i1 true, true
; CHECK-NEXT: br label %row
; CHECK-NEXT: row:
; CHECK-NEXT: %row.1 = phi i32 [ 0, %run ], [ %26, %25 ]
; CHECK-NEXT: br label %group
; CHECK-NEXT: group:
; CHECK-NEXT: %group.x = phi i32 [ %run.x, %row ], [ %23, %22 ]
; CHECK-NEXT: %16 = mul nuw i32 %group.x, 2
; CHECK-NEXT: %17 = sub nuw i32 %grid, %16
; CHECK-NEXT: %18 = icmp uge i32 %17, 2
; CHECK-NEXT: %19 = select i1 %18, i32 2, i32 %17
; CHECK-NEXT: %20 = and i1 %15, %18
; CHECK-NEXT: br label %21
; CHECK-NEXT: 21:
; CHECK-NEXT: br label %33
; CHECK-NEXT: 22:
; CHECK-NEXT: %23 = add nuw i32 %group.x, 1
; CHECK-NEXT: %24 = icmp ult i32 %23, %14
; CHECK-NEXT: br i1 %24, label %group, label %25
; CHECK-NEXT: 25:
; CHECK-NEXT: %26 = add nuw i32 %row.1, 1
; CHECK-NEXT: %27 = icmp ult i32 %26, 1
; CHECK-NEXT: br i1 %27, label %row, label %28
; CHECK-NEXT: 28:
; CHECK-NEXT: %29 = zext i32 %13 to i64
; CHECK-NEXT: %30 = add nuw i64 %group.index, %29
; CHECK-NEXT: %31 = icmp eq i32 %14, %groups
; CHECK-NEXT: %32 = select i1 %31, i32 0, i32 %14
; CHECK-NEXT: br label %runs
; CHECK-NEXT: exit:
; CHECK-NEXT: ret i32 0
; CHECK-NEXT: 33:
; CHECK-NEXT: br label %34
; CHECK-NEXT: 34:
; CHECK-NEXT: %step = phi i32 [ 0, %33 ], [ %37, %36 ]
; CHECK-NEXT: %35 = urem i32 %step, 2
; CHECK-NEXT: br i1 %20, label %40, label %48
; CHECK-NEXT: 36:
; CHECK-NEXT: %37 = add nuw nsw i32 %step, 1
; CHECK-NEXT: %38 = icmp ult i32 %37, 2
; CHECK-NEXT: br i1 %38, label %34, label %39
; CHECK-NEXT: 39:
; CHECK-NEXT: br label %22
; CHECK-NEXT: 40:
; CHECK-NEXT: br label %41
; CHECK-NEXT: 41:
; CHECK-NEXT: %42 = phi i32 [ 0, %40 ], [ %44, %47 ]
; CHECK-NEXT: %43 = getelementptr i32, ptr %1, i32 %42
; CHECK-NEXT: store i32 %42, ptr %43, align 4
; CHECK-NEXT: %44 = add i32 %42, 1
; CHECK-NEXT: %45 = icmp ult i32 %44, 9
; CHECK-NEXT: br i1 %45, label %47, label %46
; CHECK-NEXT: 46:
; CHECK-NEXT: br label %36
; CHECK-NEXT: 47:
; CHECK-NEXT: br label %41
; CHECK-NEXT: 48:
; CHECK-NEXT: %49 = insertelement <1 x i32> poison, i32 %35, i64 0
; CHECK-NEXT: %50 = shufflevector <1 x i32> %49, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %51 = insertelement <1 x i32> poison, i32 %19, i64 0
; CHECK-NEXT: %52 = shufflevector <1 x i32> %51, <1 x i32> poison, <1 x i32> zeroinitializer
; CHECK-NEXT: %53 = icmp ult <1 x i32> %50, %52
; CHECK-NEXT: %54 = and <1 x i1> splat (i1 true), %53
; CHECK-NEXT: %55 = bitcast <1 x i1> %54 to i1
; CHECK-NEXT: %56 = icmp eq i1 %55, true
; CHECK-NEXT: br i1 %56, label %40, label %36
; CHECK-NEXT: 57:
; CHECK-NEXT: unreachable
