// `visible_function_table`: handles of functions, which take the place of their addresses.
#pragma once
#pragma clang system_header

namespace metal {
template <class F> class visible_function_table {
    const uint* handles = nullptr;

public:
    visible_function_table() = default;
    ELINVAR_MEMBER explicit visible_function_table(void* address) : handles((const uint*)address) {}
    ELINVAR_MEMBER F* operator[](ulong i) const { return (F*)(ulong)handles[i]; }
    ELINVAR_MEMBER bool operator==(decltype(nullptr)) const { return handles == nullptr; }
};
template <class F> ELINVAR_INLINE bool is_null_visible_function_table(visible_function_table<F> table) {
    return table == nullptr;
}
} // namespace metal
