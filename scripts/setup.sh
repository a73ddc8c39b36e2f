#!/usr/bin/env bash
# Installs Elinvar's prerequisites other than Rust, and prints what it installs. Existing installations are not changed.
#
#   setup.sh compiler       clang 19 or later and a linker
#   setup.sh version        prints the clang version that `compiler` would install, on Debian and derivatives
#   setup.sh numpy FOLDER   a Python virtual environment with NumPy, prometheus_client and perfetto, for the tests; on Linux also
#                           NVIDIA's ptxas, on Debian also Prometheus and the OpenTelemetry collector rotel
#   setup.sh mpi            Open MPI and MPICH, for tests of jobs of several processes; on Debian only
#   setup.sh opencl         PoCL, the reference of tests of translated OpenCL C; on Debian only
#   setup.sh apple          a Rust toolchain for macOS; on Debian only
#   setup.sh mutants        cargo-mutants and cargo-nextest, for `make mutants`
#   setup.sh coverage       cargo-llvm-cov, cargo-nextest and LLVM's tools for this rustc, for `make coverage`
#   setup.sh baselines      PoCL and OpenBLAS, baselines of `elinvar bench cpu`; on Debian only
#
# Searches for clang like Elinvar: $ELINVAR_CLANG, then clang-NN, then clang. Apple's clang is not supported.
set -euo pipefail

oldest=19
newest=30

say() { echo "setup: $*"; }

die() {
    echo "setup: $*" >&2
    exit 1
}

# Runs a command as root, by sudo if necessary.
as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        say "$*"
        "$@"
    elif command -v sudo >/dev/null; then
        say "sudo $*"
        sudo "$@"
    else
        die "root is required and sudo is not installed; run as root: $*"
    fi
}

# Whether a program is a supported clang.
good_clang() {
    local text major
    text=$("$1" --version 2>/dev/null) || return 1
    case $text in *"Apple clang"*) return 1 ;; esac
    major=$(printf '%s\n' "$text" | sed -n 's/.*clang version \([0-9][0-9]*\)\..*/\1/p' | head -n 1)
    [ -n "$major" ] && [ "$major" -ge "$oldest" ]
}

# Prints the path of the clang that Elinvar will use.
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

# Prints the path of the linker that clang will use.
find_linker() {
    local clang=$1 name
    name=$("$clang" -print-prog-name=ld.lld)
    command -v "$name" && return
    name=$("$clang" -print-prog-name=ld)
    command -v "$name"
}

# Prints the clang version to install: the oldest supported one, with which Elinvar is developed, else the next. Installed
# versions count as well, in case the package lists are empty.
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
        die "no package provides clang $oldest or later; https://apt.llvm.org does"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "clang-$version" "lld-$version"
}

version() {
    command -v apt-get >/dev/null || return 0
    apt_version || echo "$oldest"
}

install_clang() {
    say "clang $oldest or later not found; installing it"
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
        die "no supported package manager; install clang $oldest or later and lld, then run this again"
    fi
}

compiler() {
    local clang
    if [ -n "${ELINVAR_CLANG:-}" ] && ! good_clang "$ELINVAR_CLANG"; then
        die "ELINVAR_CLANG=$ELINVAR_CLANG is not clang $oldest or later"
    fi
    clang=$(find_clang) || { install_clang; clang=$(find_clang); } ||
        die "clang $oldest or later is not on the PATH after installation; set ELINVAR_CLANG to its path"
    find_linker "$clang" >/dev/null || die "$clang does not find a linker; install lld"
    say "clang: $clang"
}

# Installs NumPy into a virtual environment, and into the same folder NVIDIA's assembler, which checks PTX without a GPU, as
# FOLDER/bin/ptxas.
numpy() {
    local venv=$1
    if ! { [ -x "$venv/bin/python3" ] && "$venv/bin/python3" -c 'import numpy, prometheus_client, perfetto' 2>/dev/null; }; then
        new_environment "$venv"
    fi
    say "NumPy: $venv"
    ptxas "$venv"
    collectors "$venv"
}

# Programs that collect telemetry, on Debian and derivatives: Prometheus and its promtool from the distribution's package, which is unpacked and not
# installed, and the OpenTelemetry collector rotel from PyPI.
collectors() {
    local venv=$1 folder
    command -v apt-get >/dev/null || return 0
    if ! [ -x "$venv/bin/promtool" ]; then
        say "apt-get download prometheus"
        folder=$(mktemp -d)
        # An unprivileged user of apt's writes to it.
        chmod 755 "$folder"
        (cd "$folder" && apt-get download -qq prometheus 2>/dev/null) ||
            { as_root apt-get update -qq && (cd "$folder" && apt-get download -qq prometheus); }
        dpkg -x "$folder"/prometheus_*.deb "$folder/files"
        mv "$folder"/files/usr/bin/prometheus "$folder"/files/usr/bin/promtool "$venv/bin"
        rm -rf "$folder"
    fi
    if ! [ -x "$venv/bin/rotel-agent" ]; then
        say "pip install rotel"
        "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check rotel || {
            say "rotel has no package for this Python: tests with collectors are ignored"
            return 0
        }
        folder=$(find "$venv" -path '*/rotel/rotel-agent' | head -n 1)
        [ -n "$folder" ] || die "rotel does not contain rotel-agent"
        chmod +x "$folder"
        ln -sf "$(realpath "$folder")" "$venv/bin/rotel-agent"
    fi
    say "Prometheus and rotel: $venv/bin"
}

