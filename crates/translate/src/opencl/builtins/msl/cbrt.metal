inline float cl_cbrt(float x) {
    float a = fabs(x);
    if (a == 0.0f || isinf(x) || isnan(x)) return x;
    bool small = a < 0x1p-100f, big = a > 0x1p100f;
    if (small) a *= 0x1p72f;
    if (big) a *= 0x1p-72f;
    float t = as_type<float>(as_type<uint>(a) / 3 + 0x2a5137a0u);
    t -= (t - a / (t * t)) / 3.0f;
    t -= (t - a / (t * t)) / 3.0f;
    float square = t * t, low = fma(t, t, -square);
    float cube = square * t, error = fma(square, t, -cube) + low * t;
    t -= ((cube - a) + error) / (3.0f * square);
    if (small) t *= 0x1p-24f;
    if (big) t *= 0x1p24f;
    return copysign(t, x);
}
