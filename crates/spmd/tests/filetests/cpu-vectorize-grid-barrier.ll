; RUN: vectorize lanes=8 group=8
; One iteration, whose value is in scratch memory: the function returns, and is called again.
@tile = internal global [8 x i32] undef, section "elinvar.threadgroup", align 4

define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %k = zext i32 %t to i64
  %p = getelementptr i32, ptr %a, i64 %k
  %v = load i32, ptr %p, align 4
  %mine = getelementptr i32, ptr @tile, i64 %k
  store i32 %v, ptr %mine, align 4
  call void @__elinvar_grid_barrier()
  %other = load i32, ptr %mine, align 4
  %sum = add i32 %v, %other
  store i32 %sum, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_grid_barrier()
; CHECK: %0 = getelementptr i8, ptr %scratch, i64 128
; CHECK: %resume = load i32
; CHECK-NEXT: switch i32 %resume
; CHECK-NEXT: i32 1, label
; CHECK-NOT: alloca [8 x i32]
; CHECK: getelementptr i8, ptr %scratch, i64 0
; CHECK-NEXT: store i32 1
; CHECK-NEXT: getelementptr i8, ptr %scratch, i64 4
; CHECK-NEXT: store i32 1
; CHECK-NEXT: ret i32 -2
