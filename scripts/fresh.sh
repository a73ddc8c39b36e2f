#!/usr/bin/env bash
# Runs the commands of the Makefile as on a machine that has nothing but Rust and make: a clean clone of HEAD in a temporary
# folder, with an empty HOME, CARGO_HOME, cache and TMPDIR of its own.
#
#   fresh.sh [TARGET...]     `demo test` if none is named
#
# What is kept of this machine: its packages, the Rust toolchain, and how registries are reached (proxies, certificates,
# pip's settings, Cargo's settings of registries). What is hidden: everything on the PATH below HOME, cargo's subcommands,
# and each clang and lld but the version that setup.sh installs; it installs that one if it is absent.
#
# Prints the minutes of each target and exits with the status of the first that fails. The folder is removed when all pass,
# and else kept.
set -euo pipefail

say() { echo "fresh: $*"; }

source=$(cd "$(dirname "$0")/.." && pwd)
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(demo test)
folder=$(mktemp -d "${TMPDIR:-/tmp}/elinvar-fresh.XXXXXX")
folder=$(cd "$folder" && pwd -P)
clone=$folder/elinvar
toolchain=$(rustc --print sysroot)

# Ends with a status; what a failure leaves is what it can be found by.
finish() {
    local status=$?
    if [ "$status" -eq 0 ]; then
        rm -rf "$folder"
    else
        say "status $status; everything is kept in $folder, and its environment in $folder/environment"
    fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A checkout without history, as CI may have it, is copied.
clone() {
    if [ -e "$source/.git" ]; then
        [ -z "$(git -C "$source" status --porcelain)" ] || say "uncommitted changes are left out"
        git clone --quiet "$source" "$clone"
        say "$(git -C "$clone" log -1 --format='%h %s')"
    else
        mkdir "$clone"
        tar -C "$source" --exclude ./target -cf - . | tar -C "$clone" -xf -
    fi
}

# Whether a program of the PATH is one that a fresh machine would not have.
is_hidden() {
    case $1 in
    cargo-fmt | cargo-clippy | clang-"$version" | lld-"$version" | ld.lld-"$version") return 1 ;;
    cargo-*) return 0 ;;
    clang | clang++ | clang-[0-9]* | clang++-[0-9]* | lld | lld-[0-9]* | ld.lld | ld.lld-[0-9]*) [ -n "$version" ] ;;
    *) return 1 ;;
    esac
}

# Prints the folder to look for programs in instead of $1: itself, or one of links to all of it that is not hidden.
visible() {
    local from=$1 to=$2 path name hides=
    for path in "$from"/{clang,lld,ld.lld,cargo-}*; do
        if [ -e "$path" ] && is_hidden "${path##*/}"; then hides=1; fi
    done
    if [ -z "$hides" ]; then
        echo "$from"
        return
    fi
    echo "$to"
    mkdir -p "$to"
    ln -s "$from"/* "$to"
    for path in "$to"/{clang,lld,ld.lld,cargo-}*; do
        if is_hidden "${path##*/}"; then rm -f "$path"; fi
    done
    # What is installed later is seen, too.
    [ -n "$version" ] || return 0
    for name in clang-"$version" lld-"$version" ld.lld-"$version"; do
        [ -L "$to/$name" ] || ln -s "$from/$name" "$to/$name"
    done
}

# Prints the PATH: Rust, then what of this one's folders is the system's.
search_path() {
    local path="" part number=0 parts
    IFS=: read -ra parts <<<"$PATH"
    for part in "$toolchain/bin" "${parts[@]}"; do
        case $part/ in
        "$toolchain"/*) ;;
        "$HOME"/* | "${CARGO_HOME:-$HOME}"/* | "${RUSTUP_HOME:-$HOME}"/*) continue ;;
        esac
        [ -d "$part" ] || continue
        number=$((number + 1))
        path=${path:+$path:}$(visible "$part" "$folder/path/$number")
    done
    echo "$path"
}

# How registries are reached, of Cargo's settings: the rest would bring folders and programs of this machine.
registry_settings() {
    local home=${CARGO_HOME:-$HOME/.cargo} name
    for name in config.toml config; do
        if [ -e "$home/$name" ]; then
            awk 'BEGIN { kept = "(source|registries|registry|net|http)[].]" }
                 /^[[:space:]]*\[/ { keeps = $0 ~ "^[[:space:]]*\\[+" kept; inside = 1 }
                 keeps || (!inside && $0 ~ "^" kept)' "$home/$name" >"$folder/cargo/config.toml"
            return
        fi
    done
}

# Fills the array `environment`.
empty_environment() {
    local name
    mkdir "$folder"/{home,cargo,tmp}
    registry_settings
    environment=(
        "HOME=$folder/home" "CARGO_HOME=$folder/cargo" "TMPDIR=$folder/tmp"
        "RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}" "PATH=$(search_path)"
    )
    for name in $(compgen -e); do
        case $name in
        LANG | LC_* | TZ | TERM | USER | LOGNAME | SHELL | DEBIAN_FRONTEND | RUST_BACKTRACE | *_proxy | *_PROXY | SSL_CERT_* | \
            *_CA_BUNDLE | GIT_SSL_* | PIP_* | CARGO_REGISTR* | CARGO_SOURCE_* | CARGO_NET_* | CARGO_HTTP_* | CARGO_TERM_*)
            environment+=("$name=${!name}")
            ;;
        esac
    done
    printf '%s\n' "${environment[@]%%=*}" >"$folder/environment"
}

say "in $folder"
version=$("$source/scripts/setup.sh" version)
clone
empty_environment
cd "$clone"
for target in "${targets[@]}"; do
    begin=$SECONDS
    status=0
    env -i "${environment[@]}" make "$target" || status=$?
    say "$(awk -v name="$target" -v s=$((SECONDS - begin)) -v status="$status" \
        'BEGIN { printf "make %s: %.1f minutes, status %d", name, s / 60, status }')"
    [ "$status" -eq 0 ] || exit "$status"
done
