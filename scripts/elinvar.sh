#!/usr/bin/env bash
# Builds target/release/elinvar with the benchmark kernels for NVIDIA GPUs embedded, so that `elinvar bench` needs no clang.
# Prints its path.
#
# Compiled for compute capabilities 8.0 and 9.0, which covers all from 8.0 on, or for those in ELINVAR_CUDA_TARGETS
# (`sm_86 sm_90`).
set -euo pipefail

cargo=${CARGO:-cargo}
cd "$(dirname "$0")/.."

# Builds the program and prints its path.
build() {
    "$cargo" build --release --package elinvar-cli --bin elinvar --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

elinvar=$(ELINVAR_BENCH_BUNDLE='' build)
bundle=$(dirname "$elinvar")/bench.bundle
read -ra targets <<<"${ELINVAR_CUDA_TARGETS:-sm_80 sm_90}"
# A source is looked up by its file name among others, so pack from within its folder.
# Status 1: kernels that load pointers from memory have no bounds checks, and are packed without.
rm -f "$bundle"
status=0
(cd crates/cli/src/bench/kernels && "$elinvar" pack --checked "${targets[@]/#/--target=cuda:}" -o "$bundle" -- *.metal >&2) || status=$?
[[ $status -le 1 && -f $bundle ]]
ELINVAR_BENCH_BUNDLE=$bundle build
