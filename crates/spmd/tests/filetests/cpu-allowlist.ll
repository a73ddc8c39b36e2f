; RUN: allowlist
define void @__elinvar_entry(ptr %a) {
  %v = call i32 @getpid()
  store i32 %v, ptr %a, align 4
  ret void
}
declare i32 @getpid()
; CHECK: error: a call of `getpid`, which is declared but not defined
