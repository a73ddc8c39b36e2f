inline float cl_logb(float x) {
    if (isnan(x)) return x;
    if (isinf(x)) return INFINITY;
    return x == 0.0f ? -INFINITY : float(ilogb(x));
}
