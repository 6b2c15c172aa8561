#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_includes.py [ROOT | --selftest]: fails on an #include against the order of the layers.

The order is that of docs/architecture.md. A layer is a folder; the table says which layers its files
may include besides themselves and the public headers. --selftest checks that forbidden includes are
found."""
import os
import re
import sys
import tempfile

PUBLIC, EXT = "include/psrt", "include/psrt/ext"
BELOW_RUNTIME = {"base", "kernels", "transport", PUBLIC, EXT}
CORE = BELOW_RUNTIME | {"runtime/wire", "runtime/core"}
ROLES = {"runtime/server", "runtime/worker", "runtime/coll", "runtime/remote"}

# layer -> layers it may include. The most specific folder of a file is its layer.
ALLOWED = {
    PUBLIC: set(),
    EXT: {PUBLIC},
    "base": {PUBLIC, EXT},
    "kernels": {"base", PUBLIC, EXT},
    "transport": {"base", PUBLIC, EXT},
    "runtime/wire": BELOW_RUNTIME,
    "runtime/core": BELOW_RUNTIME | {"runtime/wire"},
    "runtime/cluster": CORE,
    "runtime/server": CORE | {"runtime/cluster"},
    "runtime/worker": CORE | {"runtime/cluster", "runtime/coll"},
    "runtime/coll": CORE | {"runtime/cluster"},
    "runtime/remote": CORE | {"runtime/cluster"},
    "runtime/api": CORE | {"runtime/cluster"} | ROLES,
    "launcher": {"base", PUBLIC},
    "bindings": {PUBLIC},
    "tools": {PUBLIC},
    "examples": {PUBLIC},
    "benchmarks": {PUBLIC, EXT},
}
TOPS = sorted({layer.split("/")[0] for layer in ALLOWED})
SUFFIXES = (".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".inc")
INCLUDE = re.compile(r'^\s*#\s*include(?:_next)?\s*(["<])([^">]+)[">]', re.M)


def layer_of(path):
    """The layer of a path relative to the root, None outside of all layers."""
    folder = os.path.dirname(path)
    while folder:
        if folder in ALLOWED:
            return folder
        folder = os.path.dirname(folder)
    return None


def resolve(root, path, quote, name):
    """Path relative to the root that an include names; None for a header of the system."""
    if name.startswith("psrt/"):
        return os.path.normpath("include/" + name)
    beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
    if quote == '"' and os.path.exists(os.path.join(root, beside)):
        return beside
    name = os.path.normpath(name)
    if "/" in name and name.split("/")[0] in TOPS + ["tests", ".."]:
        return name
    # A header that is generated in the build tree (or a header of the system).
    return beside if quote == '"' else None


def check(root):
    """Messages about forbidden includes, and the number of files read."""
    messages, files = [], 0
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if not name.endswith(SUFFIXES):
                    continue
                path = os.path.relpath(os.path.join(folder, name), root)
                files += 1
                messages += check_file(root, path)
    return messages, files


def check_file(root, path):
    own = layer_of(path)
    if own is None:
        return [f"{path}: belongs to no layer of {os.path.basename(__file__)}"]
    with open(os.path.join(root, path), encoding="utf-8") as file:
        text = file.read()
    messages = []
    for match in INCLUDE.finditer(text):
        target = resolve(root, path, *match.groups())
        if target is None:
            continue
        layer = layer_of(target)
        if layer != own and layer not in ALLOWED[own]:
            line = text.count("\n", 0, match.start(2)) + 1
            messages.append(f"{path}:{line}: {own} must not include {target}")
    return messages


def selftest():
    # (file, include line, forbidden?)
    cases = [
        ("base/a.c", '#include "base/util.h"', False),
        ("base/a.c", "#include <psrt/status.h>", False),
        ("base/a.c", '#include "kernels/kernels.h"', True),
        ("base/a.c", '#include "../transport/transport.h"', True),
        ("kernels/cpu/a.c", '#include "kernels/kernels.h"', False),
        ("kernels/a.c", '#include "transport/frame.h"', True),
        ("transport/shm/a.c", '#include "base/log.h"', False),
        ("transport/shm/a.c", "#include <zmq.h>", False),
        ("transport/shm/a.c", '#include "kernels/kernels.h"', True),
        ("transport/a.c", '#include "runtime/core/net.h"', True),
        ("runtime/wire/a.c", '#include "runtime/core/net.h"', True),
        ("runtime/wire/a.c", '#include "control.pb-c.h"', False),
        ("runtime/core/a.c", '#include "runtime/wire/control.pb-c.h"', False),
        ("runtime/core/a.c", '#include "runtime/cluster/member.h"', True),
        ("runtime/cluster/a.c", '# include "runtime/server/server.h"', True),
        ("runtime/server/a.c", '#include "runtime/cluster/member.h"', False),
        ("runtime/server/a.c", '#include "runtime/worker/worker.h"', True),
        ("runtime/worker/a.c", '#include "runtime/server/server.h"', True),
        ("runtime/coll/a.c", '#include "runtime/worker/worker.h"', True),
        ("runtime/worker/a.c", '#include "runtime/coll/coll.h"', False),
        ("runtime/remote/a.c", '#include "runtime/coll/coll.h"', True),
        ("runtime/worker/a.c", '#include "runtime/api/context.h"', True),
        ("runtime/api/a.c", '#include "runtime/server/server.h"', False),
        ("runtime/other/a.c", "#include <stdio.h>", True),
        ("launcher/a.c", '#include "base/topology.h"', False),
        ("launcher/a.c", '#include "transport/transport.h"', True),
        ("launcher/a.c", "#include <uv.h>", False),
        ("tools/a.c", "#include <psrt/psrt.h>", False),
        ("tools/a.c", '#include "base/util.h"', True),
        ("tools/a.c", "#include <psrt/ext/transport_v1.h>", True),
        ("examples/mnist/a.c", '#include "idx.h"', False),
        ("examples/mnist/a.c", '#include "base/util.h"', True),
        ("bindings/python/a.c", '#include "runtime/api/context.h"', True),
        ("benchmarks/a.c", "#include <psrt/ext/transport_v1.h>", False),
        ("benchmarks/a.c", '#include "kernels/kernels.h"', True),
        ("include/psrt/a.h", "#include <psrt/ext/transport_v1.h>", True),
        ("include/psrt/ext/a.h", "#include <psrt/psrt.h>", False),
        ("base/a.c", '#include "tests/support/test.h"', True),
    ]
    bad = 0
    for path, line, forbidden in cases:
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write("/* a file */\n" + line + "\n")
            messages, files = check(root)
        if files != 1 or bool(messages) != forbidden:
            print(f"{path}: {line}: wanted {forbidden}, got {messages} in {files} files")
            bad += 1
    print(f"{len(cases)} cases, {bad} wrong")
    return bad


def main():
    if sys.argv[1:] == ["--selftest"]:
        return selftest() != 0
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    messages, files = check(root)
    for message in messages:
        print(message)
    print(f"{files} files, {len(messages)} forbidden includes")
    return bool(messages) or files == 0


sys.exit(main())
