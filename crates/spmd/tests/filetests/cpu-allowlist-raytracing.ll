; RUN: allowlist
define void @__elinvar_entry(ptr %a) {
  %v = call i32 @_ZNK5metal10raytracing11intersectorIJEE9intersectEv(ptr %a)
  store i32 %v, ptr %a, align 4
  ret void
}
declare i32 @_ZNK5metal10raytracing11intersectorIJEE9intersectEv(ptr)
; CHECK: error: ray tracing, here `intersector`
