// The complementary error function, by rational approximations after W. J. Cody.
inline float cl_erfc(float x) {
    float a = fabs(x);
    if (isnan(x)) return x;
    if (a < 0.84375f) {
        float z = x * x;
        float r = fma(z, fma(z, fma(z, fma(z, -2.3763017452e-05f, -5.7702702470e-03f), -2.8481749818e-02f), -3.2504209876e-01f), 1.2837916613e-01f);
        float s = fma(z, fma(z, fma(z, fma(z, fma(z, -3.9602282413e-06f, 1.3249473704e-04f), 5.0813062117e-03f), 6.5022252500e-02f), 3.9791721106e-01f), 1.0f);
        float y = r / s;
        return x < 0.25f ? 1.0f - fma(x, y, x) : 0.5f - fma(x, y, x - 0.5f);
    }
    if (a < 1.25f) {
        float s = a - 1.0f;
        float p = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, -2.1663755178e-03f, 3.5478305072e-02f), -1.1089469492e-01f), 3.1834661961e-01f), -3.7220788002e-01f), 4.1485610604e-01f), -2.3621185683e-03f);
        float q = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, 1.1984500103e-02f, 1.3637083583e-02f), 1.2617121637e-01f), 7.1828655899e-02f), 5.4039794207e-01f), 1.0642088205e-01f), 1.0f);
        return x >= 0.0f ? 1.0f - 8.4506291151e-01f - p / q : 1.0f + (8.4506291151e-01f + p / q);
    }
    if (x < -6.0f) return 2.0f;
    if (a >= 28.0f) return 0.0f;
    float s = 1.0f / (a * a), r, q;
    if (a < 1.0f / 0.35f) {
        r = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, -9.8143291473e+00f, -8.1287437439e+01f), -1.8460508728e+02f), -1.6239666748e+02f), -6.2375331879e+01f), -1.0558626175e+01f), -6.9385856390e-01f), -9.8649440333e-03f);
        q = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, -6.0424413532e-02f, 6.5702495575e+00f), 1.0863500214e+02f), 4.2900814819e+02f), 6.4538726807e+02f), 4.3456588745e+02f), 1.3765776062e+02f), 1.9651271820e+01f), 1.0f);
    } else {
        r = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, -4.8351919556e+02f, -1.0250950928e+03f), -6.3756646729e+02f), -1.6063638306e+02f), -1.7757955551e+01f), -7.9928326607e-01f), -9.8649431020e-03f);
        q = fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, fma(s, -2.2440952301e+01f, 4.7452853394e+02f), 2.5530502930e+03f), 3.1998581543e+03f), 1.5367296143e+03f), 3.2579251099e+02f), 3.0338060379e+01f), 1.0f);
    }
    // exp(-a²) in two factors, the first of which is exact in its argument.
    float z = as_type<float>(as_type<uint>(a) & 0xffffe000u);
    float e = precise::exp(fma(-z, z, -0.5625f)) * precise::exp(fma(z - a, z + a, r / q)) / a;
    return x > 0.0f ? e : 2.0f - e;
}
