#!/usr/bin/env bash
# Runs a command that runs tests, and says at the end how many there were, over all test programs. A test that is ignored did not
# compute anything: docs/testing.md says which are and why.
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
