inline float cl_hypot(float x, float y) {
    float a = fmax(fabs(x), fabs(y)), b = fmin(fabs(x), fabs(y));
    if (isinf(x) || isinf(y)) return INFINITY;
    if (isnan(x) || isnan(y)) return NAN;
    if (a == 0.0f) return 0.0f;
    float scale = a > 0x1p60f ? 0x1p-80f : b < 0x1p-60f ? 0x1p80f : 1.0f;
    if (a > 0x1p60f || a < 0x1p-20f || scale == 1.0f) {
        a *= scale;
        b *= scale;
        return precise::sqrt(fma(a, a, b * b)) / scale;
    }
    return a;
}
