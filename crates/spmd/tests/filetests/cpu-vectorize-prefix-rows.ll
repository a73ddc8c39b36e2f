; RUN: vectorize lanes=8
; In the round of a reduction, the first lanes are active. An access of that width is within what the previous round has stored.

@partial = internal global [64 x float] undef, section "elinvar.threadgroup", align 4

define void @__elinvar_entry(ptr %n) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %k = zext i32 %t to i64
  %mine = getelementptr float, ptr @partial, i64 %k
  store float 1.0, ptr %mine, align 4
  call void @__elinvar_threadgroup_barrier(i32 2)
  %step = load i32, ptr %n, align 4
  %active = icmp ult i32 %t, %step
  br i1 %active, label %then, label %end

then:
  %v = load float, ptr %mine, align 4
  %d = fadd float %v, 1.0
  store float %d, ptr %mine, align 4
  br label %end

end:
  ret void
}

declare i32 @__elinvar_thread_position_in_threadgroup(i32)
declare void @__elinvar_threadgroup_barrier(i32)

; CHECK: load <2 x float>
; CHECK-NEXT: shufflevector <2 x float>
; CHECK: load <4 x float>
; CHECK: @llvm.masked.load
; CHECK: store <2 x float>
; CHECK: store <4 x float>
; CHECK: @llvm.masked.store
