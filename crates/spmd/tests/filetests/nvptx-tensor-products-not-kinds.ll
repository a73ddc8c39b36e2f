; RUN: tensor-products target=nvptx wgmma
define void @__elinvar_entry(ptr %e, ptr %a) {
entry:
  %has = call i1 @__elinvar_has_tensor_product(ptr %a, i64 64, ptr %a, i64 64, i32 67438593)
  br i1 %has, label %better, label %code
better:
  call void @__elinvar_tensor_product(ptr %e, ptr %a, i64 64, ptr %a, i64 64, i32 64, i32 8, i32 16, i32 67438593)
  br label %end
code:
  %x = load float, ptr %a, align 4
  br label %end
end:
  %y = phi float [ 0.000000e+00, %better ], [ %x, %code ]
  store float %y, ptr %e, align 4
  ret void
}
declare zeroext i1 @__elinvar_has_tensor_product(ptr, i64, ptr, i64, i32)
declare void @__elinvar_tensor_product(ptr, ptr, i64, ptr, i64, i32, i32, i32, i32)
; CHECK: entry:
; CHECK-NEXT: br label %code
; CHECK: %x = load float, ptr %a, align 4
; CHECK: %y = phi float [ %x, %code ]
; CHECK-NOT: @__elinvar_tensor_product(ptr %e
