#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh PROGRAM CORPUS FOUND: fuzzes for PSRT_FUZZ_SECONDS (60) from the corpus and what earlier runs
# found. An input that fails is left in FOUND, named crash-*, timeout-* or leak-*.
set -euo pipefail
program=$1 corpus=$2 found=$3
mkdir -p "$found/corpus"
if ! "$program" -max_total_time="${PSRT_FUZZ_SECONDS:-60}" -max_len=4096 -timeout=60 -rss_limit_mb=2048 \
    -print_final_stats=1 -artifact_prefix="$found/" "$found/corpus" "$corpus"; then
    echo "replay it with: build/tests/bin/${program##*/} FILE" >&2
    exit 1
fi
