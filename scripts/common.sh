# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced by the scripts of this folder, in the root of the tree.

# A line that stands out, on stderr: stdout belongs to what the script runs.
say() {
    printf '==> %s\n' "$*" >&2
}

# step TITLE COMMAND...
step() {
    say "$1"
    "${@:2}"
}

# build_preset PRESET [ARGS OF cmake --build]: configures and builds it with two jobs; compiler messages and progress are visible.
build_preset() {
    if command -v ccache >/dev/null; then
        export CMAKE_C_COMPILER_LAUNCHER=ccache
    fi
    step "configure $1" cmake --preset "$1" --log-level=WARNING
    step "build $1" cmake --build --preset "$1" --parallel "${JOBS:-2}" "${@:2}"
}

build_dir() {
    if [ "$1" = dev ]; then echo build; else echo "build-$1"; fi
}
