#!/usr/bin/env bash
# Runs the tests of the runtime and of the CPU's drivers with a sanitizer compiled in.
#
#   sanitize.sh address|thread
#
# The stable toolchain carries both sanitizers; its standard library is not compiled for them. Compiled kernels are not either:
# what they do to memory is the checked launches' matter.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${1:-}
export RUSTC_BOOTSTRAP=1 CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=line-tables-only
export RUSTFLAGS="-Zsanitizer=$sanitizer -Cunsafe-allow-abi-mismatch=sanitizer"
export CARGO_TARGET_DIR=target/$sanitizer-sanitizer
export ELINVAR_COMPILE_TIMEOUT=600
skipped=() isolated=(--lib --tests) drivers=(cpu:: isolated::) without=none
case $sanitizer in
address)
    # Signals of kernels that crash are the driver's; allocations that cannot be are errors.
    ASAN_OPTIONS=allocator_may_return_null=1:use_sigaltstack=0:disable_coredump=0
    export ASAN_OPTIONS=$ASAN_OPTIONS:handle_segv=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0
    # Left out: what looks for the stack's ends, since frames are elsewhere; workers with less private memory than the sanitizer
    # takes; workers that end by a signal, which the sanitizer takes, since they have no environment to tell it otherwise.
    skipped=(private_memory_has_its_limit workers_are_confined_unless_told_otherwise
        a_store_behind_a_buffer_reaches_no_other a_crash_ends_what_is_in_flight_and_the_next_submission_has_a_new_worker
        what_survives_a_crash_and_a_reset a_crash_under_the_usual_policy_leaves_the_device_usable
        work_beside_a_crash_is_done_again a_frame_larger_than_the_stack_is_an_overflow
        a_stack_overflow_is_told_of_and_handed_to_rusts_own_handler a_wild_load_beside_the_stack_is_no_overflow)
    ;;
thread)
    # Generic code of the standard library is compiled here, and locks are those of a crate: what the toolchain brings
    # compiled, the sanitizer does not see.
    RUSTFLAGS="$RUSTFLAGS -Zshare-generics=n --cfg elinvar_thread_sanitizer"
    export TSAN_OPTIONS="suppressions=$PWD/scripts/thread-sanitizer.txt:allocator_may_return_null=1"
    # Processes that crash, that fork, and workers, which start threads behind a fork or may not map what the sanitizer needs.
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
    # With a target named, build scripts and procedural macros stay as they are.
    scripts/summed.sh cargo test --no-fail-fast --target "$(rustc -vV | sed -n 's/^host: //p')" "$@" "${skips[@]}"
}

test -p elinvar-driver -p elinvar-driver-cpu -p elinvar --lib --tests --
test -p elinvar-driver-isolated "${isolated[@]}" --
programs=()
for program in verify/conformance/tests/runtime_*.rs; do
    program=$(basename "$program" .rs)
    [[ $program =~ ^($without)$ ]] || programs+=(--test "$program")
done
test -p elinvar-conformance "${programs[@]}" --
for driver in "${drivers[@]}"; do
    test -p elinvar-conformance --test drivers -- "$driver"
done
