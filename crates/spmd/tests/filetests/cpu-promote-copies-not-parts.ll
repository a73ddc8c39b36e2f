; RUN: promote-copies
%v = type { i32, i32 }
define void @__elinvar_entry(ptr %a, ptr %b) {
  %part = alloca %v, align 4
  %bytes = alloca %v, align 4
  %kept = alloca %v, align 4
  %overlap = alloca [2 x %v], align 4
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %part, ptr align 4 %b, i64 8, i1 false)
  %x = load i32, ptr %part, align 4
  store i32 %x, ptr %a, align 4
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %bytes, ptr align 2 %b, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %bytes, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %kept, ptr align 4 %part, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %kept, i64 8, i1 false)
  %half = getelementptr inbounds i8, ptr %overlap, i64 4
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %overlap, ptr align 4 %b, i64 8, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %half, i64 8, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
; CHECK: define void @__elinvar_entry(ptr %a, ptr %b) {
; CHECK-NEXT: %part = alloca %v, align 4
; CHECK-NEXT: %bytes = alloca %v, align 4
; CHECK-NEXT: %kept = alloca %v, align 4
; CHECK-NEXT: %overlap = alloca [2 x %v], align 4
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %part, ptr align 4 %b, i64 8, i1 false)
; CHECK-NEXT: %x = load i32, ptr %part, align 4
; CHECK-NEXT: store i32 %x, ptr %a, align 4
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %bytes, ptr align 2 %b, i64 8, i1 false)
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %bytes, i64 8, i1 false)
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %kept, ptr align 4 %part, i64 8, i1 false)
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %kept, i64 8, i1 false)
; CHECK-NEXT: %half = getelementptr inbounds i8, ptr %overlap, i64 4
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %overlap, ptr align 4 %b, i64 8, i1 false)
; CHECK-NEXT: call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %half, i64 8, i1 false)
; CHECK-NEXT: ret void
