#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_tree.py ROOT: every top folder has a README.md, every source file its licence line, nothing
is marked as left to do."""
import os
import re
import subprocess
import sys

SOURCES = (".c", ".h", ".cu", ".cuh", ".inc", ".py", ".sh", ".cmake", ".proto", "CMakeLists.txt")
LEFT_OVER = re.compile(r"\b(TODO|FIXME)\b")
LICENCE = "SPDX-License-Identifier: Apache-2.0"


def project_files(root):
    """Files of the project, known to git or new; outside a checkout, all that is not built."""
    command = ["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    run = subprocess.run(command, capture_output=True, check=False)
    if run.returncode == 0:
        return [name for name in run.stdout.decode().split("\0") if name]
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith(("build", "."))]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return found


def check_file(root, path):
    try:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (UnicodeDecodeError, FileNotFoundError):
        return []  # data, or deleted but not yet committed
    messages = []
    script = lines[0].startswith("#!")
    if (path.endswith(SOURCES) or script) and not any(LICENCE in line for line in lines[:2]):
        messages.append(f"{path}: no licence line at the top")
    for number, line in enumerate(lines, 1):
        if path != "tests/lint/check_tree.py" and LEFT_OVER.search(line):
            messages.append(f"{path}:{number}: something is left to do: {line.strip()}")
    return messages


def main():
    root = sys.argv[1]
    files = project_files(root)
    messages = []
    for top in sorted({path.split("/")[0] for path in files if "/" in path}):
        if not top.startswith(".") and f"{top}/README.md" not in files:
            messages.append(f"{top}/: has no README.md")
    for path in files:
        messages += check_file(root, path)
    for message in messages:
        print(message)
    print(f"{len(files)} files, {len(messages)} findings")
    return bool(messages) or not files


sys.exit(main())
