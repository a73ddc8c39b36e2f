#!/usr/bin/env bash
# Runs a test command and prints the totals over all test programs. An ignored test has not run; docs/testing.md lists which are
# ignored and why.
#
#   summed.sh COMMAND...
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" 2>&1 | tee "$log"
status=${PIPESTATUS[0]}
awk '/^test result: / { programs += 1; passed += $4; failed += $6; ignored += $8 }
     END { if (programs) printf "tests: %d passed, %d failed, %d ignored, in %d programs\n", passed, failed, ignored, programs }' "$log"
exit "$status"
