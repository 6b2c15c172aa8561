#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_install.sh BUILD_DIR VERSION PROGRAM...: installs into an empty prefix, moves it, and builds
# consumer.c against it through pkg-config and through find_package; runs both, and the programs. Also builds
# an optimizer as a plug-in, signum.c, and trains with it in a job of several processes.
set -euo pipefail
build=$1 version=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

fail() {
    echo "$*" >&2
    exit 1
}

cmake --install "$build" --prefix "$tmp/first" >"$tmp/install.log" || fail "$(cat "$tmp/install.log")"
mv "$tmp/first" "$tmp/prefix" # nothing may remember where it was installed
prefix=$tmp/prefix
libdir=$(dirname "$(find "$prefix" -name libpsrt.so)")

mkdir "$tmp/pc" "$tmp/cmake"
cp "$here/consumer.c" "$tmp/pc"
cd "$tmp/pc"
export PKG_CONFIG_PATH=$libdir/pkgconfig
[ "$(pkg-config --modversion psrt)" = "$version" ] || fail "psrt.pc: wrong version"
# shellcheck disable=SC2046 # flags are words
cc -std=c11 -Wall -Wextra -Werror -pedantic consumer.c $(pkg-config --cflags --libs psrt) -o consumer
[ "$(LD_LIBRARY_PATH=$libdir ./consumer)" = "$version" ] || fail "pkg-config consumer: wrong output"

# shellcheck disable=SC2046
cc -std=c11 -O2 -Wall -Wextra -Werror -pedantic -ffp-contract=off -shared -fPIC "$here/signum.c" \
    $(pkg-config --cflags psrt) -o libsignum.so
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic "$here/trainer.c" $(pkg-config --cflags --libs psrt) \
    -o trainer
export LD_LIBRARY_PATH=$libdir PSRT_PLUGINS=$tmp/pc/libsignum.so
[ "$(./trainer)" = trained ] || fail "plug-in: alone"
test -f "$prefix/share/psrt/job.schema.json" || fail "job.schema.json is not installed"
XDG_STATE_HOME=$tmp "$prefix/bin/psrt-launch" -s 2 -w 2 -- ./trainer >launch.log 2>&1 || fail "$(cat launch.log)"
[ "$(grep -c trained launch.log)" = 2 ] || fail "plug-in: $(cat launch.log)"
"$prefix/bin/psrt-info" | grep -q '^optimizer  signum ' || fail "psrt-info does not list the plug-in"
unset LD_LIBRARY_PATH PSRT_PLUGINS
diff <(sed -n '/^```c signum/,/^```/p' "$here/../../docs/optimizers.md" | sed '1d;$d') \
    <(sed 1d "$here/signum.c") || fail "docs/optimizers.md shows another signum.c"

cp "$here/consumer.c" "$tmp/cmake"
cat >"$tmp/cmake/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C)
find_package(psrt $version REQUIRED CONFIG)
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE psrt::psrt)
END
{
    cmake -S "$tmp/cmake" -B "$tmp/cmake/build" -DCMAKE_PREFIX_PATH="$prefix" &&
        cmake --build "$tmp/cmake/build"
} >"$tmp/cmake.log" 2>&1 || fail "$(cat "$tmp/cmake.log")"
[ "$("$tmp/cmake/build/consumer")" = "$version" ] || fail "find_package consumer: wrong output"

# No plug-in or internal header slipped in, none is missing.
source=$(cd "$here/../.." && pwd)
diff <(cd "$source/include" && find psrt -name '*.h' | sort) \
    <(cd "$prefix/include" && find . -type f | sed 's|^\./||' | sort) || fail "installed headers differ"

for program; do
    "$prefix/bin/$program" --help >/dev/null || fail "$program: does not run from the prefix"
done
