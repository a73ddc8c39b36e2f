inline float cl_pown(float x, int n) {
    if (n == 0) return 1.0f;
    float r = precise::pow(fabs(x), float(n));
    return (n & 1) != 0 ? copysign(r, x) : r;
}
