#!/usr/bin/env bash
# Runs the tests of the driver contract, the runtime and the CPU drivers under a sanitizer.
#
#   sanitize.sh address|thread
#
# The stable toolchain includes both sanitizers; its prebuilt standard library is not instrumented. Compiled kernels are not
# either; their memory safety is tested by checked launches.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${1:-}
export RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only CARGO_PROFILE_DEV_STRIP=none
export RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer"
export CARGO_TARGET_DIR=target/$sanitizer-sanitizer
export ELINVAR_COMPILE_TIMEOUT=600
skipped=() isolated=(--lib --tests) drivers=(cpu:: isolated::) without=none
case $sanitizer in
address)
    # The driver handles signals of crashing kernels; failed allocations are errors of the program.
    ASAN_OPTIONS=allocator_may_return_null=1:use_sigaltstack=0:disable_coredump=0
    export ASAN_OPTIONS=$ASAN_OPTIONS:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0
    # Skipped: tests that inspect stack bounds, because frames are on the sanitizer's fake stack; workers whose memory limit is below
    # the sanitizer's own use; workers that end by a signal, which the sanitizer intercepts, since workers have no environment and
    # thus no ASAN_OPTIONS.
    skipped=(private_memory_has_its_limit workers_are_confined_unless_told_otherwise
        a_store_behind_a_buffer_reaches_no_other a_crash_ends_what_is_in_flight_and_the_next_submission_has_a_new_worker
        what_survives_a_crash_and_a_reset a_crash_under_the_usual_policy_leaves_the_device_usable
        work_beside_a_crash_is_done_again a_frame_larger_than_the_stack_is_an_overflow
        a_stack_overflow_is_told_of_and_handed_to_rusts_own_handler a_wild_load_beside_the_stack_is_no_overflow)
    ;;
thread)
    # Instantiate the standard library's generic code locally, and use the locks of a crate, so that both are instrumented; prebuilt
    # code is not.
    RUSTFLAGS="$RUSTFLAGS -Zshare-generics=n --cfg elinvar_thread_sanitizer"
    export TSAN_OPTIONS="suppressions=$PWD/scripts/thread-sanitizer.txt:allocator_may_return_null=1"
    # Skipped: processes that crash or fork, and workers, which start threads after a fork or cannot map the sanitizer's shadow memory.
    skipped=(crash:: isolated in_a_child in_the_child fork)
    isolated=(--lib) drivers=(cpu::) without='runtime_fork|runtime_isolated|runtime_soak'
    ;;
*)
    echo "usage: sanitize.sh address|thread" >&2
    exit 2
    ;;
esac
test() {
    local skips=()
    for name in "${skipped[@]}"; do skips+=(--skip "$name"); done
    # With --target, RUSTFLAGS do not apply to build scripts and procedural macros.
    scripts/summed.sh cargo test --no-fail-fast --target "$(rustc -vV | sed -n 's/^host: //p')" "$@" "${skips[@]}"
}

test -p elinvar-driver -p elinvar-driver-cpu -p elinvar --lib --tests --
test -p elinvar-driver-isolated "${isolated[@]}" --
programs=(--test runtime)
for program in verify/conformance/tests/runtime_*.rs; do
    program=$(basename "$program" .rs)
    [[ $program =~ ^($without)$ ]] || programs+=(--test "$program")
done
test -p elinvar-conformance "${programs[@]}" --
for driver in "${drivers[@]}"; do
    test -p elinvar-conformance --test drivers -- "$driver"
done
