inline float cl_erf(float x) {
    float a = fabs(x);
    if (isnan(x)) return x;
    if (a >= 0.84375f) return x > 0.0f ? 1.0f - cl_erfc(a) : cl_erfc(a) - 1.0f;
    float z = x * x;
    float r = fma(z, fma(z, fma(z, fma(z, -2.3763017452e-05f, -5.7702702470e-03f), -2.8481749818e-02f), -3.2504209876e-01f), 1.2837916613e-01f);
    float s = fma(z, fma(z, fma(z, fma(z, fma(z, -3.9602282413e-06f, 1.3249473704e-04f), 5.0813062117e-03f), 6.5022252500e-02f), 3.9791721106e-01f), 1.0f);
    return fma(x, r / s, x);
}
