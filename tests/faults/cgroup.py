# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup, version 1 or 2, into which a running process is put."""
import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")


class Memory:
    """`limit` bytes for what its processes charge from now on. OSError where that is not possible."""

    def __init__(self, limit):
        name = f"psrt-faults-{os.getpid()}"
        if (ROOT / "memory" / "memory.limit_in_bytes").exists():
            self.path, file = ROOT / "memory" / name, "memory.limit_in_bytes"
        elif "memory" in (ROOT / "cgroup.subtree_control").read_text().split():
            self.path, file = ROOT / name, "memory.max"
        else:
            raise OSError("no memory cgroups here")
        self.path.mkdir()
        try:
            (self.path / file).write_text(str(limit))
        except OSError:
            self.path.rmdir()
            raise

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def close(self):
        """What still lives there goes back to where this process is."""
        own = ROOT / "memory" if self.path.parent.name == "memory" else ROOT
        for pid in (self.path / "cgroup.procs").read_text().split():
            try:
                (own / "cgroup.procs").write_text(pid)
            except OSError:
                pass  # it ended
        for _ in range(500):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.01)  # one that was killed has not gone yet
        return None
