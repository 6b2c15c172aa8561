#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What stands beside saved figures: date, commit, machine, command; and where they are saved.

record.py WHAT ROWS.json COMMAND saves rows of psrt-bench; it prints the path."""
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results"


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return {"cpu": names[0] if names else platform.machine(), "cores": os.cpu_count(),
            "kernel": platform.release(),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}


def commit():
    done = subprocess.run(["git", "describe", "--always", "--dirty=-modified", "--abbrev=7",
                           "--exclude=*"], cwd=HERE, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() or "unknown"


def begin(command):
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"date": now, "commit": commit(), "machine": machine(), "command": command}


def name(what, data):
    """WHAT-DATE-COMMIT, of files below RESULTS."""
    return f"{what}-{data['date'].replace(':', '')}-{data['commit']}"


def write(path, data):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=1)
        file.write("\n")
    print(f"wrote {path}", file=sys.stderr)


def save(what, data):
    write(RESULTS / f"{name(what, data)}.json", data)


def main():
    what, rows, command = sys.argv[1:]
    data = begin(command)
    with open(rows, encoding="utf-8") as file:
        data["rows"] = json.load(file)
    save(what, data)


if __name__ == "__main__":
    main()
