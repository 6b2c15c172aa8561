# SPDX-License-Identifier: Apache-2.0
"""Starts psrt-launch in a surrounding of its own and finds out what it leaves behind."""
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

LAUNCHER = os.environ["PSRT_TEST_LAUNCHER"]
FAKE_PSRTD = str(pathlib.Path(__file__).with_name("fake_psrtd"))
DEADLINE = 60  # seconds; only shows that nothing hangs

# A worker that says that it is ready, and what it is told to do when it gets SIGTERM.
STUBBORN = "trap '' TERM HUP INT; echo ready; while :; do sleep 1000; done"
PATIENT = "echo ready; exec sleep 1000"


def process_environ(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def process_text(pid, name):
    try:
        return pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def parent(pid):
    tail = process_text(pid, "stat").rpartition(b")")[2].split()
    return int(tail[1]) if len(tail) > 1 else 0


class LaunchTest(unittest.TestCase):

    def setUp(self):
        # In /tmp whatever TMPDIR says: the default length of the directory's path is meant.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="pl-", dir="/tmp"))
        self.tmp = self.root / "t"
        self.tmp.mkdir()
        self.mark = "LAUNCHTEST_MARK=" + uuid.uuid4().hex
        self.env = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("PSRT_", "OMP_", "OPENBLAS_", "XDG_", "PYTHON"))
        }
        name, value = self.mark.split("=")
        self.env.update({name: value, "TMPDIR": str(self.tmp), "XDG_STATE_HOME": str(self.root / "state"), "PSRT_LAUNCH_PSRTD": FAKE_PSRTD})
        self.started = []

    def tearDown(self):
        # What a failed test left; by the mark, so it is ours.
        for pid in self.marked():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for proc in self.started:
            proc.wait()
            for stream in (proc.stdout, proc.stderr):
                if stream:
                    stream.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # ---- running ----

    def start(self, *args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs):
        env = {**self.env, **kwargs.pop("env", {})}
        command = [*kwargs.pop("before", []), LAUNCHER, *args]
        proc = subprocess.Popen(command,
                                env=env,
                                stdin=subprocess.DEVNULL,
                                stdout=stdout,
                                stderr=stderr,
                                **kwargs)
        self.started.append(proc)
        return proc

    def end(self, proc):
        """Waits for the launcher and returns (code, stdout, stderr)."""
        out, err = proc.communicate(timeout=DEADLINE)
        return proc.returncode, out.decode(errors="replace"), err.decode(errors="replace")

    def launch(self, *args, **kwargs):
        return self.end(self.start(*args, **kwargs))

    def kill(self, *victims):
        """With -9, all at one time: stopped first, so that none sees another die."""
        self.assertTrue(victims)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in victims:
                os.kill(pid, number)

    def shell(self, script, *flags, **kwargs):
        """Two workers run the script; what does not leave by itself is ended soon."""
        return self.launch("-w", "2", "-s", "1", "--grace", "300ms", *flags, "--", "/bin/sh", "-c",
                           script, **kwargs)

    def read_until(self, proc, text, count=1, stream=None):
        """Reads the launcher's stdout until `text` was seen `count` times."""
        stream = stream or proc.stdout
        seen, until = b"", time.monotonic() + DEADLINE
        while seen.count(text.encode()) < count:
            ready, _, _ = select.select([stream], [], [], max(0, until - time.monotonic()))
            self.assertTrue(ready, f"no {text!r} in {seen!r}")
            data = os.read(stream.fileno(), 65536)
            self.assertTrue(data, f"end of output without {text!r}: {seen!r}")
            seen += data
        return seen.decode(errors="replace")

    # ---- what is there, and what is left ----

    def marked(self):
        mark = self.mark.encode()
        return [p for p in pids() if p != os.getpid() and mark in process_environ(p)]

    def tasks(self, role, rank):
        want = {f"PSRT_ROLE={role}".encode(), f"PSRT_RANK={rank}".encode()}
        return [p for p in self.marked() if want <= set(process_environ(p))]

    def named(self, comm):
        return [p for p in self.marked() if process_text(p, "comm").strip() == comm.encode()]

    def wait_for(self, condition, what):
        until = time.monotonic() + DEADLINE
        while not condition():
            self.assertLess(time.monotonic(), until, what() if callable(what) else what)
            time.sleep(0.01)

    def files_left(self):
        # A program with ThreadSanitizer that is killed while it starts leaves a file of its own.
        return [name for name in os.listdir(self.tmp) if not name.startswith("tsan.")]

    def describe_left(self):
        return [(p, process_text(p, "cmdline")) for p in self.marked()], self.files_left()

    def assert_nothing_left(self, at_once=False):

        def clean():
            return not self.marked() and not self.files_left()

        if not at_once:
            self.wait_for(clean, lambda: f"left: {self.describe_left()}")
        self.assertTrue(clean(), f"left: {self.describe_left()}")

    def job_dir(self):
        dirs = list(self.tmp.iterdir())
        self.assertEqual(len(dirs), 1)
        return dirs[0]


def main():
    # No byte-code beside the sources, a failure's name first.
    sys.dont_write_bytecode = True
    unittest.main(verbosity=2)
