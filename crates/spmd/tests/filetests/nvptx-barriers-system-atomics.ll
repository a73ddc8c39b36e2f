; RUN: barriers target=nvptx
define void @__elinvar_entry(ptr %shared, ptr %own) {
  %n = load i32, ptr %own, align 4
  %w = load i64, ptr %own, align 8
  %x = load float, ptr %own, align 4
  %v1 = atomicrmw volatile add ptr %shared, i32 %n monotonic, align 4
  %v2 = atomicrmw volatile umax ptr %shared, i64 %w monotonic, align 8
  %v3 = atomicrmw volatile fadd ptr %shared, float %x monotonic, align 4
  %v4 = cmpxchg weak volatile ptr %shared, i32 %n, i32 %v1 monotonic monotonic, align 4
  %v5 = atomicrmw volatile xchg ptr %shared, i32 %n acq_rel, align 4
  %v6 = load atomic volatile i32, ptr %shared acquire, align 4
  %v7 = atomicrmw add ptr %own, i32 %n monotonic, align 4
  %v8 = cmpxchg weak ptr %own, i32 %n, i32 %v1 monotonic monotonic, align 4
  %v9 = atomicrmw add ptr %own, i32 %n release, align 4
  ret void
}

; CHECK: %v1 = call i32 @llvm.nvvm.atomic.add.gen.i.sys.i32.p0(ptr %shared, i32 %n)
; CHECK-NEXT: %v2 = call i64 @elinvar.atomic.umax.i64(ptr %shared, i64 %w)
; CHECK-NEXT: %v3 = call float @llvm.nvvm.atomic.add.gen.f.sys.f32.p0(ptr %shared, float %x)
; CHECK-NEXT: %v4 = call { i32, i1 } @elinvar.atomic.cmpxchg.i32(ptr %shared, i32 %n, i32 %v1)
; CHECK-NEXT: call void @llvm.nvvm.membar.sys()
; CHECK-NEXT: %v5 = call i32 @llvm.nvvm.atomic.exch.gen.i.sys.i32.p0(ptr %shared, i32 %n)
; CHECK-NEXT: call void @llvm.nvvm.membar.sys()
; CHECK-NEXT: %v6 = load atomic volatile i32, ptr %shared monotonic
; CHECK-NEXT: call void @llvm.nvvm.membar.sys()
; CHECK-NEXT: %v7 = atomicrmw add ptr %own, i32 %n syncscope("device") monotonic
; CHECK-NEXT: %v8 = cmpxchg weak ptr %own, i32 %n, i32 %v1 syncscope("device") monotonic monotonic
; CHECK-NEXT: call void @llvm.nvvm.membar.gl()
; CHECK-NEXT: %v9 = atomicrmw add ptr %own, i32 %n syncscope("device") monotonic
