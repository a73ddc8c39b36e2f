; RUN: tensor-products
define void @__elinvar_entry(ptr %e, ptr %a) {
entry:
  %c = load i1, ptr %a, align 1
  br i1 %c, label %one, label %two
one:
  br label %two
two:
  %y = phi float [ 0.000000e+00, %entry ], [ 1.000000e+00, %one ]
  store float %y, ptr %e, align 4
  ret void
}
; CHECK: br i1 %c, label %one, label %two
; CHECK: %y = phi float [ 0.000000e+00, %entry ], [ 1.000000e+00, %one ]
