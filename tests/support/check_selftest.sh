#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_selftest.sh PROGRAM [address|thread]: runs the self test of the test runner case by case and
# checks that each deliberate failure is reported, by the exit code and by the closing line.
set -euo pipefail
program=$1 sanitizer=${2:-}
bad=0

# expect CASE EXIT(0|1) COUNTS [TEXT]: COUNTS is a pattern of the closing line, TEXT one of the output
expect() {
    local rc=0 out
    out=$("$program" --filter "$1" 2>&1) || rc=$?
    [ "$rc" -eq 0 ] || rc=1
    if [ "$rc" -ne "$2" ] || ! grep -Eq "Synthesis: $3" <<<"$out" || ! grep -Eq "${4:-}" <<<"$out"; then
        printf '%s: wanted exit %s, "%s" and "%s", got exit %s and\n%s\n' \
            "$1" "$2" "$3" "${4:-}" "$rc" "$out"
        bad=1
    fi
}

expect good/plain 0 'Tested: 1 \| Passing: 1 \| Failing: 0 \| Crashing: 0'
expect good/fixture 0 'Tested: 1 \| Passing: 1 \| Failing: 0 \| Crashing: 0'
expect good/disabled 0 'Tested: 0 .* Failing: 0 \| Crashing: 0'
expect good/skipped 0 'Tested: .* Failing: 0 \| Crashing: 0' 'the reason is shown'
expect bad/assert_stops 1 'Tested: 1 \| Passing: 0 \| Failing: 1 \| Crashing: 0' 'one is 1'
expect bad/expect_continues 1 'Tested: 1 \| Passing: 0 \| Failing: 1 \| Crashing: 1'
expect bad/expect 1 'Tested: 1 \| Passing: 0 \| Failing: 1 \| Crashing: 0'
expect bad/crash 1 'Tested: 1 \| Passing: 0 \| Failing: 1 \| Crashing: 1'
expect bad/hang 1 'Tested: 1 \| Passing: 0 \| Failing: 1' '[Tt]imed out'
if [ -n "$sanitizer" ]; then
    expect bad/early_exit 1 'Tested: 1 \| Passing: 0 \| Failing: 1' 'before the test was over'
fi
case $sanitizer in
address) expect leak/leak 1 'Tested: 1 \| Passing: 0 \| Failing: 1' 'LeakSanitizer' ;;
thread) expect race/race 1 'Tested: 1 \| Passing: 0 \| Failing: 1' 'data race' ;;
esac
exit $bad
