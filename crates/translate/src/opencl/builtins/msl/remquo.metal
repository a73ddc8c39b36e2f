// The remainder of x / y by the nearest integer, ties to even, and the low bits of that integer with its sign.
inline float2 cl_remquo_bits(float x, float y) {
    float a = fabs(x), b = fabs(y);
    if (isnan(x) || isnan(y) || isinf(x) || b == 0.0f) return float2(NAN, 0.0f);
    if (isinf(y)) return float2(x, 0.0f);
    uint q = 0;
    if (b < 0x1p120f) a = fmod(a, 128.0f * b);
    for (int k = 6; k >= 0; --k) {
        float step = ldexp(b, k);
        if (!isinf(step) && a >= step) {
            a -= step;
            q |= 1u << k;
        }
    }
    float rest = b - a;
    if (a > rest || (a == rest && (q & 1u) != 0)) {
        a -= b;
        q += 1;
    }
    float r = signbit(x) ? -a : a;
    if (a == 0.0f) r = copysign(0.0f, x);
    float n = float(q & 127u);
    return float2(r, signbit(x) != signbit(y) ? -n : n);
}
