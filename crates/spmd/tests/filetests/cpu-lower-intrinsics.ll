; RUN: lower-intrinsics
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %x = alloca [4 x i32], align 4
  call void @llvm.lifetime.start.p0(i64 16, ptr %x)
  call void @__elinvar_threadgroup_barrier(i32 2)
  store i32 %t, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)
declare void @llvm.lifetime.start.p0(i64, ptr)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %x = alloca [4 x i32], align 4
; CHECK-NEXT: %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
; CHECK-NEXT: call void @__elinvar_threadgroup_barrier(i32 2)
; CHECK-NEXT: br label %1
; CHECK-NEXT: 1:
; CHECK-NEXT: store i32 %t, ptr %a, align 4
; CHECK-NEXT: ret void
