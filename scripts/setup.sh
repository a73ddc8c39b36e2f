#!/usr/bin/env bash
# Installs what Elinvar needs beside Rust, and says so. What is there already is left as it is.
#
#   setup.sh compiler       clang 19 or later and a linker
#   setup.sh version        prints which clang that would install; nothing where packages are not Debian's
#   setup.sh numpy FOLDER   a Python environment with NumPy, for the tests; on Linux with NVIDIA's ptxas
#   setup.sh apple          a compiler and a linker for Apple's systems; on Debian only
#   setup.sh mutants        cargo-mutants and cargo-nextest, for `make mutants`
#   setup.sh coverage       cargo-llvm-cov, cargo-nextest and LLVM's tools for this rustc, for `make coverage`
#   setup.sh baselines      PoCL and OpenBLAS, which `elinvar bench cpu` compares with; on Debian only
#
# It looks for clang as Elinvar does: $ELINVAR_CLANG, then clang-NN, then clang. Apple's clang does not do.
set -euo pipefail

oldest=19
newest=30

say() { echo "setup: $*"; }

die() {
    echo "setup: $*" >&2
    exit 1
}

# Runs a command that changes the system, as root where that is possible.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        say "$*"
        "$@"
    elif command -v sudo >/dev/null; then
        say "sudo $*"
        sudo "$@"
    else
        die "this needs root, and there is no sudo; run as root: $*"
    fi
}

# Whether a program is a clang that Elinvar takes.
good_clang() {
    local text major
    text=$("$1" --version 2>/dev/null) || return 1
    case $text in *"Apple clang"*) return 1 ;; esac
    major=$(printf '%s\n' "$text" | sed -n 's/.*clang version \([0-9][0-9]*\)\..*/\1/p' | head -n 1)
    [ -n "$major" ] && [ "$major" -ge "$oldest" ]
}

# Prints the clang that Elinvar will find.
find_clang() {
    local name path
    if [ -n "${ELINVAR_CLANG:-}" ]; then
        good_clang "$ELINVAR_CLANG" && echo "$ELINVAR_CLANG"
        return
    fi
    for name in $(seq -f 'clang-%g' "$newest" -1 "$oldest") clang; do
        for path in $(type -ap "$name"); do
            good_clang "$path" && echo "$path" && return
        done
    done
    return 1
}

# Prints a linker that clang can use.
find_linker() {
    local clang=$1 name
    name=$("$clang" -print-prog-name=ld.lld)
    command -v "$name" && return
    name=$("$clang" -print-prog-name=ld)
    command -v "$name"
}

# Prints the version of clang to install: the oldest that works, which is the one that Elinvar is developed with, else the
# next. What is installed counts, too, where the lists of packages are empty.
apt_version() {
    local version
    for version in $(seq "$oldest" "$newest"); do
        case $(apt-cache policy "clang-$version" 2>/dev/null) in *"Candidate: "[0-9]*)
            echo "$version"
            return
            ;;
        esac
    done
    return 1
}

apt_install() {
    local version
    as_root apt-get update -qq
    version=$(apt_version) ||
        die "this system's packages have no clang of version $oldest or later; https://apt.llvm.org has"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "clang-$version" "lld-$version"
}

version() {
    command -v apt-get >/dev/null || return 0
    apt_version || echo "$oldest"
}

install_clang() {
    say "no clang of version $oldest or later is here; installing it"
    if command -v apt-get >/dev/null; then
        apt_install
    elif command -v dnf >/dev/null; then
        as_root dnf install -y clang lld
    elif command -v pacman >/dev/null; then
        as_root pacman -S --needed --noconfirm clang lld
    elif command -v brew >/dev/null; then
        say "brew install llvm lld"
        brew install llvm lld
    else
        die "no package manager that is known here; install clang $oldest or later and lld, then run this again"
    fi
}

compiler() {
    local clang
    if [ -n "${ELINVAR_CLANG:-}" ] && ! good_clang "$ELINVAR_CLANG"; then
        die "ELINVAR_CLANG is $ELINVAR_CLANG, which is no clang of version $oldest or later"
    fi
    clang=$(find_clang) || { install_clang; clang=$(find_clang); } ||
        die "clang $oldest or later is still not on the PATH; set ELINVAR_CLANG to its path"
    find_linker "$clang" >/dev/null || die "$clang finds no linker; install lld"
    say "clang is $clang"
}

# NumPy goes into a folder of its own and nowhere else. So does NVIDIA's assembler, which checks code for GPUs that are
# not here; it is linked to FOLDER/bin/ptxas.
numpy() {
    local venv=$1
    if ! { [ -x "$venv/bin/python3" ] && "$venv/bin/python3" -c 'import numpy' 2>/dev/null; }; then
        new_environment "$venv"
    fi
    say "NumPy is in $venv"
    ptxas "$venv"
}

