; RUN: loop-versioning target=nvptx
; Loops that do not wrap, that are asked for as written, that count by one, and without loads.
define void @__elinvar_entry(ptr %x, ptr %out, i32 %first, i32 %end) {
entry:
  br label %no_wrap
no_wrap:
  %i = phi i32 [ %first, %entry ], [ %next, %no_wrap ]
  %at = getelementptr float, ptr %x, i32 %i
  %value = load float, ptr %at, align 4
  store float %value, ptr %out, align 4
  %next = add nuw i32 %i, 256
  %goes_on = icmp ult i32 %next, %end
  br i1 %goes_on, label %no_wrap, label %as_written
as_written:
  %i2 = phi i32 [ %first, %no_wrap ], [ %next2, %as_written ]
  %at2 = getelementptr float, ptr %x, i32 %i2
  %value2 = load float, ptr %at2, align 4
  store float %value2, ptr %out, align 4
  %next2 = add i32 %i2, 256
  %goes_on2 = icmp ult i32 %next2, %end
  br i1 %goes_on2, label %as_written, label %by_one, !llvm.loop !0
by_one:
  %i3 = phi i32 [ %first, %as_written ], [ %next3, %by_one ]
  %at3 = getelementptr float, ptr %x, i32 %i3
  %value3 = load float, ptr %at3, align 4
  store float %value3, ptr %out, align 4
  %next3 = add i32 %i3, 1
  %goes_on3 = icmp ult i32 %next3, %end
  br i1 %goes_on3, label %by_one, label %stores
stores:
  %i4 = phi i32 [ %first, %by_one ], [ %next4, %stores ]
  %at4 = getelementptr float, ptr %x, i32 %i4
  store float 0.0, ptr %at4, align 4
  %next4 = add i32 %i4, 256
  %goes_on4 = icmp ult i32 %next4, %end
  br i1 %goes_on4, label %stores, label %done
done:
  ret void
}
!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.unroll.disable"}

; CHECK-NOT: icmp ule i32 %end
