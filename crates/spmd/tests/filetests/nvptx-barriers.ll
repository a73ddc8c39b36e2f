; RUN: barriers target=nvptx
define void @__elinvar_entry(ptr %a) {
  call void @__elinvar_threadgroup_barrier(i32 2)
  fence acq_rel
  fence seq_cst
  fence syncscope("singlethread") seq_cst
  store i32 1, ptr %a, align 4
  ret void
}
declare void @__elinvar_threadgroup_barrier(i32)

; CHECK: call void @llvm.nvvm.barrier0()
; CHECK-NEXT: call void @llvm.nvvm.membar.gl()
; CHECK-NEXT: call void @llvm.nvvm.membar.sys()
; CHECK-NEXT: store i32 1