# Part of the compiler package of CUDA 12.9, which NVIDIA publishes for Linux on these architectures.
ptxas() {
    local venv=$1 found
    case $(uname -s)-$(uname -m) in Linux-x86_64 | Linux-aarch64) ;; *) return ;; esac
    if [ ! -x "$venv/bin/ptxas" ]; then
        say "pip install nvidia-cuda-nvcc-cu12, for its ptxas"
        "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check nvidia-cuda-nvcc-cu12==12.9.86
        found=$(find "$venv" -path '*/nvidia/cuda_nvcc/bin/ptxas' | head -n 1)
        [ -n "$found" ] || die "nvidia-cuda-nvcc-cu12 does not contain ptxas"
        chmod +x "$found"
        ln -sf "$(realpath "$found")" "$venv/bin/ptxas"
    fi
    say "ptxas: $venv/bin/ptxas"
}

new_environment() {
    local venv=$1
    if ! command -v python3 >/dev/null || ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
        say "Python with venv not found; installing it"
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
    say "python3 -m venv $venv; pip install numpy prometheus-client perfetto protobuf"
    mkdir -p "$(dirname "$venv")"
    python3 -m venv --clear "$venv"
    "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check numpy prometheus-client \
        perfetto protobuf
}

# Rust for macOS targets: the installed toolchain if it has them, else Debian's, which includes the standard library's source.
apple() {
    local target=aarch64-apple-darwin
    if [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ]; then
        say "rustc supports $target"
    elif [ -d /usr/lib/rustlib/src/rust/library/std ] && [ -x /usr/bin/cargo ]; then
        say "Debian's Rust is installed"
    elif command -v apt-get >/dev/null; then
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            rustc-web cargo-web rust-web-src
    else
        die "Rust's macOS targets are required: rustup target add $target x86_64-apple-darwin"
    fi
}

# Open MPI's library and launcher.
mpi() {
    if command -v mpirun >/dev/null; then
        say "mpirun: $(command -v mpirun)"
    elif command -v apt-get >/dev/null; then
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openmpi-bin
    else
        say "Open MPI is installed on Debian and derivatives only: tests with mpirun are skipped"
    fi
    # Beside Open MPI, whose mpirun stays the default.
    optional MPICH mpich
}

# Optional baselines of the benchmarks.
baselines() {
    optional "PoCL, OpenBLAS and oneDNN" pocl-opencl-icd ocl-icd-libopencl1 libopenblas0-pthread libdnnl2
}

# The OpenCL driver that tests of translated OpenCL C compare with.
opencl() {
    optional PoCL pocl-opencl-icd ocl-icd-libopencl1
}

# Debian packages without which something is skipped.
optional() {
    local what=$1 package absent=()
    shift
    if ! command -v apt-get >/dev/null; then
        say "$what: installed on Debian and derivatives only; what needs it uses what is installed"
        return
    fi
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed' || absent+=("$package")
    done
    if [ "${#absent[@]}" -eq 0 ]; then
        say "$what: installed"
        return
    fi
    say "installing: ${absent[*]}"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${absent[@]}"
}

# Cargo subcommands, built from crates.io; each takes minutes once.
cargo_tools() {
    local tool
    for tool in "$@"; do
        if cargo "${tool#cargo-}" --version >/dev/null 2>&1; then
            say "$tool is installed"
        else
            say "cargo install --locked $tool"
            cargo install --locked --quiet "$tool"
        fi
    done
}

# llvm-cov and llvm-profdata of rustc's LLVM version or later, in the order in which `cargo xtask coverage` searches.
llvm_tools() {
    local own version
    if [ -n "${LLVM_COV:-}" ] && [ -n "${LLVM_PROFDATA:-}" ]; then
        say "LLVM tools: $LLVM_COV and $LLVM_PROFDATA"
        return
    fi
    own=$(rustc -vV | sed -n 's/^LLVM version: \([0-9][0-9]*\).*/\1/p')
    [ -n "$own" ] || die "rustc -vV prints no LLVM version"
    for version in $(seq "$own" $((own + 4))); do
        if command -v "llvm-cov-$version" >/dev/null && command -v "llvm-profdata-$version" >/dev/null; then
            say "LLVM tools: llvm-cov-$version and llvm-profdata-$version"
            return
        fi
    done
    if find "$(rustc --print sysroot)" -name llvm-profdata -type f | grep -q .; then
        say "LLVM tools: rustup's"
    elif command -v rustup >/dev/null && rustup component add llvm-tools; then
        say "LLVM tools: installed by rustup"
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
        die "no package provides llvm-cov of LLVM $own or later; https://apt.llvm.org does, or set LLVM_COV and LLVM_PROFDATA"
    else
        die "install llvm-cov and llvm-profdata of LLVM $own or later, and set LLVM_COV and LLVM_PROFDATA"
    fi
}

case ${1:-} in
compiler) compiler ;;
version) version ;;
numpy) numpy "${2:?the folder of the environment}" ;;
mpi) mpi ;;
apple) apple ;;
opencl) opencl ;;
mutants) cargo_tools cargo-mutants cargo-nextest ;;
coverage)
    cargo_tools cargo-llvm-cov cargo-nextest
    llvm_tools
    ;;
baselines) baselines ;;
*)
    die "usage: setup.sh compiler | setup.sh version | setup.sh numpy FOLDER | setup.sh mpi | setup.sh apple | setup.sh opencl | setup.sh mutants |" \
        "setup.sh coverage | setup.sh baselines"
    ;;
esac
