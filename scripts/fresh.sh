#!/usr/bin/env bash
# Runs Makefile targets as on a machine with only Rust and make: in a clean clone of HEAD in a temporary folder, with an empty
# HOME, CARGO_HOME, cache and TMPDIR.
#
#   fresh.sh [TARGET...]     default: `demo test`
#
# Inherited from this machine: its packages, the Rust toolchain, and registry access (proxies, certificates, pip settings, Cargo's
# registry settings). Hidden: everything on the PATH below HOME, cargo subcommands, and every clang and lld except the version
# that setup.sh installs, which it installs if missing.
#
# Prints the duration of each target in minutes, and exits with the status of the first that fails. The folder is removed if all
# targets pass, and kept otherwise.
set -euo pipefail

say() { echo "fresh: $*"; }

source=$(cd "$(dirname "$0")/.." && pwd)
targets=("$@")
[ "${#targets[@]}" -gt 0 ] || targets=(demo test)
folder=$(mktemp -d "${TMPDIR:-/tmp}/elinvar-fresh.XXXXXX")
folder=$(cd "$folder" && pwd -P)
clone=$folder/elinvar
toolchain=$(rustc --print sysroot)

# Removes the folder after success; keeps it after a failure, for debugging.
finish() {
    local status=$?
    if [ "$status" -eq 0 ]; then
        rm -rf "$folder"
    else
        say "status $status; kept $folder, its environment is listed in $folder/environment"
    fi
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Clones the repository, or copies a checkout without history, as CI may have it.
clone() {
    if [ -e "$source/.git" ]; then
        [ -z "$(git -C "$source" status --porcelain)" ] || say "uncommitted changes are not included"
        git clone --quiet "$source" "$clone"
        say "$(git -C "$clone" log -1 --format='%h %s')"
    else
        mkdir "$clone"
        tar -C "$source" --exclude ./target -cf - . | tar -C "$clone" -xf -
    fi
}

# Whether a program on the PATH would be absent on a fresh machine.
is_hidden() {
    case $1 in
    cargo-fmt | cargo-clippy | clang-"$version" | lld-"$version" | ld.lld-"$version") return 1 ;;
    cargo-*) return 0 ;;
    clang | clang++ | clang-[0-9]* | clang++-[0-9]* | lld | lld-[0-9]* | ld.lld | ld.lld-[0-9]*) [ -n "$version" ] ;;
    *) return 1 ;;
    esac
}

# Prints a replacement for the PATH entry $1: itself, or a folder of symbolic links ($2) to its programs that are not hidden.
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
    # Dangling links, so that programs installed later are found.
    [ -n "$version" ] || return 0
    for name in clang-"$version" lld-"$version" ld.lld-"$version"; do
        [ -L "$to/$name" ] || ln -s "$from/$name" "$to/$name"
    done
}

# Prints the PATH: the Rust toolchain, then the system's folders of the current PATH.
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

# Copies only the registry sections of Cargo's configuration: others may name folders and programs of this machine.
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

# Sets the array `environment`.
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
