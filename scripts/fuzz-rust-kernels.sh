#!/usr/bin/env bash
# Compares random Rust kernels on the CPU device and on the host: `scripts/fuzz-rust-kernels.sh [KERNELS] [SEED]`, 5000 kernels in batches of
# 250, of the seeds from 10000 on. rustc compiles a batch while the one before runs. The seeds without a difference are kept in
# target/fuzz/rust-kernels, so an interrupted run goes on where it was. It stops at the first difference.
set -euo pipefail
cd "$(dirname "$0")/.."

batch=250
batches=$(((${1:-5000} + batch - 1) / batch))
first=${2:-10000}
folder=$PWD/target/fuzz
mkdir -p "$folder"
touch "$folder/rust-kernels"
running=

# Waits for the batch that runs, and notes its seed.
finish() {
    [ -n "$running" ] || return 0
    if ! wait "$running"; then
        cat "$folder/rust-kernels.log"
        exit 1
    fi
    echo "$seed_running" >>"$folder/rust-kernels"
    echo "seed $seed_running: $(grep -E '^[0-9]+ kernels' "$folder/rust-kernels.log")"
    running=
}

for ((seed = first; seed < first + batches; seed++)); do
    grep -qx "$seed" "$folder/rust-kernels" && continue
    program=$(ELINVAR_RUST_KERNELS_SEED=$seed ELINVAR_RUST_KERNELS_COUNT=$batch \
        cargo test -q -p elinvar-rust-kernels --test generated --no-run --message-format=json |
        sed -n 's/.*"executable":"\([^"]*generated-[^"]*\)".*/\1/p')
    finish
    cp "$program" "$folder/rust-kernels-$((seed % 2))"
    # Kernels do not come again: a cache of their own is removed after each batch.
    (
        cache=$(mktemp -d)
        trap 'rm -rf "$cache"' EXIT
        ELINVAR_CACHE=$cache "$folder/rust-kernels-$((seed % 2))" --nocapture >"$folder/rust-kernels.log" 2>&1
    ) &
    running=$! seed_running=$seed
done
finish
echo "$((batches * batch)) kernels of the seeds $first to $((first + batches - 1)), no difference"
