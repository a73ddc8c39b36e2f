; RUN: zero-shared-memory target=nvptx checks=16
@tile = internal global [64 x float] undef, section "elinvar.threadgroup", align 4

define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr float, ptr @tile, i32 %t
  store float 1.0, ptr %p, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  %v = load float, ptr %p, align 4
  store float %v, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %2 = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
; CHECK-NEXT: %3 = call i32 @__elinvar_thread_position_in_threadgroup(i32 2)
; CHECK-NEXT: %4 = call i32 @__elinvar_threads_per_threadgroup(i32 0)
; CHECK-NEXT: %5 = call i32 @__elinvar_threads_per_threadgroup(i32 1)
; CHECK-NEXT: %6 = call i32 @__elinvar_threads_per_threadgroup(i32 2)
; CHECK-NEXT: %7 = mul i32 %3, %5
; CHECK-NEXT: %8 = add i32 %7, %2
; CHECK-NEXT: %9 = mul i32 %8, %4
; CHECK-NEXT: %10 = add i32 %9, %1
; CHECK-NEXT: %11 = mul i32 %4, %5
; CHECK-NEXT: %12 = mul i32 %11, %6
; CHECK-NEXT: %13 = zext i32 %10 to i64
; CHECK-NEXT: %14 = zext i32 %12 to i64
; CHECK-NEXT: br label %70
; CHECK-NEXT: 15:
; CHECK-NEXT: store float 1.0, ptr %p, align 4
; CHECK-NEXT: br label %16
; CHECK-NEXT: 16:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: %17 = ptrtoint ptr %p to i64
; CHECK-NEXT: %18 = ptrtoint ptr @tile to i64
; CHECK-NEXT: %19 = sub i64 %17, %18
; CHECK-NEXT: %20 = icmp uge i64 256, 4
; CHECK-NEXT: %21 = sub i64 256, 4
; CHECK-NEXT: %22 = icmp ule i64 %19, %21
; CHECK-NEXT: %23 = and i1 %20, %22
; CHECK-NEXT: br i1 %23, label %40, label %44
; CHECK-NEXT: 24:
; CHECK-NEXT: %25 = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %26 = call i32 @__elinvar_threadgroup_position_in_grid(i32 0)
; CHECK-NEXT: %27 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 0)
; CHECK-NEXT: %28 = mul i32 %26, %27
; CHECK-NEXT: %29 = add i32 %28, %25
; CHECK-NEXT: %30 = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
; CHECK-NEXT: %31 = call i32 @__elinvar_threadgroup_position_in_grid(i32 1)
; CHECK-NEXT: %32 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 1)
; CHECK-NEXT: %33 = mul i32 %31, %32
; CHECK-NEXT: %34 = add i32 %33, %30
; CHECK-NEXT: %35 = call i32 @__elinvar_thread_position_in_threadgroup(i32 2)
; CHECK-NEXT: %36 = call i32 @__elinvar_threadgroup_position_in_grid(i32 2)
; CHECK-NEXT: %37 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 2)
; CHECK-NEXT: %38 = mul i32 %36, %37
; CHECK-NEXT: %39 = add i32 %38, %35
; CHECK-NEXT: call void @elinvar_record_fault(ptr %61, i32 0, i32 1, i32 %29, i32 %34, i32 %39, i64 %65, i64 256)
; CHECK-NEXT: br label %16
; CHECK-NEXT: 40:
; CHECK-NEXT: %41 = load float, ptr %p, align 4
; CHECK-NEXT: br label %42
; CHECK-NEXT: 42:
; CHECK-NEXT: %43 = phi float [ %41, %40 ], [ zeroinitializer, %44 ]
; CHECK-NEXT: %v = freeze float %43
; CHECK-NEXT: store float %v, ptr %a, align 4
; CHECK-NEXT: ret void
; CHECK-NEXT: 44:
; CHECK-NEXT: %45 = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %46 = call i32 @__elinvar_threadgroup_position_in_grid(i32 0)
; CHECK-NEXT: %47 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 0)
; CHECK-NEXT: %48 = mul i32 %46, %47
; CHECK-NEXT: %49 = add i32 %48, %45
; CHECK-NEXT: %50 = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
; CHECK-NEXT: %51 = call i32 @__elinvar_threadgroup_position_in_grid(i32 1)
; CHECK-NEXT: %52 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 1)
; CHECK-NEXT: %53 = mul i32 %51, %52
; CHECK-NEXT: %54 = add i32 %53, %50
; CHECK-NEXT: %55 = call i32 @__elinvar_thread_position_in_threadgroup(i32 2)
; CHECK-NEXT: %56 = call i32 @__elinvar_threadgroup_position_in_grid(i32 2)
; CHECK-NEXT: %57 = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 2)
; CHECK-NEXT: %58 = mul i32 %56, %57
; CHECK-NEXT: %59 = add i32 %58, %55
; CHECK-NEXT: call void @elinvar_record_fault(ptr %61, i32 1, i32 1, i32 %49, i32 %54, i32 %59, i64 %19, i64 256)
; CHECK-NEXT: br label %42
; CHECK-NEXT: 60:
; CHECK-NEXT: %61 = call ptr @__elinvar_fault_record()
; CHECK-NEXT: %62 = call i64 @__elinvar_argument_bytes(i32 0)
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: %p = getelementptr float, ptr @tile, i32 %t
; CHECK-NEXT: %63 = ptrtoint ptr %p to i64
; CHECK-NEXT: %64 = ptrtoint ptr @tile to i64
; CHECK-NEXT: %65 = sub i64 %63, %64
; CHECK-NEXT: %66 = icmp uge i64 256, 4
; CHECK-NEXT: %67 = sub i64 256, 4
; CHECK-NEXT: %68 = icmp ule i64 %65, %67
; CHECK-NEXT: %69 = and i1 %66, %68
; CHECK-NEXT: br i1 %69, label %15, label %24
; CHECK-NEXT: 70:
; CHECK-NEXT: %71 = phi i64 [ %13, %0 ], [ %75, %73 ]
; CHECK-NEXT: %72 = icmp ult i64 %71, 64
; CHECK-NEXT: br i1 %72, label %73, label %76
; CHECK-NEXT: 73:
; CHECK-NEXT: %74 = getelementptr i32, ptr @tile, i64 %71
; CHECK-NEXT: store i32 0, ptr %74
; CHECK-NEXT: %75 = add i64 %71, %14
; CHECK-NEXT: br label %70
; CHECK-NEXT: 76:
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: br label %60
