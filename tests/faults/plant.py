# SPDX-License-Identifier: Apache-2.0
"""Ends or stops a running process at a point of its code that is named by a function.

The first instruction of the function is overwritten through /proc/PID/mem, in that process alone: by a
breakpoint, at which the process dies as suddenly as by kill -9 (nobody handles SIGTRAP), or by a jump to
itself, at which a thread stays until the process is stopped and the instruction restored. So the product
needs no hooks, and any function of it or of libc can be such a point.
"""
import functools
import glob
import os
import platform
import signal
import subprocess
import time

BREAK, LOOP = {"x86_64": (b"\xcc", b"\xeb\xfe"),
               "aarch64": (b"\x00\x00\x20\xd4", b"\x00\x00\x00\x14")}.get(platform.machine(), (b"", b""))


@functools.lru_cache(None)
def symbols(path):
    """Offset in the file's image of each function, static ones too if it is not stripped."""
    found = {}
    for flags in (["-D"], []):
        out = subprocess.run(["nm", *flags, "--defined-only", path], capture_output=True, text=True)
        for line in out.stdout.splitlines():
            value, kind, name = line.split(maxsplit=2)
            if kind in "tTwWi":
                found[name.partition("@")[0]] = int(value, 16)
    return found


def mapping(pid, library):
    """Path and load address of a library in a process."""
    try:
        with open(f"/proc/{pid}/maps") as f:
            lines = [line.split() for line in f]
    except OSError:
        return None, 0
    for words in lines:
        if len(words) > 5 and os.path.basename(words[5]).startswith(library):
            return words[5], int(words[0].split("-")[0], 16) - int(words[2], 16)
    return None, 0


def address(pid, point):
    """Of `function` of libpsrt, or of `libc:function`; None where there is no such function."""
    library, _, function = point.rpartition(":")
    path, base = mapping(pid, {"": "libpsrt.so", "libc": "libc.so"}[library])
    offset = symbols(path).get(function) if path else None
    return base + offset if offset is not None else None


def send(pid, number):
    """A signal to a process that may have ended by itself."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def stop(pid):
    """SIGSTOP, and every thread stands. False: the process ended."""
    send(pid, signal.SIGSTOP)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        states = set()
        for stat in glob.glob(f"/proc/{pid}/task/*/stat"):
            try:
                with open(stat) as f:
                    states.add(f.read().rpartition(")")[2].split()[0])
            except OSError:
                pass
        if not states or "Z" in states:
            return False
        if states <= {"T", "t", "X"}:
            return True
        time.sleep(0.001)
    return False


def counters(pid):
    """Where each thread of a stopped process stands."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/syscall"):
        try:
            with open(path) as f:
                found.append(int(f.read().split()[-1], 16))
        except (OSError, ValueError):
            pass
    return found


class Planted:
    """Code overwritten at a point of a process. It is stopped while that is done."""

    def __init__(self, pid, point, code):
        self.pid, self.address = pid, address(pid, point) if code else None
        self.old = b""
        if self.address is None:
            return
        # Not under the feet of a thread that is just there.
        for _ in range(100):
            if not stop(pid):
                return
            inside = any(0 < pc - self.address < len(code) for pc in counters(pid))
            if not inside:
                self.old = self.write(code)
            send(pid, signal.SIGCONT)
            if not inside:
                return

    def write(self, code):
        with open(f"/proc/{self.pid}/mem", "r+b", buffering=0) as f:
            f.seek(self.address)
            old = f.read(len(code))
            f.seek(self.address)
            f.write(code)
        return old

    def reached(self):
        return self.address in counters(self.pid)

    def restore(self):
        """The process is stopped."""
        self.write(self.old)


def ended(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def die_at(pid, point, timeout, provoke=None):
    """True: the process died there. Else it is killed now, as one that never came there. `provoke` does
    what leads it there."""
    planted = Planted(pid, point, BREAK)
    if provoke:
        provoke()
    until = time.monotonic() + timeout
    while planted.old and time.monotonic() < until:
        if ended(pid):
            return True
        time.sleep(0.002)
    send(pid, signal.SIGKILL)
    return False


def stop_at(pid, point, timeout, provoke=None):
    """Leaves the process stopped; True: with a thread at the point."""
    planted = Planted(pid, point, LOOP)
    if provoke:
        provoke()
    until = time.monotonic() + timeout
    while planted.old:
        if not stop(pid):
            return False
        if planted.reached() or time.monotonic() > until:
            there = planted.reached()
            planted.restore()
            return there
        send(pid, signal.SIGCONT)
        time.sleep(0.005)
    stop(pid)
    return False
