; RUN: vectorize group=8
define void @__elinvar_entry(ptr %a) {
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  %v = load i32, ptr %p, align 4
  %c = icmp eq i32 %v, 3
  br i1 %c, label %in, label %out
in:
  store i32 1, ptr %p, align 4
  br label %out
out:
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)

; CHECK: icmp eq <8 x i32>
; CHECK: store <8 x i32>
; CHECK: call void @llvm.masked.store.v8i32
