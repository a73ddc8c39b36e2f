inline float cl_log1p(float x) {
    float u = 1.0f + x;
    if (x <= -1.0f || isinf(u) || isnan(x)) return precise::log(u);
    if (u == 1.0f) return x;
    // The rounding error of 1 + x, relative to u.
    float rest = x >= 1.0f ? 1.0f - (u - x) : x - (u - 1.0f);
    if (fabs(x) < 0.25f) {
        // log((1 + s) / (1 - s)) with s = x / (2 + x)
        float s = x / (2.0f + x), z = s * s;
        float p = 1.0f / 13.0f;
        p = fma(p, z, 1.0f / 11.0f);
        p = fma(p, z, 1.0f / 9.0f);
        p = fma(p, z, 1.0f / 7.0f);
        p = fma(p, z, 1.0f / 5.0f);
        p = fma(p, z, 1.0f / 3.0f);
        float half_square = 0.5f * x * x;
        return x - (half_square - s * (half_square + 2.0f * z * p));
    }
    return precise::log(u) + rest / u;
}
