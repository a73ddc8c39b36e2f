inline float cl_expm1(float x) {
    if (fabs(x) >= 1.0f || isnan(x)) return precise::exp(x) - 1.0f;
    // exp(x) - 1 = e * (e + 2), e = exp(x / 2) - 1 as a series.
    float h = 0.5f * x;
    float s = 1.0f / 362880.0f;
    s = fma(s, h, 1.0f / 40320.0f);
    s = fma(s, h, 1.0f / 5040.0f);
    s = fma(s, h, 1.0f / 720.0f);
    s = fma(s, h, 1.0f / 120.0f);
    s = fma(s, h, 1.0f / 24.0f);
    s = fma(s, h, 1.0f / 6.0f);
    s = fma(s, h, 0.5f);
    float e = fma(h * h, s, h);
    return x == 0.0f ? x : fma(e, e, 2.0f * e);
}
