; RUN: bounds checks=0
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  store i32 1, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = call ptr @__elinvar_fault_record()
; CHECK-NEXT: %2 = call i64 @__elinvar_argument_bytes(i32 0)
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr i32, ptr %a, i32 %t
; CHECK-NEXT: %3 = ptrtoint ptr %p to i64
; CHECK-NEXT: %4 = ptrtoint ptr %a to i64
; CHECK-NEXT: %5 = sub i64 %3, %4
; CHECK-NEXT: %6 = icmp uge i64 %2, 4
; CHECK-NEXT: %7 = sub i64 %2, 4
; CHECK-NEXT: %8 = icmp ule i64 %5, %7
; CHECK-NEXT: %9 = and i1 %6, %8
; CHECK-NEXT: br i1 %9, label %10, label %12
; CHECK-NEXT: 10:
; CHECK-NEXT: store i32 1, ptr %p, align 4
; CHECK-NEXT: br label %11
; CHECK-NEXT: 11:
; CHECK-NEXT: ret void
; CHECK-NEXT: 12:
; CHECK-NEXT: %13 = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %14 = call i32 @__elinvar_threadgroup_position_in_grid(i32 0)
; CHECK-NEXT: %15 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 0)
; CHECK-NEXT: %16 = mul i32 %14, %15
; CHECK-NEXT: %17 = add i32 %16, %13
; CHECK-NEXT: %18 = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
; CHECK-NEXT: %19 = call i32 @__elinvar_threadgroup_position_in_grid(i32 1)
; CHECK-NEXT: %20 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 1)
; CHECK-NEXT: %21 = mul i32 %19, %20
; CHECK-NEXT: %22 = add i32 %21, %18
; CHECK-NEXT: %23 = call i32 @__elinvar_thread_position_in_threadgroup(i32 2)
; CHECK-NEXT: %24 = call i32 @__elinvar_threadgroup_position_in_grid(i32 2)
; CHECK-NEXT: %25 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 2)
; CHECK-NEXT: %26 = mul i32 %24, %25
; CHECK-NEXT: %27 = add i32 %26, %23
; CHECK-NEXT: call void @elinvar_record_fault(ptr %1, i32 0, i32 0, i32 %17, i32 %22, i32 %27, i64 %5, i64 %2)
; CHECK-NEXT: br label %11
