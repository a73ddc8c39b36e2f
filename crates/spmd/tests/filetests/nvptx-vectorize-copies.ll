; RUN: vectorize-copies target=nvptx
define void @__elinvar_entry(ptr %a, ptr %b) {
  call void @llvm.memcpy.p0.p0.i64(ptr align 4 %a, ptr align 4 %b, i64 32, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)

; CHECK: define internal void @elinvar.copy.32.4.4
; CHECK: load <4 x i32>
; CHECK: call void @elinvar.copy.32.4.4(
