; RUN: loop-versioning target=nvptx
; `i += 256` may wrap; one value is used behind the loop by a phi, and one without.
define void @__elinvar_entry(ptr %x, ptr %out, i32 %first, i32 %end) {
entry:
  %begins = icmp ult i32 %first, %end
  br i1 %begins, label %loop, label %done
loop:
  %i = phi i32 [ %first, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %more, %loop ]
  %at = getelementptr float, ptr %x, i32 %i
  %value = load float, ptr %at, align 4
  %more = fadd float %sum, %value
  %next = add i32 %i, 256
  %goes_on = icmp ult i32 %next, %end
  br i1 %goes_on, label %loop, label %behind
behind:
  store float %value, ptr %out, align 4
  br label %done
done:
  %all = phi float [ 0.0, %entry ], [ %more, %behind ]
  store float %all, ptr %out, align 4
  ret void
}
; CHECK: error: malformed kernel module: after the pass `kernel-entry`: function `kernel`, block `entry`, `%first` of type `i32` is defined as `ptr`; function `kernel`, block `entry`, `%end` of type `i32` is defined as `ptr`
