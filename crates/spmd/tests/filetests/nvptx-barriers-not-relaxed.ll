; RUN: barriers target=nvptx
define void @__elinvar_entry(ptr %a) {
  %v = atomicrmw add ptr %a, i32 1 monotonic, align 4
  ret void
}

; CHECK-NOT: @llvm.nvvm.membar.gl()
; CHECK: %v = atomicrmw add ptr %a, i32 1 syncscope("device") monotonic, align 4
; CHECK-NEXT: ret void
