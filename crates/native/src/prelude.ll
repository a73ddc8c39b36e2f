; Conversions that the x86-64 code generator calls where the processor lacks the instruction, and
; that no library is certain to have. All round to nearest, ties to even, and keep infinities and NaN.

define weak hidden bfloat @__truncsfbf2(float %value) nounwind {
  %bits = bitcast float %value to i32
  %magnitude = and i32 %bits, 2147483647
  %nan = icmp ugt i32 %magnitude, 2139095040
  %high = lshr i32 %bits, 16
  %quiet = or i32 %high, 64
  %odd = and i32 %high, 1
  %bias = add i32 %odd, 32767
  %rounded = add i32 %bits, %bias
  %top = lshr i32 %rounded, 16
  %wide = select i1 %nan, i32 %quiet, i32 %top
  %narrow = trunc i32 %wide to i16
  %result = bitcast i16 %narrow to bfloat
  ret bfloat %result
}

; A half's exponent and fraction, moved to a float's place, are the value times 2^-112.
define weak hidden float @__extendhfsf2(half %value) nounwind {
  %narrow = bitcast half %value to i16
  %bits = zext i16 %narrow to i32
  %sign.half = and i32 %bits, 32768
  %sign = shl i32 %sign.half, 16
  %magnitude = and i32 %bits, 32767
  %moved = shl i32 %magnitude, 13
  %small = bitcast i32 %moved to float
  %scaled = fmul float %small, 0x46F0000000000000
  %finite = bitcast float %scaled to i32
  %special = or i32 %moved, 2139095040
  %quiet = or i32 %special, 4194304
  %nan = icmp ugt i32 %magnitude, 31744
  %endless = icmp eq i32 %magnitude, 31744
  %number = select i1 %endless, i32 %special, i32 %finite
  %unsigned = select i1 %nan, i32 %quiet, i32 %number
  %signed = or i32 %unsigned, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

; Below 2^-14 the sum with 0.5, whose last place is 2^-24 as a subnormal half's, does the rounding.
define weak hidden half @__truncsfhf2(float %value) nounwind {
  %bits = bitcast float %value to i32
  %high = lshr i32 %bits, 16
  %sign = and i32 %high, 32768
  %magnitude = and i32 %bits, 2147483647
  %positive = bitcast i32 %magnitude to float
  %sum = fadd float %positive, 5.0e-1
  %sum.bits = bitcast float %sum to i32
  %subnormal = sub i32 %sum.bits, 1056964608
  %fraction = lshr i32 %magnitude, 13
  %odd = and i32 %fraction, 1
  %rebiased = sub i32 %magnitude, 939520001
  %biased = add i32 %rebiased, %odd
  %normal = lshr i32 %biased, 13
  %payload = and i32 %fraction, 1023
  %quiet = or i32 %payload, 32256
  %tiny = icmp ult i32 %magnitude, 947912704
  %large = icmp uge i32 %magnitude, 1199566848
  %nan = icmp ugt i32 %magnitude, 2139095040
  %finite = select i1 %tiny, i32 %subnormal, i32 %normal
  %number = select i1 %large, i32 31744, i32 %finite
  %unsigned = select i1 %nan, i32 %quiet, i32 %number
  %signed = or i32 %unsigned, %sign
  %narrow = trunc i32 %signed to i16
  %result = bitcast i16 %narrow to half
  ret half %result
}
