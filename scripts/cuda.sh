#!/usr/bin/env bash
# Creates a folder for testing the CUDA driver on another machine, which needs neither Rust nor the sources.
#
#   cuda.sh FOLDER     builds the programs and copies them to FOLDER with cuda-run.sh
#
# All kernels are compiled ahead of time, for sm_90 and later, or for ELINVAR_CUDA_TARGET.
#
# ELINVAR_CANDLE=DIR names the folder src/metal_src of the crate candle-metal-kernels 0.11.1, for the benchmark suite `candle`;
# without it that suite is omitted.
#
# On the other machine: ./cuda-run.sh [tests] [bench] [sanitize]; all steps if none is named.
set -euo pipefail

folder=${1:?the folder to make}
cargo=${CARGO:-cargo}
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder"

# Builds a target of the workspace and prints the path of the executable.
program() {
    "$cargo" "$@" --release --message-format=json-render-diagnostics |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

cd "$root"
target=${ELINVAR_CUDA_TARGET:-sm_90}
# With the benchmark kernels embedded.
cp "$(CARGO=$cargo ELINVAR_CUDA_TARGETS=$target scripts/elinvar.sh)" "$folder/elinvar"
cp "$(program test --no-run --package elinvar-driver-cuda --test device)" "$folder/device"
cp "$(program test --no-run --package elinvar-conformance --test drivers)" "$folder/drivers"
cp "$(program test --no-run --package elinvar-conformance --test runtime_cuda)" "$folder/runtime"
strip "$folder"/{elinvar,device,drivers,runtime}
target=cuda:$target
# A source is looked up by its file name among others, so pack from within its folder.
pack() {
    local bundle
    bundle=$(realpath "$folder")/$1
    (cd "$2" && shift 2 && "$elinvar" pack --checked --target "$target" -o "$bundle" "$@")
}
elinvar=$(realpath "$folder")/elinvar
pack driver.bundle crates/driver-cuda/tests/device kernels.metal
pack runtime.bundle verify/conformance/tests runtime_cuda.metal
if [[ -n ${ELINVAR_CANDLE:-} ]]; then
    aligned=(10=false 100=false 110=false 200=true 201=true 202=true 300=false)
    gemm=(gemm_nn_f32_f32_64_64_16_2_2 gemm_nn_f16_f16_64_64_16_1_2)
    bundle=$(realpath "$folder")/candle.bundle
    (cd "$ELINVAR_CANDLE" && "$elinvar" pack --target "$target" -o "$bundle" reduce.metal mlx_gemm.metal \
        "${aligned[@]/#/--constant=}" "${gemm[@]/#/--kernel=}" --kernel=fast_sum_f32 --kernel=softmax_f32)
fi
"$cargo" run --release --quiet --package elinvar-conformance --bin pack-suite -- "$folder/suite.bundle" "${target#cuda:}"
cp scripts/cuda-run.sh "$folder/"
du -sh "$folder"
