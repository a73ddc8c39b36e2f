; RUN: simdgroup target=nvptx
; %shared is entered from %entry as well, so %near does not dominate it, and it precedes %join in the order: its lanes leave %near without a
; vote on the way past %join. The lanes of %entry vote on %join.
define void @__elinvar_entry(ptr %a) {
entry:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  %x = load i32, ptr %p, align 4
  %few = icmp ult i32 %x, 9
  br i1 %few, label %near, label %shared
near:
  switch i32 %x, label %join [
    i32 0, label %shared
    i32 1, label %side
  ]
side:
  store i32 1, ptr %p, align 4
  br label %join
join:
  %m = call i32 @__elinvar_simd_max_i32(i32 %x)
  store i32 %m, ptr %p, align 4
  br label %end
shared:
  store i32 2, ptr %p, align 4
  br label %end
end:
  %s = call i32 @__elinvar_simd_sum_i32(i32 %x)
  store i32 %s, ptr %p, align 4
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare i32 @__elinvar_simd_max_i32(i32)
declare i32 @__elinvar_simd_sum_i32(i32)

; CHECK: %9 = phi i32 [ %130, %129 ], [ %132, %131 ]
; CHECK: call i32 @elinvar.simd_max_i32(i32 %x, i32 %9)
; CHECK: store i32 2, ptr %p, align 4
; CHECK-NEXT: br label %133
; CHECK: call i32 @elinvar.simd_sum_i32(i32 %x, i32 %110)
; CHECK: %130 = call i32 @llvm.nvvm.vote.ballot.sync(i32 %110, i1 true)
; CHECK: %132 = call i32 @llvm.nvvm.vote.ballot.sync(i32 %110, i1 true)
; CHECK: %134 = call i32 @llvm.nvvm.vote.ballot.sync(i32 %110, i1 false)
; CHECK-NEXT: br label %end
