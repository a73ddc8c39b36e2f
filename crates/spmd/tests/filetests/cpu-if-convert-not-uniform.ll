; RUN: if-convert lanes=8 group=64
define void @__elinvar_entry(ptr %a, ptr %b) {
entry:
  %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
  %p = getelementptr i32, ptr %a, i32 %t
  %x = load i32, ptr %p, align 4
  %n = load i32, ptr %b, align 4
  %uniform = icmp eq i32 %n, 0
  br i1 %uniform, label %together, label %apart
together:
  %y = add i32 %x, 1
  br label %apart
apart:
  %r = phi i32 [ %x, %entry ], [ %y, %together ]
  %some = icmp eq i32 %r, 0
  br i1 %some, label %effect, label %end
effect:
  store i32 %t, ptr %p, align 4
  br label %end
end:
  ret void
}
declare i32 @__elinvar_thread_position_in_threadgroup(i32)
; CHECK: br i1 %uniform, label %together, label %apart
; CHECK: br i1 %some, label %effect, label %end