# A part of CUDA 12.9's compiler package, which NVIDIA publishes for Linux on these processors.
ptxas() {
    local venv=$1 found
    case $(uname -s)-$(uname -m) in Linux-x86_64 | Linux-aarch64) ;; *) return ;; esac
    if [ ! -x "$venv/bin/ptxas" ]; then
        say "pip install nvidia-cuda-nvcc-cu12, for its ptxas"
        "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check nvidia-cuda-nvcc-cu12==12.9.86
        found=$(find "$venv" -path '*/nvidia/cuda_nvcc/bin/ptxas' | head -n 1)
        [ -n "$found" ] || die "nvidia-cuda-nvcc-cu12 has no ptxas"
        chmod +x "$found"
        ln -sf "$(realpath "$found")" "$venv/bin/ptxas"
    fi
    say "ptxas is in $venv/bin"
}

new_environment() {
    local venv=$1
    if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        say "no Python with venv is here; installing it"
        if command -v apt-get >/dev/null; then
            as_root apt-get update -qq
            as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
                python3 python3-venv
        elif command -v dnf >/dev/null; then
            as_root dnf install -y python3
        elif command -v pacman >/dev/null; then
            as_root pacman -S --needed --noconfirm python
        elif command -v brew >/dev/null; then
            say "brew install python"
            brew install python
        else
            die "install Python 3 with venv, then run this again"
        fi
    fi
    say "python3 -m venv $venv; pip install numpy"
    mkdir -p "$(dirname "$venv")"
    python3 -m venv --clear "$venv"
    "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check numpy
}

# Rust for Apple's systems, where the one that is here has it not: Debian's, which brings the standard library's source.
apple() {
    local target=aarch64-apple-darwin
    if [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ]; then
        say "this Rust builds for $target"
    elif [ -d /usr/lib/rustlib/src/rust/library/std ] && [ -x /usr/bin/cargo ]; then
        say "Debian's Rust is here"
    elif command -v apt-get >/dev/null; then
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            rustc-web cargo-web rust-web-src
    else
        die "this needs Rust for Apple's systems: rustup target add $target x86_64-apple-darwin"
    fi
}

# What the benchmarks compare with. They do without it, and say so.
baselines() {
    if ! command -v apt-get >/dev/null; then
        say "PoCL and OpenBLAS are installed on Debian and its like only; the benchmarks use what is here"
        return
    fi
    local package absent=()
    for package in pocl-opencl-icd ocl-icd-libopencl1 libopenblas0-pthread; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || absent+=("$package")
    done
    if [ "${#absent[@]}" -eq 0 ]; then
        say "PoCL and OpenBLAS are here"
        return
    fi
    say "installing what the benchmarks compare with: ${absent[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${absent[@]}"
}

# Programs of cargo, from their own releases on crates.io. Building one takes minutes, once.
cargo_tools() {
    local tool
    for tool in "$@"; do
        if cargo "${tool#cargo-}" --version >/dev/null 2>&1; then
            say "$tool is here"
        else
            say "cargo install --locked $tool"
            cargo install --locked --quiet "$tool"
        fi
    done
}

# llvm-cov and llvm-profdata of rustc's LLVM or a later one, as `cargo xtask coverage` looks for them.
llvm_tools() {
    local own version
    if [ -n "${LLVM_COV:-}" ] && [ -n "${LLVM_PROFDATA:-}" ]; then
        say "LLVM's tools are $LLVM_COV and $LLVM_PROFDATA"
        return
    fi
    own=$(rustc -vV | sed -n 's/^LLVM version: \([0-9][0-9]*\).*/\1/p')
    [ -n "$own" ] || die "rustc -vV has no LLVM version"
    for version in $(seq "$own" $((own + 4))); do
        if command -v "llvm-cov-$version" >/dev/null && command -v "llvm-profdata-$version" >/dev/null; then
            say "LLVM's tools are llvm-cov-$version and llvm-profdata-$version"
            return
        fi
    done
    if find "$(rustc --print sysroot)" -name llvm-profdata -type f | grep -q .; then
        say "LLVM's tools are rustup's"
    elif command -v rustup >/dev/null && rustup component add llvm-tools; then
        say "rustup has added llvm-tools"
    elif command -v apt-get >/dev/null; then
        as_root apt-get update -qq
        for version in $(seq "$own" $((own + 4))); do
            case $(apt-cache policy "llvm-$version" 2>/dev/null) in *"Candidate: "[0-9]*)
                as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
                    "llvm-$version"
                return
                ;;
            esac
        done
        die "no package has llvm-cov of LLVM $own or later; https://apt.llvm.org has, or set LLVM_COV and LLVM_PROFDATA"
    else
        die "install llvm-cov and llvm-profdata of LLVM $own or later, and set LLVM_COV and LLVM_PROFDATA"
    fi
}

case ${1:-} in
compiler) compiler ;;
version) version ;;
numpy) numpy "${2:?the folder of the environment}" ;;
apple) apple ;;
mutants) cargo_tools cargo-mutants cargo-nextest ;;
coverage)
    cargo_tools cargo-llvm-cov cargo-nextest
    llvm_tools
    ;;
baselines) baselines ;;
*)
    die "usage: setup.sh compiler | setup.sh version | setup.sh numpy FOLDER | setup.sh apple | setup.sh mutants |" \
        "setup.sh coverage | setup.sh baselines"
    ;;
esac
