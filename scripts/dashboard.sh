#!/usr/bin/env bash
# The Grafana dashboard, crates/telemetry/monitoring/grafana-dashboard.json. Requires node and npm.
#
#   dashboard.sh            checks it against Grafana's published types (npm's @grafana/schema) with TypeScript's compiler
#   dashboard.sh picture    draws it into docs/dashboard.png: the example `monitored` works for some minutes, Prometheus scrapes it, and Grafana's components
#                           (npm's @grafana/ui) draw the panels in a browser. Requires Prometheus, which `setup.sh numpy target/numpy` unpacks, and Chromium:
#                           $ELINVAR_CHROMIUM, or `chromium`
set -euo pipefail
cd "$(dirname "$0")/.."

monitoring=$PWD/crates/telemetry/monitoring
repository=$PWD
folder=$(mktemp -d)
programs=()
trap 'kill "${programs[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

die() {
    echo "dashboard: $*" >&2
    exit 1
}

check() {
    cd "$folder"
    npm init -y >/dev/null
    npm install --silent --no-fund --no-audit @grafana/schema@13.2.3 typescript@7.0.2
    {
        echo 'import type { Dashboard } from "@grafana/schema";'
        # JSON has the values of enumerations as text.
        echo 'type Json<T> = T extends string ? `${T}` : T extends (infer E)[] ? Json<E>[] : T extends object ? { [K in keyof T]: Json<T[K]> } : T;'
        echo 'export const dashboard: Json<Dashboard> ='
        cat "$monitoring/grafana-dashboard.json"
        echo ';'
    } >dashboard.ts
    npx tsc --noEmit --strict --skipLibCheck --module esnext --target es2022 --moduleResolution bundler dashboard.ts
    echo "dashboard: valid by @grafana/schema 13.2.3"
}

# The page and what it loads, in $folder/site.
page() {
    local site=$folder/site
    cp "$monitoring/grafana-dashboard.json" "$folder"
    cp -r "$monitoring/picture" "$folder"
    cd "$folder/picture"
    # esbuild needs no script of its package; others are of no use here.
    npm install --silent --no-fund --no-audit --ignore-scripts
    npx tsc --noEmit -p .
    npx esbuild page.tsx --bundle --minify --jsx=automatic --define:process.env.NODE_ENV='"production"' --outdir="$site" \
        --loader:.ttf=empty --loader:.woff=file --loader:.woff2=file --log-level=warning
    cp page.html "$site/index.html"
    mkdir -p "$site/public/build/img"
    cp -r node_modules/@grafana/ui/dist/public/img/icons "$site/public/build/img"
    cd "$repository"
}

# Waits for a line of a file that matches, and prints it.
line_of() {
    local file=$1 pattern=$2
    for _ in $(seq 600); do
        grep -m 1 -E "$pattern" "$file" 2>/dev/null && return
        sleep 0.1
    done
    die "no line \`$pattern\` in $file: $(tail -n 5 "$file")"
}

browse() {
    "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=30000 --user-data-dir="$folder/user" "$@" 2>/dev/null
}

picture() {
    local seconds=$1 port target begin address document height problem
    local prometheus=${ELINVAR_COLLECTORS:-target/numpy/bin}/prometheus browser=${ELINVAR_CHROMIUM:-chromium}
    [ -x "$prometheus" ] || die "$prometheus is missing: run scripts/setup.sh numpy target/numpy"
    command -v "$browser" >/dev/null || die "$browser is missing: install Debian's package \`chromium\`, or set ELINVAR_CHROMIUM"
    cargo build -p elinvar-telemetry --example monitored
    page
    ELINVAR_CACHE=$folder/cache "${CARGO_TARGET_DIR:-target}/debug/examples/monitored" 127.0.0.1:0 "$seconds" >"$folder/monitored.log" 2>&1 &
    local program=$!
    programs+=("$program")
    begin=$(date +%s)
    target=$(line_of "$folder/monitored.log" '^http://' | cut -d/ -f3)
    cat >"$folder/prometheus.yml" <<END
global: {scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 2s}
rule_files: [$monitoring/alerts.yml]
scrape_configs:
- job_name: elinvar
  static_configs: [{targets: ['$target']}]
END
    port=$(node -e 'const server = require("net").createServer().listen(0, "127.0.0.1", () => { console.log(server.address().port); server.close(); })')
    address=127.0.0.1:$port
    "$prometheus" --config.file="$folder/prometheus.yml" --storage.tsdb.path="$folder/data" --web.listen-address="$address" \
        --web.user-assets="$folder/site" >"$folder/prometheus.log" 2>&1 &
    programs+=("$!")
    echo "dashboard: http://$target/metrics is scraped for $seconds s"
    wait "$program" || die "the example failed: $(tail -n 5 "$folder/monitored.log")"
    # The first rates need some samples.
    address="http://$address/user/?from=$((begin + 20))&to=$((begin + seconds - 2))"
    document=$(browse --dump-dom "$address")
    problem=$(sed -n 's/.*<html[^>]*data-\(error\|empty\)="\([^"]\+\)".*/\1: \2/p' <<<"$document")
    [ -z "$problem" ] || die "$problem"
    height=$(sed -n 's/.*<html[^>]*data-height="\([0-9]*\)".*/\1/p' <<<"$document")
    [ -n "$height" ] || die "the page was not drawn"
    browse --window-size="1600,$height" --screenshot="$folder/dashboard.png" "$address"
    # With a palette it has a third of the size.
    (cd "$folder/picture" && node -e 'require("sharp")(process.argv[1]).png({ palette: true, effort: 10 }).toFile(process.argv[2])' \
        "$folder/dashboard.png" "$repository/docs/dashboard.png")
    echo "dashboard: docs/dashboard.png by @grafana/ui 13.2.3, $(stat -c %s docs/dashboard.png) bytes"
}

case ${1:-check} in
check) check ;;
picture) picture "${2:-300}" ;;
*) die "usage: dashboard.sh [check | picture [SECONDS]]" ;;
esac
