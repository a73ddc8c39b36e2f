; RUN: link lanes=1 group=1
define void @__elinvar_entry(ptr %a) {
  %v = call i32 @own(i32 3)
  store i32 %v, ptr %a, align 4
  ret void
}

define internal i32 @own(i32 %n) noinline {
entry:
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %m, %loop ]
  %m = add i32 %k, 1
  %c = icmp ult i32 %m, %n
  br i1 %c, label %loop, label %end
end:
  ret i32 %m
}

; CHECK: define i32 @elinvar_threadgroups
; CHECK: define internal i32 @own(i32 %n)
