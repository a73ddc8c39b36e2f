; RUN: promote-copies
%v = type { i32, i32, i32, i32 }
%w = type { float, float }
define void @__elinvar_entry(ptr %a, ptr %b) {
  %next = alloca %v, align 16
  %other = alloca %v, align 16
  %array = alloca [2 x %w], align 8
  call void @llvm.lifetime.start.p0(i64 16, ptr %next)
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %next, ptr align 16 %b, i64 16, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %other, ptr align 16 %next, i64 16, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %a, ptr align 16 %other, i64 16, i1 false)
  call void @llvm.lifetime.end.p0(i64 16, ptr %next)
  %low = getelementptr inbounds i8, ptr %array, i64 8
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %low, ptr align 4 %b, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %array, ptr align 4 %a, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 8 %low, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %b, ptr align 8 %array, i64 8, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.lifetime.start.p0(i64, ptr)
declare void @llvm.lifetime.end.p0(i64, ptr)
; CHECK: define void @__elinvar_entry(ptr %a, ptr %b) {
; CHECK-NEXT: %1 = load <4 x i32>, ptr %b, align 16
; CHECK-NEXT: store <4 x i32> %1, ptr %a, align 8
; CHECK-NEXT: %2 = load <2 x i32>, ptr %b, align 4
; CHECK-NEXT: %3 = load <2 x i32>, ptr %a, align 4
; CHECK-NEXT: store <2 x i32> %2, ptr %a, align 4
; CHECK-NEXT: store <2 x i32> %3, ptr %b, align 4
; CHECK-NEXT: ret void
