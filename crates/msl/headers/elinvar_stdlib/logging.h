// <metal_logging>: messages are discarded, as Metal does for a command buffer without a log state.
#pragma once

namespace metal {
struct os_log {
    constexpr os_log() = default;
    constexpr os_log(const char*, const char*) {}

#define ELINVAR_LOG(name)                                                                                      \
    template <class... A> ELINVAR_MEMBER void name(const char*, A...) const {}
    ELINVAR_LOG(log)
    ELINVAR_LOG(log_debug)
    ELINVAR_LOG(log_info)
    ELINVAR_LOG(log_error)
    ELINVAR_LOG(log_fault)
#undef ELINVAR_LOG
};
inline constexpr os_log os_log_default{};
} // namespace metal
