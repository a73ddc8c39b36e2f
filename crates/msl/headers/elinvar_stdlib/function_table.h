// `visible_function_table`: the number of functions, and their handles, which take the place of their addresses.
#pragma once
#pragma clang system_header

namespace metal {
template <class F> class visible_function_table {
    const uint* words = nullptr;

public:
    visible_function_table() = default;
    ELINVAR_MEMBER explicit visible_function_table(void* address) : words((const uint*)address) {}
    ELINVAR_MEMBER F* operator[](ulong i) const { return (F*)(ulong)words[1 + i]; }
    ELINVAR_MEMBER bool operator==(decltype(nullptr)) const { return words == nullptr; }
    ELINVAR_MEMBER bool operator!=(decltype(nullptr)) const { return words != nullptr; }
    // 0 for a null table.
    ELINVAR_MEMBER uint size() const { return words ? words[0] : 0; }
    ELINVAR_MEMBER bool empty() const { return size() == 0; }
};
template <class F> ELINVAR_INLINE bool is_null_visible_function_table(visible_function_table<F> table) {
    return table == nullptr;
}
} // namespace metal
