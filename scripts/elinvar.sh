#!/usr/bin/env bash
# Builds target/release/elinvar with the kernels of `elinvar bench` compiled for NVIDIA GPUs within, so that it measures where
# there is no clang. Prints its path.
#
# They are for compute capabilities 8.0 and 9.0, which run on all others from 8.0 on, or for those that ELINVAR_CUDA_TARGETS
# names (`sm_86 sm_90`).
set -euo pipefail

cargo=${CARGO:-cargo}
cd "$(dirname "$0")/.."

# Prints the program that cargo has built.
build() {
    "$cargo" build --release --package elinvar-cli --bin elinvar --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

elinvar=$(ELINVAR_BENCH_BUNDLE='' build)
bundle=$(dirname "$elinvar")/bench.bundle
read -ra targets <<<"${ELINVAR_CUDA_TARGETS:-sm_80 sm_90}"
# The names of the files are part of what a source is found by.
(cd crates/cli/src/bench/kernels && "$elinvar" pack --checked "${targets[@]/#/--target=cuda:}" -o "$bundle" -- *.metal >&2)
ELINVAR_BENCH_BUNDLE=$bundle build
