#!/usr/bin/env bash
# Tests and measures the CUDA driver on this machine, from the folder that `cuda.sh` has made. Exits 0 when everything that ran
# passed, and says `skipped: no NVIDIA device` where there is none.
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

# Runs a command with a limit in seconds, and keeps what it says. Its kernels were compiled ahead, in the bundle that the
# first part of its name says, if there is one; the benchmarks have them within.
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

# What clang does with folders whose names are made up as it runs cannot be compiled ahead, and the processor compiles.
skip=()
if ! command -v "${ELINVAR_CLANG:-clang}" >/dev/null; then
    skip=(--skip only_the_given_folders --skip _to_cpu_)
    echo "conformance: sources::only_the_given_folders and copies to the processor are not run: there is no clang"
fi

# One process a chapter: a kernel that goes wrong ends the device for its process.
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
        # Work goes on on the processor there, for which code is compiled.
        if command -v "${ELINVAR_CLANG:-clang}" >/dev/null; then
            step runtime 100 "$here/runtime"
        else
            echo "runtime                      not run: there is no clang"
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
        tool=$(command -v compute-sanitizer) || { echo "sanitize: there is no compute-sanitizer" && continue; }
        for check in memcheck racecheck; do
            conformance "$tool --tool $check --error-exitcode 99 --print-limit 5"
        done
        ;;
    *) echo "no step $name" && exit 2 ;;
    esac
done
exit "$failed"
