; RUN: lower-bfloat
define void @__elinvar_entry(ptr %a, float %f) {
  %x = load half, ptr %a, align 2
  %y = fptrunc float %f to half
  %s = fadd half %x, %y
  %b = load bfloat, ptr %a, align 2
  %e = fpext bfloat %b to float
  %h = fptrunc float %e to half
  store half %h, ptr %a, align 2
  ret void
}
; CHECK: define void @__elinvar_entry(ptr %a, float %f) {
; CHECK-NEXT: %x = load half, ptr %a, align 2
; CHECK-NEXT: %y = fptrunc float %f to half
; CHECK-NEXT: %s = fadd half %x, %y
; CHECK-NEXT: %b = load i16, ptr %a, align 2
; CHECK-NEXT: %1 = zext i16 %b to i32
; CHECK-NEXT: %2 = shl i32 %1, 16
; CHECK-NEXT: %e = bitcast i32 %2 to float
; CHECK-NEXT: %h = fptrunc float %e to half
; CHECK-NEXT: store half %h, ptr %a, align 2
; CHECK-NEXT: ret void
