// <metal_geometric>: functions on vectors as a whole.
#pragma once

namespace metal {
template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE typename V::value_type dot(A p, B q) {
    using T = typename V::value_type;
    V a = elinvar::widen<V>(p), b = elinvar::widen<V>(q);
    T sum = T(a.x * b.x + a.y * b.y);
    if constexpr (V::size > 2) sum = T(sum + a.z * b.z);
    if constexpr (V::size > 3) sum = T(sum + a.w * b.w);
    return sum;
}
template <class A, class V = elinvar::joined_t<A, A>> ELINVAR_PURE auto length_squared(A a) { return dot(a, a); }
template <class A, class V = elinvar::joined_t<A, A>> ELINVAR_PURE auto length(A a) { return sqrt(dot(a, a)); }
template <class A, class V = elinvar::joined_t<A, A>> ELINVAR_PURE V normalize(A a) {
    return elinvar::widen<V>(a) * rsqrt(dot(a, a));
}
template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE auto distance(A a, B b) {
    return length(a - b);
}
template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE auto distance_squared(A a, B b) {
    return length_squared(a - b);
}
template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE enable_if_t<V::size == 3, V> cross(A p, B q) {
    V a = elinvar::widen<V>(p), b = elinvar::widen<V>(q);
    return V(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE V reflect(A incident, B normal) {
    using T = typename V::value_type;
    return incident - normal * T(T(2) * dot(normal, incident));
}
template <class A, class B, class V = elinvar::joined_t<A, B>>
ELINVAR_PURE V refract(A incident, B normal, typename V::value_type ratio) {
    using T = typename V::value_type;
    T cosine = dot(normal, incident);
    T k = T(T(1) - ratio * ratio * (T(1) - cosine * cosine));
    if (k < T(0)) return V(T(0));
    return incident * ratio - normal * T(ratio * cosine + sqrt(k));
}
template <class A, class B, class C, class V = elinvar::joined_t<elinvar::joined_t<A, B>, C>>
ELINVAR_PURE V faceforward(A normal, B incident, C reference) {
    V n = elinvar::widen<V>(normal);
    return dot(reference, incident) < typename V::value_type(0) ? n : -n;
}
ELINVAR_BOTH(length)
ELINVAR_BOTH(normalize)
ELINVAR_BOTH(distance)
} // namespace metal

#undef ELINVAR_BOTH
#undef ELINVAR_COMMON1
#undef ELINVAR_COMMON2
#undef ELINVAR_COMMON3
