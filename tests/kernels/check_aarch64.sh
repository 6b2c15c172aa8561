#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_aarch64.sh ROOT WORK: builds kernels/ for aarch64 in the folder WORK and runs its tests under
# qemu's user emulation. Exit code 77, with the reason, where a package is missing.
#
# Only what kernels/ needs of base/ is built, and tests/support/runner.c stands for Criterion, so that the
# cross compiler and its libc are enough.
set -euo pipefail
root=$1 work=$2

skip() {
    echo "[SKIP] kernels for aarch64: $1"
    exit 77
}

cc=aarch64-linux-gnu-gcc
qemu=$(command -v qemu-aarch64-static || command -v qemu-aarch64) ||
    skip "no qemu-aarch64 (Debian package qemu-user-static)"
command -v $cc >/dev/null || skip "no $cc (Debian package gcc-aarch64-linux-gnu)"
echo 'int main(void) { return 0; }' | $cc -x c -static -o /dev/null - 2>/dev/null ||
    skip "no static libc for aarch64 (Debian package libc6-dev-arm64-cross)"

mkdir -p "$work"
cd "$work"
rm -f ./*.o kernels.a
# As cmake/PsrtTargets.cmake and kernels/CMakeLists.txt have them.
flags=(-std=c11 -D_GNU_SOURCE -DPSRT_OWN_TEST_RUNNER -g -Wall -Wextra -Wshadow -Werror
    -ffp-contract=off -fno-math-errno "-I$root" "-I$root/include" "-I$root/tests"
    "-DPSRT_SOURCE_DIR=\"$root\"")

# compile OPTIMISATION FILE...
compile() {
    local optimisation=$1 file name
    for file in "${@:2}"; do
        name=${file#"$root"/}
        $cc "${flags[@]}" "$optimisation" -c "$file" -o "${name//\//_}.o"
    done
}

shopt -s extglob
compile -O3 "$root"/kernels/cpu/!(avx*|*_avx2).c "$root"/kernels/optim/*.c
compile -O2 "$root"/kernels/*.c "$root"/base/{util,spec,log,status,philox}.c \
    "$root"/tests/support/runner.c
aarch64-linux-gnu-ar rcs kernels.a ./*.o

# run_test NAME [FLAGS]
run_test() {
    $cc "${flags[@]}" -O2 "${@:2}" -static "$root/tests/kernels/test_$1.c" kernels.a -lm -pthread \
        -o "test_$1"
    echo "== test_$1 on aarch64"
    "$qemu" "./test_$1" -j1
}
run_test kernels
run_test half
run_test reduce -DMAX_COUNT=4099 # emulated, as below
run_test optimizer -DMAX_N=37 # all of its 257 lengths take minutes under emulation
run_test optimizer_text
