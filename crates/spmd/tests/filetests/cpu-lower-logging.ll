; RUN: lower-logging
@format = private constant [6 x i8] c"%d %f\00"
@types = private constant [5 x i8] c"i1f1\00"
@none = private constant [1 x i8] zeroinitializer
define void @__elinvar_entry(ptr %a) {
  %i = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %w = zext i32 %i to i64
  %at = getelementptr i64, ptr %a, i64 %w
  %value = load i64, ptr %at, align 8
  call void (ptr, ptr, ptr, ptr, i32, i32, i32, i32, ...) @__elinvar_log(ptr @format, ptr @types, ptr @none, ptr @none, i32 2, i32 %i, i32 0, i32 0, i64 %value, i64 7)
  call void (ptr, ptr, ptr, ptr, i32, i32, i32, i32, ...) @__elinvar_log(ptr @format, ptr @types, ptr @none, ptr @none, i32 3, i32 %i, i32 0, i32 0, i64 7, i64 %value)
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_log(ptr, ptr, ptr, ptr, i32, i32, i32, i32, ...)
; CHECK: define void @__elinvar_entry(ptr %a) {
; CHECK-NEXT: %1 = call ptr @__elinvar_log_ring()
; CHECK-NEXT: %2 = call i32 @__elinvar_log_kernel()
; CHECK-NEXT: %i = call
; CHECK-NEXT: %w = zext
; CHECK-NEXT: %at = getelementptr
; CHECK-NEXT: %value = load
; CHECK-NEXT: call void @elinvar_log_2(ptr %1, i32 %2, i64 281474976710656, i32 %i, i32 0, i32 0, i64 %value, i64 7)
; CHECK-NEXT: call void @elinvar_log_2(ptr %1, i32 %2, i64 281479271677952, i32 %i, i32 0, i32 0, i64 7, i64 %value)
; CHECK-NEXT: ret void
; CHECK: define internal void @elinvar_log_2(
; CHECK: load atomic i64
; CHECK: load atomic i64
; CHECK: atomicrmw add
; CHECK: atomicrmw sub
; CHECK: atomicrmw add
; CHECK: atomicrmw add
; CHECK: store atomic i64
; CHECK-NEXT: ret void
