// `memcpy` and `memset`, by bytes: pointers may have any alignment.
template <typename To, typename From>
inline To copy_bytes(To to, From from, ulong size) {
    for (ulong i = 0; i < size; i++) {
        to[i] = from[i];
    }
    return to;
}
template <typename To>
inline To set_bytes(To to, uchar value, ulong size) {
    for (ulong i = 0; i < size; i++) {
        to[i] = value;
    }
    return to;
}
