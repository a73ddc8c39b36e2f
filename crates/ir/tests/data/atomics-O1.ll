; ModuleID = 'atomics.cpp'
source_filename = "atomics.cpp"
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgcn-amd-amdhsa"

@__oclc_ABI_version = weak_odr hidden local_unnamed_addr addrspace(4) constant i32 500

; Function Attrs: mustprogress nofree norecurse nounwind willreturn memory(argmem: readwrite, inaccessiblemem: readwrite)
define hidden void @_Z3rmwPiPjPfi(ptr noundef %0, ptr nocapture noundef %1, ptr nocapture noundef %2, i32 noundef %3) local_unnamed_addr #0 {
  %5 = atomicrmw add ptr %0, i32 %3 monotonic, align 4
  %6 = atomicrmw sub ptr %0, i32 %3 acquire, align 4
  %7 = atomicrmw and ptr %0, i32 %3 release, align 4
  %8 = atomicrmw or ptr %0, i32 %3 acq_rel, align 4
  %9 = atomicrmw xor ptr %0, i32 %3 seq_cst, align 4
  %10 = atomicrmw nand ptr %0, i32 %3 seq_cst, align 4
  %11 = atomicrmw max ptr %0, i32 %3 monotonic, align 4
  %12 = atomicrmw min ptr %0, i32 %3 monotonic, align 4
  %13 = atomicrmw umax ptr %1, i32 3 monotonic, align 4
  %14 = atomicrmw umin ptr %1, i32 3 monotonic, align 4
  %15 = atomicrmw xchg ptr %0, i32 %3 seq_cst, align 4
  %16 = atomicrmw fadd ptr %2, float 1.000000e+00 monotonic, align 4
  %17 = atomicrmw fmax ptr %2, float 1.000000e+00 monotonic, align 4
  %18 = atomicrmw volatile add ptr %0, i32 %3 monotonic, align 4
  ret void
}

; Function Attrs: mustprogress nofree norecurse nounwind willreturn memory(argmem: readwrite)
define hidden noundef zeroext i1 @_Z4swapPiS_i(ptr nocapture noundef %0, ptr nocapture noundef %1, i32 noundef %2) local_unnamed_addr #1 {
  %4 = load i32, ptr %1, align 4
  %5 = cmpxchg weak ptr %0, i32 %4, i32 %2 acq_rel monotonic, align 4
  %6 = extractvalue { i32, i1 } %5, 1
  br i1 %6, label %9, label %7

7:                                                ; preds = %3
  %8 = extractvalue { i32, i1 } %5, 0
  store i32 %8, ptr %1, align 4
  br label %9

9:                                                ; preds = %7, %3
  ret i1 %6
}

; Function Attrs: mustprogress nofree norecurse nounwind willreturn memory(argmem: readwrite)
define hidden noundef zeroext i1 @_Z6strongPVlll(ptr nocapture noundef %0, i64 noundef %1, i64 noundef %2) local_unnamed_addr #1 {
  %4 = cmpxchg ptr %0, i64 %1, i64 %2 seq_cst seq_cst, align 8
  %5 = extractvalue { i64, i1 } %4, 1
  ret i1 %5
}

; Function Attrs: mustprogress nofree norecurse nounwind
define hidden noundef i32 @_Z5plainPiPfPVi(ptr nocapture noundef readonly %0, ptr nocapture noundef %1, ptr noundef %2) local_unnamed_addr #2 {
  fence seq_cst
  fence syncscope("singlethread") acquire
  %4 = load atomic i32, ptr %1 syncscope("workgroup-one-as") monotonic, align 4
  store atomic i32 %4, ptr %1 release, align 4
  store volatile i32 4, ptr %2, align 4, !tbaa !4
  %5 = load atomic i32, ptr %0 acquire, align 4
  %6 = load volatile i32, ptr %2, align 4, !tbaa !4
  %7 = add nsw i32 %6, %5
  ret i32 %7
}

attributes #0 = { mustprogress nofree norecurse nounwind willreturn memory(argmem: readwrite, inaccessiblemem: readwrite) "amdgpu-no-agpr" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-waves-per-eu"="4,10" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "uniform-work-group-size"="false" }
attributes #1 = { mustprogress nofree norecurse nounwind willreturn memory(argmem: readwrite) "amdgpu-no-agpr" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-waves-per-eu"="4,10" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "uniform-work-group-size"="false" }
attributes #2 = { mustprogress nofree norecurse nounwind "amdgpu-no-agpr" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-waves-per-eu"="4,10" "no-builtins" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "uniform-work-group-size"="false" }

!llvm.module.flags = !{!0, !1, !2}
!llvm.linker.options = !{}
!llvm.ident = !{!3}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!1 = !{i32 1, !"wchar_size", i32 4}
!2 = !{i32 8, !"PIC Level", i32 2}
!3 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!4 = !{!5, !5, i64 0}
!5 = !{!"int", !6, i64 0}
!6 = !{!"omnipotent char", !7, i64 0}
!7 = !{!"Simple C++ TBAA"}
