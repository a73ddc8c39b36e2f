#!/usr/bin/env bash
# Fuzzes a parser with libFuzzer: `scripts/fuzz.sh TARGET [SECONDS] [LIBFUZZER ARGUMENTS]`, where TARGET is a file of
# verify/fuzz/fuzz_targets. The corpus is kept in target/fuzz/corpus. Needs neither cargo-fuzz nor a nightly toolchain: the flags
# are cargo-fuzz's, without a sanitizer, because the parsers have no unsafe code.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:?usage: fuzz.sh TARGET [SECONDS] [LIBFUZZER ARGUMENTS]; targets are in verify/fuzz/fuzz_targets}
seconds=${2:-600}
shift $(($# < 2 ? $# : 2))
host=$(rustc -vV | sed -n 's/^host: //p')
folder=$PWD/target/fuzz
coverage="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1"

# With --target, RUSTFLAGS do not apply to build scripts and procedural macros.
RUSTFLAGS=$coverage cargo build --release --manifest-path verify/fuzz/Cargo.toml --target "$host" --target-dir "$folder" --bin "$target"
mkdir -p "$folder/corpus/$target"
cd "$folder"
exec "$host/release/$target" "corpus/$target" -max_total_time="$seconds" -print_final_stats=1 "$@"
