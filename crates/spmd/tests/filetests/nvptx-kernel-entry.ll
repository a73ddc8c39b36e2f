; RUN: kernel-entry target=nvptx
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  store i32 %t, ptr %a, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: define ptx_kernel void @kernel(ptr addrspace(1)
; CHECK-NEXT: addrspacecast
; CHECK: call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
; CHECK-NOT: @__elinvar_thread_position
