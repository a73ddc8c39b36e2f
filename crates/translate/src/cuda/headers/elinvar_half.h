// __half and __nv_bfloat16: built-in types of the parser, with CUDA's functions.
#pragma clang force_cuda_host_device begin

inline __half __hadd(__half a, __half b) { return a + b; }
inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) { return a + b; }
inline __half __hadd_rn(__half a, __half b) { return a + b; }
inline __nv_bfloat16 __hadd_rn(__nv_bfloat16 a, __nv_bfloat16 b) { return a + b; }
inline __half2 __hadd2(__half2 a, __half2 b) { return { (__half)(a.x + b.x), (__half)(a.y + b.y) }; }
inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x + b.x), (__nv_bfloat16)(a.y + b.y) }; }
inline __half2 operator+(__half2 a, __half2 b) { return { (__half)(a.x + b.x), (__half)(a.y + b.y) }; }
inline __nv_bfloat162 operator+(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x + b.x), (__nv_bfloat16)(a.y + b.y) }; }
inline __half2& operator+=(__half2& a, __half2 b) { a = a + b; return a; }
inline __nv_bfloat162& operator+=(__nv_bfloat162& a, __nv_bfloat162 b) { a = a + b; return a; }
inline __half __hsub(__half a, __half b) { return a - b; }
inline __nv_bfloat16 __hsub(__nv_bfloat16 a, __nv_bfloat16 b) { return a - b; }
inline __half __hsub_rn(__half a, __half b) { return a - b; }
inline __nv_bfloat16 __hsub_rn(__nv_bfloat16 a, __nv_bfloat16 b) { return a - b; }
inline __half2 __hsub2(__half2 a, __half2 b) { return { (__half)(a.x - b.x), (__half)(a.y - b.y) }; }
inline __nv_bfloat162 __hsub2(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x - b.x), (__nv_bfloat16)(a.y - b.y) }; }
inline __half2 operator-(__half2 a, __half2 b) { return { (__half)(a.x - b.x), (__half)(a.y - b.y) }; }
inline __nv_bfloat162 operator-(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x - b.x), (__nv_bfloat16)(a.y - b.y) }; }
inline __half2& operator-=(__half2& a, __half2 b) { a = a - b; return a; }
inline __nv_bfloat162& operator-=(__nv_bfloat162& a, __nv_bfloat162 b) { a = a - b; return a; }
inline __half __hmul(__half a, __half b) { return a * b; }
inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) { return a * b; }
inline __half __hmul_rn(__half a, __half b) { return a * b; }
inline __nv_bfloat16 __hmul_rn(__nv_bfloat16 a, __nv_bfloat16 b) { return a * b; }
inline __half2 __hmul2(__half2 a, __half2 b) { return { (__half)(a.x * b.x), (__half)(a.y * b.y) }; }
inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x * b.x), (__nv_bfloat16)(a.y * b.y) }; }
inline __half2 operator*(__half2 a, __half2 b) { return { (__half)(a.x * b.x), (__half)(a.y * b.y) }; }
inline __nv_bfloat162 operator*(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x * b.x), (__nv_bfloat16)(a.y * b.y) }; }
inline __half2& operator*=(__half2& a, __half2 b) { a = a * b; return a; }
inline __nv_bfloat162& operator*=(__nv_bfloat162& a, __nv_bfloat162 b) { a = a * b; return a; }
inline __half __hdiv(__half a, __half b) { return a / b; }
inline __nv_bfloat16 __hdiv(__nv_bfloat16 a, __nv_bfloat16 b) { return a / b; }
inline __half __hdiv_rn(__half a, __half b) { return a / b; }
inline __nv_bfloat16 __hdiv_rn(__nv_bfloat16 a, __nv_bfloat16 b) { return a / b; }
inline __half2 __h2div(__half2 a, __half2 b) { return { (__half)(a.x / b.x), (__half)(a.y / b.y) }; }
inline __nv_bfloat162 __h2div(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x / b.x), (__nv_bfloat16)(a.y / b.y) }; }
inline __half2 operator/(__half2 a, __half2 b) { return { (__half)(a.x / b.x), (__half)(a.y / b.y) }; }
inline __nv_bfloat162 operator/(__nv_bfloat162 a, __nv_bfloat162 b) { return { (__nv_bfloat16)(a.x / b.x), (__nv_bfloat16)(a.y / b.y) }; }
inline __half2& operator/=(__half2& a, __half2 b) { a = a / b; return a; }
inline __nv_bfloat162& operator/=(__nv_bfloat162& a, __nv_bfloat162 b) { a = a / b; return a; }
inline __half __hneg(__half a) { return -a; }
inline __nv_bfloat16 __hneg(__nv_bfloat16 a) { return -a; }
inline __half2 __hneg2(__half2 a) { return { -a.x, -a.y }; }
inline __nv_bfloat162 __hneg2(__nv_bfloat162 a) { return { -a.x, -a.y }; }
inline __half __habs(__half a) { return (__half)fabsf((float)a); }
inline __nv_bfloat16 __habs(__nv_bfloat16 a) { return (__nv_bfloat16)fabsf((float)a); }
inline __half2 __habs2(__half2 a) { return { __habs(a.x), __habs(a.y) }; }
inline __nv_bfloat162 __habs2(__nv_bfloat162 a) { return { __habs(a.x), __habs(a.y) }; }
inline __half __hfma(__half a, __half b, __half c) { return (__half)fmaf((float)a, (float)b, (float)c); }
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) { return (__nv_bfloat16)fmaf((float)a, (float)b, (float)c); }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; }
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) { return { __hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y) }; }
inline bool __heq(__half a, __half b) { return a == b; }
inline bool __heq(__nv_bfloat16 a, __nv_bfloat16 b) { return a == b; }
inline bool __hne(__half a, __half b) { return a != b; }
inline bool __hne(__nv_bfloat16 a, __nv_bfloat16 b) { return a != b; }
inline bool __hlt(__half a, __half b) { return a < b; }
inline bool __hlt(__nv_bfloat16 a, __nv_bfloat16 b) { return a < b; }
inline bool __hle(__half a, __half b) { return a <= b; }
inline bool __hle(__nv_bfloat16 a, __nv_bfloat16 b) { return a <= b; }
inline bool __hgt(__half a, __half b) { return a > b; }
inline bool __hgt(__nv_bfloat16 a, __nv_bfloat16 b) { return a > b; }
inline bool __hge(__half a, __half b) { return a >= b; }
inline bool __hge(__nv_bfloat16 a, __nv_bfloat16 b) { return a >= b; }
inline bool __hisnan(__half a) { return a != a; }
inline bool __hisnan(__nv_bfloat16 a) { return a != a; }
inline int __hisinf(__half a) { return isinf((float)a); }
inline int __hisinf(__nv_bfloat16 a) { return isinf((float)a); }
inline __half __hmax(__half a, __half b) { return (__half)fmaxf((float)a, (float)b); }
inline __nv_bfloat16 __hmax(__nv_bfloat16 a, __nv_bfloat16 b) { return (__nv_bfloat16)fmaxf((float)a, (float)b); }
inline __half __hmin(__half a, __half b) { return (__half)fminf((float)a, (float)b); }
inline __nv_bfloat16 __hmin(__nv_bfloat16 a, __nv_bfloat16 b) { return (__nv_bfloat16)fminf((float)a, (float)b); }
inline __half __hmax_nan(__half a, __half b) { return __hisnan(a) ? a : (__hisnan(b) ? b : __hmax(a, b)); }
inline __nv_bfloat16 __hmax_nan(__nv_bfloat16 a, __nv_bfloat16 b) { return __hisnan(a) ? a : (__hisnan(b) ? b : __hmax(a, b)); }
inline __half __hmin_nan(__half a, __half b) { return __hisnan(a) ? a : (__hisnan(b) ? b : __hmin(a, b)); }
inline __nv_bfloat16 __hmin_nan(__nv_bfloat16 a, __nv_bfloat16 b) { return __hisnan(a) ? a : (__hisnan(b) ? b : __hmin(a, b)); }
inline __half2 __hmax2(__half2 a, __half2 b) { return { __hmax(a.x, b.x), __hmax(a.y, b.y) }; }
inline __nv_bfloat162 __hmax2(__nv_bfloat162 a, __nv_bfloat162 b) { return { __hmax(a.x, b.x), __hmax(a.y, b.y) }; }
inline __half2 __hmin2(__half2 a, __half2 b) { return { __hmin(a.x, b.x), __hmin(a.y, b.y) }; }
inline __nv_bfloat162 __hmin2(__nv_bfloat162 a, __nv_bfloat162 b) { return { __hmin(a.x, b.x), __hmin(a.y, b.y) }; }
inline __half hsqrt(__half a) { return (__half)sqrtf((float)a); }
inline __nv_bfloat16 hsqrt(__nv_bfloat16 a) { return (__nv_bfloat16)sqrtf((float)a); }
inline __half2 h2sqrt(__half2 a) { return { hsqrt(a.x), hsqrt(a.y) }; }
inline __nv_bfloat162 h2sqrt(__nv_bfloat162 a) { return { hsqrt(a.x), hsqrt(a.y) }; }
inline __half hrsqrt(__half a) { return (__half)rsqrtf((float)a); }
inline __nv_bfloat16 hrsqrt(__nv_bfloat16 a) { return (__nv_bfloat16)rsqrtf((float)a); }
inline __half2 h2rsqrt(__half2 a) { return { hrsqrt(a.x), hrsqrt(a.y) }; }
inline __nv_bfloat162 h2rsqrt(__nv_bfloat162 a) { return { hrsqrt(a.x), hrsqrt(a.y) }; }
inline __half hsin(__half a) { return (__half)sinf((float)a); }
inline __nv_bfloat16 hsin(__nv_bfloat16 a) { return (__nv_bfloat16)sinf((float)a); }
inline __half2 h2sin(__half2 a) { return { hsin(a.x), hsin(a.y) }; }
inline __nv_bfloat162 h2sin(__nv_bfloat162 a) { return { hsin(a.x), hsin(a.y) }; }
inline __half hcos(__half a) { return (__half)cosf((float)a); }
inline __nv_bfloat16 hcos(__nv_bfloat16 a) { return (__nv_bfloat16)cosf((float)a); }
inline __half2 h2cos(__half2 a) { return { hcos(a.x), hcos(a.y) }; }
inline __nv_bfloat162 h2cos(__nv_bfloat162 a) { return { hcos(a.x), hcos(a.y) }; }
inline __half hexp(__half a) { return (__half)expf((float)a); }
inline __nv_bfloat16 hexp(__nv_bfloat16 a) { return (__nv_bfloat16)expf((float)a); }
inline __half2 h2exp(__half2 a) { return { hexp(a.x), hexp(a.y) }; }
inline __nv_bfloat162 h2exp(__nv_bfloat162 a) { return { hexp(a.x), hexp(a.y) }; }
inline __half hexp2(__half a) { return (__half)exp2f((float)a); }
inline __nv_bfloat16 hexp2(__nv_bfloat16 a) { return (__nv_bfloat16)exp2f((float)a); }
inline __half2 h2exp2(__half2 a) { return { hexp2(a.x), hexp2(a.y) }; }
inline __nv_bfloat162 h2exp2(__nv_bfloat162 a) { return { hexp2(a.x), hexp2(a.y) }; }
inline __half hexp10(__half a) { return (__half)exp10f((float)a); }
inline __nv_bfloat16 hexp10(__nv_bfloat16 a) { return (__nv_bfloat16)exp10f((float)a); }
inline __half2 h2exp10(__half2 a) { return { hexp10(a.x), hexp10(a.y) }; }
inline __nv_bfloat162 h2exp10(__nv_bfloat162 a) { return { hexp10(a.x), hexp10(a.y) }; }
inline __half hlog(__half a) { return (__half)logf((float)a); }
inline __nv_bfloat16 hlog(__nv_bfloat16 a) { return (__nv_bfloat16)logf((float)a); }
inline __half2 h2log(__half2 a) { return { hlog(a.x), hlog(a.y) }; }
inline __nv_bfloat162 h2log(__nv_bfloat162 a) { return { hlog(a.x), hlog(a.y) }; }
inline __half hlog2(__half a) { return (__half)log2f((float)a); }
inline __nv_bfloat16 hlog2(__nv_bfloat16 a) { return (__nv_bfloat16)log2f((float)a); }
inline __half2 h2log2(__half2 a) { return { hlog2(a.x), hlog2(a.y) }; }
inline __nv_bfloat162 h2log2(__nv_bfloat162 a) { return { hlog2(a.x), hlog2(a.y) }; }
inline __half hlog10(__half a) { return (__half)log10f((float)a); }
inline __nv_bfloat16 hlog10(__nv_bfloat16 a) { return (__nv_bfloat16)log10f((float)a); }
inline __half2 h2log10(__half2 a) { return { hlog10(a.x), hlog10(a.y) }; }
inline __nv_bfloat162 h2log10(__nv_bfloat162 a) { return { hlog10(a.x), hlog10(a.y) }; }
inline __half hfloor(__half a) { return (__half)floorf((float)a); }
inline __nv_bfloat16 hfloor(__nv_bfloat16 a) { return (__nv_bfloat16)floorf((float)a); }
inline __half2 h2floor(__half2 a) { return { hfloor(a.x), hfloor(a.y) }; }
inline __nv_bfloat162 h2floor(__nv_bfloat162 a) { return { hfloor(a.x), hfloor(a.y) }; }
inline __half hceil(__half a) { return (__half)ceilf((float)a); }
inline __nv_bfloat16 hceil(__nv_bfloat16 a) { return (__nv_bfloat16)ceilf((float)a); }
inline __half2 h2ceil(__half2 a) { return { hceil(a.x), hceil(a.y) }; }
inline __nv_bfloat162 h2ceil(__nv_bfloat162 a) { return { hceil(a.x), hceil(a.y) }; }
inline __half htrunc(__half a) { return (__half)truncf((float)a); }
inline __nv_bfloat16 htrunc(__nv_bfloat16 a) { return (__nv_bfloat16)truncf((float)a); }
inline __half2 h2trunc(__half2 a) { return { htrunc(a.x), htrunc(a.y) }; }
inline __nv_bfloat162 h2trunc(__nv_bfloat162 a) { return { htrunc(a.x), htrunc(a.y) }; }
inline __half hrint(__half a) { return (__half)rintf((float)a); }
inline __nv_bfloat16 hrint(__nv_bfloat16 a) { return (__nv_bfloat16)rintf((float)a); }
inline __half2 h2rint(__half2 a) { return { hrint(a.x), hrint(a.y) }; }
inline __nv_bfloat162 h2rint(__nv_bfloat162 a) { return { hrint(a.x), hrint(a.y) }; }
inline __half htanh(__half a) { return (__half)tanhf((float)a); }
inline __nv_bfloat16 htanh(__nv_bfloat16 a) { return (__nv_bfloat16)tanhf((float)a); }
inline __half2 h2tanh(__half2 a) { return { htanh(a.x), htanh(a.y) }; }
inline __nv_bfloat162 h2tanh(__nv_bfloat162 a) { return { htanh(a.x), htanh(a.y) }; }
inline __half hrcp(__half a) { return (__half)(1.0f / (float)a); }
inline __nv_bfloat16 hrcp(__nv_bfloat16 a) { return (__nv_bfloat16)(1.0f / (float)a); }
inline __half __float2half(float a) { return (__half)a; }
inline __nv_bfloat16 __float2bfloat16(float a) { return (__nv_bfloat16)a; }
inline __half __float2half_rn(float a) { return (__half)a; }
inline __nv_bfloat16 __float2bfloat16_rn(float a) { return (__nv_bfloat16)a; }
inline float __half2float(__half a) { return (float)a; }
inline float __bfloat162float(__nv_bfloat16 a) { return (float)a; }
inline __half __int2half_rn(int a) { return (__half)a; }
inline __nv_bfloat16 __int2bfloat16_rn(int a) { return (__nv_bfloat16)a; }
inline __half __uint2half_rn(unsigned int a) { return (__half)(float)a; }
inline __nv_bfloat16 __uint2bfloat16_rn(unsigned int a) { return (__nv_bfloat16)(float)a; }
inline int __half2int_rz(__half a) { return (int)(float)a; }
inline int __bfloat162int_rz(__nv_bfloat16 a) { return (int)(float)a; }
inline int __half2int_rn(__half a) { return (int)rintf((float)a); }
inline int __bfloat162int_rn(__nv_bfloat16 a) { return (int)rintf((float)a); }
inline __half2 __half2half2(__half a) { return { a, a }; }
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 a) { return { a, a }; }
inline __half2 __halves2half2(__half a, __half b) { return { a, b }; }
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return { a, b }; }
inline __half2 make_half2(__half a, __half b) { return { a, b }; }
inline __nv_bfloat162 make_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) { return { a, b }; }
inline __half __low2half(__half2 a) { return a.x; }
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 a) { return a.y; }
inline __half2 __low2half2(__half2 a) { return { a.x, a.x }; }
inline __nv_bfloat162 __low2bfloat162(__nv_bfloat162 a) { return { a.x, a.x }; }
inline __half2 __high2half2(__half2 a) { return { a.y, a.y }; }
inline __nv_bfloat162 __high2bfloat162(__nv_bfloat162 a) { return { a.y, a.y }; }
inline float __low2float(__half2 a) { return (float)a.x; }
inline float __low2float(__nv_bfloat162 a) { return (float)a.x; }
inline float __high2float(__half2 a) { return (float)a.y; }
inline float __high2float(__nv_bfloat162 a) { return (float)a.y; }
inline __half2 __floats2half2_rn(float a, float b) { return { (__half)a, (__half)b }; }
inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return { (__nv_bfloat16)a, (__nv_bfloat16)b }; }
inline __half2 __float2half2_rn(float a) { return { (__half)a, (__half)a }; }
inline __nv_bfloat162 __float2bfloat162_rn(float a) { return { (__nv_bfloat16)a, (__nv_bfloat16)a }; }
inline __half2 __float22half2_rn(float2 a) { return { (__half)a.x, (__half)a.y }; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 a) { return { (__nv_bfloat16)a.x, (__nv_bfloat16)a.y }; }
inline float2 __half22float2(__half2 a) { return { (float)a.x, (float)a.y }; }
inline float2 __bfloat1622float2(__nv_bfloat162 a) { return { (float)a.x, (float)a.y }; }
inline __half __double2half(double a) { return (__half)a; } inline __nv_bfloat16 __double2bfloat16(double a) { return (__nv_bfloat16)a; }
short __half_as_short(__half); unsigned short __half_as_ushort(__half); __half __short_as_half(short); __half __ushort_as_half(unsigned short);
short __bfloat16_as_short(__nv_bfloat16); unsigned short __bfloat16_as_ushort(__nv_bfloat16); __nv_bfloat16 __short_as_bfloat16(short); __nv_bfloat16 __ushort_as_bfloat16(unsigned short);
#pragma clang force_cuda_host_device end
