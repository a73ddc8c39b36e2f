; RUN: simdgroup target=nvptx
define void @__elinvar_entry(ptr %a) {
  %r = call float @__elinvar_simd_sum_f32(float 1.0)
  store float %r, ptr %a, align 4
  ret void
}
declare float @__elinvar_simd_sum_f32(float)

; CHECK: define internal float @elinvar.simd_sum_f32(float %v, i32 %mask)
; CHECK: call float @elinvar.simd_sum_f32(float 1.0, i32
