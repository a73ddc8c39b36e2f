#!/usr/bin/env bash
# Checks the Grafana dashboard against Grafana's published types (npm's @grafana/schema) with TypeScript's compiler. Requires node and npm.
set -euo pipefail
cd "$(dirname "$0")/.."

dashboard=$PWD/crates/telemetry/monitoring/grafana-dashboard.json
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm init -y >/dev/null
npm install --silent --no-fund --no-audit @grafana/schema@13.2.3 typescript@7.0.2
{
    echo 'import type { Dashboard } from "@grafana/schema";'
    echo 'export const dashboard: Dashboard ='
    cat "$dashboard"
    echo ';'
} >dashboard.ts
npx tsc --noEmit --strict --skipLibCheck --module esnext --target es2022 --moduleResolution bundler dashboard.ts
echo "dashboard: valid by @grafana/schema 13.2.3"
