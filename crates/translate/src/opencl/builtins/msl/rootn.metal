inline float cl_rootn(float x, int n) {
    if (n == 0 || isnan(x) || ((n & 1) == 0 && x < 0.0f)) return NAN;
    float a = fabs(x);
    float r = a == 0.0f ? (n < 0 ? INFINITY : 0.0f) : isinf(a) ? (n < 0 ? 0.0f : INFINITY) : precise::pow(a, 1.0f / float(n));
    if (n > -64 && n < 64 && r != 0.0f && !isinf(r) && a != 0.0f && !isinf(a)) {
        // One step of Newton's method: the exponent 1 / n is rounded.
        float back = cl_pown(r, n);
        if (back != 0.0f && !isinf(back)) r -= r * ((back - a) / (back * float(n)));
    }
    return (n & 1) != 0 ? copysign(r, x) : r;
}
