#!/usr/bin/env bash
# Fuzzes a reader: `scripts/fuzz.sh TARGET [SECONDS] [ARGUMENTS OF LIBFUZZER]`, where TARGET is a file of verify/fuzz/fuzz_targets. The
# inputs that reach new code are kept in target/fuzz/corpus. Needs neither cargo-fuzz nor a nightly toolchain: the flags are
# those that cargo-fuzz gives, without a sanitizer, which the safe code of these readers has no need of.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${1:?which target of verify/fuzz/fuzz_targets}
seconds=${2:-600}
shift $(($# < 2 ? $# : 2))
host=$(rustc -vV | sed -n 's/^host: //p')
folder=$PWD/target/fuzz
coverage="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Ccodegen-units=1"

# With a target given, the flags are not for build scripts and macros.
RUSTFLAGS=$coverage cargo build --release --manifest-path verify/fuzz/Cargo.toml --target "$host" --target-dir "$folder" --bin "$target"
mkdir -p "$folder/corpus/$target"
cd "$folder"
exec "$host/release/$target" "corpus/$target" -max_total_time="$seconds" -print_final_stats=1 "$@"
