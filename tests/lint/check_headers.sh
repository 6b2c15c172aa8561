#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_headers.sh ROOT: every public header compiles alone, strictly, as C11 and as C++11.
set -euo pipefail
cd "$1/include"
count=0
while IFS= read -r header; do
    for language in "c -std=c11 -Wstrict-prototypes" "c++ -std=c++11"; do
        # Twice: the include guard works.
        # shellcheck disable=SC2086 # options are words
        printf '#include <%s>\n#include <%s>\n' "$header" "$header" |
            gcc -x $language -Wall -Wextra -Wpedantic -Wundef -Wshadow -Werror -fsyntax-only -I. -
    done
    count=$((count + 1))
done < <(find psrt -name '*.h' | sort)
echo "$count headers"
[ "$count" -gt 0 ]
