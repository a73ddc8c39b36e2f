#!/usr/bin/env bash
# Tests and benchmarks the CUDA driver on this machine, from the folder created by `cuda.sh`. Exits with 0 if everything that ran
# passed, and prints `skipped: no NVIDIA device` without a GPU.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-$here/out}
mkdir -p "$out"
steps=${*:-tests bench sanitize}
failed=0

if ! "$here/elinvar" devices | grep -q '^cuda  [^n]'; then
    echo "skipped: no NVIDIA device"
    "$here/elinvar" devices | grep -A1 '^cuda  none'
    exit 0
fi
"$here/elinvar" devices
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader

# step NAME SECONDS COMMAND...: runs a command with a timeout, and saves its output. Kernels come from the bundle named by the
# part of NAME before the first `-`, if it exists; the benchmarks embed theirs.
step() {
    local name=$1 limit=$2 bundle
    shift 2
    bundle=$here/${name%%-*}.bundle
    [[ -e $bundle ]] || bundle=
    ELINVAR_BUNDLE=$bundle timeout "$limit" "$@" >"$out/$name.txt" 2>&1
    local code=$?
    printf '%-28s %s\n' "$name" "$( ((code == 0)) && echo passed || echo "FAILED ($code)")"
    ((code == 0)) || failed=1
}

# Without clang: skip the case that includes files from temporary folders, which cannot be compiled ahead, and those that use
# the CPU driver.
skip=()
if ! command -v "${ELINVAR_CLANG:-clang}" >/dev/null; then
    skip=(--skip only_the_given_folders --skip _to_cpu_)
    echo "conformance: skipping sources::only_the_given_folders and copies to the CPU: no clang"
fi

# One process per chapter: a kernel fault destroys the CUDA context of its process.
conformance() {
    local chapters chapter
    chapters=$("$here/drivers" --list 2>/dev/null | sed -n 's/^cuda::\([a-z_]*\)::.*/\1/p' | sort -u)
    for chapter in $chapters; do
        step "suite-$chapter" 300 $1 "$here/drivers" "cuda::$chapter::" --test-threads 8 "${skip[@]}"
    done
    count() { cat "$out"/suite-*.txt | grep -v is_unsupported | grep -c "\.\.\. $1\$"; }
    echo "conformance: $(count ok) passed, $(cat "$out"/suite-*.txt | grep -c '\.\.\. FAILED$') failed, $(
        count ignored) unsupported"
    "$here/drivers" suite::unsupported 2>/dev/null | grep -A100 '^cuda ' | sed '/^cpu /,$d'
}

for name in $steps; do
    case $name in
    tests)
        step driver 300 "$here/device" --test-threads 1
        # Reruns work on the CPU, which needs a compiler.
        if command -v "${ELINVAR_CLANG:-clang}" >/dev/null; then
            step runtime 100 "$here/runtime"
        else
            echo "runtime                      skipped: no clang"
        fi
        conformance ""
        ;;
    bench)
        suites=(cuda)
        if [[ -e $here/candle.bundle ]]; then
            export ELINVAR_CANDLE=$here/candle.bundle
            suites+=(candle)
        fi
        step bench 500 "$here/elinvar" bench "${suites[@]}"
        cat "$out/bench.txt"
        ;;
    sanitize)
        tool=$(command -v compute-sanitizer) || { echo "sanitize: skipped: no compute-sanitizer" && continue; }
        for check in memcheck racecheck; do
            conformance "$tool --tool $check --error-exitcode 99 --print-limit 5"
        done
        ;;
    *) echo "unknown step $name" && exit 2 ;;
    esac
done
exit "$failed"
