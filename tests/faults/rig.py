# SPDX-License-Identifier: Apache-2.0
"""A job under psrt-launch whose workers keep journals, and what may be done to its processes."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "launcher"))
BUILD = pathlib.Path(os.environ.get("PSRT_TEST_BUILD", HERE.parents[1] / "build"))
BIN = BUILD / "bin"
TEST_BIN = BUILD / "tests" / "bin"
CLOCK_SHIM = BUILD / "lib" / "libintegration_clock_shim.so"  # not with sanitizers
os.environ.setdefault("PSRT_TEST_LAUNCHER", str(BIN / "psrt-launch"))

from launchtest import pids, process_environ, process_text  # noqa: E402

import journal  # noqa: E402
import plant  # noqa: E402

SLOW = float(os.environ.get("PSRT_TEST_SLOW", "1"))  # sanitizer builds: longer leases and deadlines
LEASE = 1.2 * SLOW
PATIENCE = 60 * SLOW  # seconds; only shows that nothing hangs


class Failure(Exception):
    pass


class Tasks:
    """In the place of psrt-launch: processes that were started by hand."""

    def __init__(self):
        self.all = []

    def poll(self):
        codes = [p.poll() for p in self.all]
        if any(codes):
            return next(c for c in codes if c)
        return None if None in codes else 0

    returncode = property(poll)

    def kill(self):
        for p in self.all:
            p.kill()

    def wait(self):
        for p in self.all:
            p.wait()


class Rig:
    """One job, its processes and files. Use as a context: whatever happens, nothing is left."""

    worker = "faults_worker"

    def __init__(self, plan):
        self.plan = plan
        self.mark = f"FAULTS_MARK={uuid.uuid4().hex}"
        # Short, for the paths of sockets; in memory or on disk as TMPDIR says.
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="pf-", dir="/tmp"))
        self.data, self.tmp, self.logs = (self.root / n for n in ("d", "t", "l"))
        self.data.mkdir(), self.tmp.mkdir()
        self.control = journal.Control(self.data)
        self.notes, self.proc = [], None
        self.segments = set(os.listdir("/dev/shm"))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind:
            self.keep(error)
        for pid in self.marked():
            self.signal(pid, signal.SIGKILL)
        if self.proc:
            self.proc.kill()
            self.proc.wait()
        self.control.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def note(self, text):
        self.notes.append(f"{time.monotonic() - self.began:.3f} {text}")

    # ---- the job ----

    def environment(self):
        plan = self.plan
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PSRT_", "FAULTS_", "XDG_"))}
        name, value = self.mark.split("=")
        env.update({name: value, "TMPDIR": str(self.tmp), "XDG_STATE_HOME": str(self.root / "state"),
                    "FAULTS_DIR": str(self.data),
                    "FAULTS_SEED": str(plan.seed), "FAULTS_CONS": plan.consistency,
                    "FAULTS_DETERMINISTIC": str(int(plan.deterministic)),
                    "FAULTS_REFILL": str(plan.refill), "FAULTS_ELEMS": str(plan.elements),
                    "PSRT_HEARTBEAT": f"{LEASE / 12:.3f}s", "PSRT_LEASE": f"{LEASE}s",
                    "PSRT_RETRY": "200ms", "PSRT_SERVER_THREADS": str(plan.server_threads),
                    "PSRT_START_TIMEOUT": f"{PATIENCE / 2}s", "PSRT_LOG_LEVEL": "info",
                    "PSRT_LAUNCH_PSRTD": str(BIN / "psrtd")})
        # As a worker that found a bug; those whose context is lost leave its threads as they are.
        env["ASAN_OPTIONS"] = env.get("ASAN_OPTIONS", "") + ":exitcode=4"
        env["TSAN_OPTIONS"] = env.get("TSAN_OPTIONS", "") + ":exitcode=4:report_thread_leaks=0"
        if plan.clock_jumps and CLOCK_SHIM.exists():
            env["LD_PRELOAD"] = str(CLOCK_SHIM)
        return env

    def start(self):
        again, plan = HERE / "again.sh", self.plan
        argv = [BIN / "psrt-launch", "-w", str(plan.workers), "-s", str(plan.servers),
                "--log-dir", self.logs, "--grace", "3s", "--security", plan.security,
                "--transport", plan.transport, "--server-command", f"{again} {BIN}/psrtd", "--",
                again, TEST_BIN / self.worker]
        self.began = time.monotonic()
        with open(self.root / "launcher.log", "wb") as log:
            self.proc = subprocess.Popen([str(a) for a in argv], env=self.environment(), stdout=log,
                                         stderr=log, stdin=subprocess.DEVNULL)

    # ---- its processes ----

    def marked(self):
        mark = self.mark.encode()
        return [p for p in pids() if p != os.getpid() and mark in process_environ(p)]

    def task_marks(self, role, rank):
        """What it has in its environment."""
        return {f"PSRT_ROLE={role}".encode(), f"PSRT_RANK={rank}".encode()}

    def pid(self, role, rank):
        """The process itself, not the script that starts it again; None while there is none."""
        if role == "launcher":
            return self.proc.pid
        comm = self.worker.encode() if role == "worker" else b"psrtd"
        want = {self.mark.encode(), *self.task_marks(role, rank)}
        for p in pids():
            if process_text(p, "comm").strip() == comm and want <= set(process_environ(p)):
                if not plant.ended(p):
                    return p
        return None

    def signal(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def ready_pid(self, role, rank):
        found = []
        self.until(lambda: found.append(self.pid(role, rank)) or found[-1], f"{role}:{rank} runs")
        return found[-1]

    def hold(self, role, rank):
        return self.data / f"hold.{role}.{rank}"

    # ---- waiting ----

    def until(self, condition, what, timeout=PATIENCE):
        deadline = time.monotonic() + timeout
        while not condition():
            self.check_alive()
            if time.monotonic() > deadline:
                self.dump_stacks()
                raise Failure(f"hang: not within {timeout:.0f} s: {what}")
            time.sleep(0.01)

    def check_alive(self):
        if self.plan.launcher_dies:
            return
        for path in self.data.glob("ended.*"):
            if {"4", "2"} & set(path.read_text().split()):
                raise Failure(f"{path.name[6:]} met an error that faults do not explain; " + "; ".join(
                    f"worker:{j.rank} life {j.life}: {j.text()}" for j in self.journals()
                    if j.text()))
        if self.proc.poll() not in (None, 0):
            raise Failure(f"psrt-launch ended with {self.proc.returncode}")

    def journals(self):
        return journal.journals(self.data)

    def last_lives(self):
        return {j.rank: j for j in self.journals()}.values()

    def in_phase(self, phases, generation=None):
        lives = self.last_lives()
        return len(lives) == self.plan.workers and all(
            int(j.head["phase"]) in phases and
            (generation is None or int(j.head["generation"]) == generation) for j in lives)

    def running(self):
        """Every worker trains on the same tables, and all have begun an operation since `now`."""
        now = time.monotonic_ns()

        def busy():
            generation = self.control.generation
            if not self.in_phase({journal.RUNNING, journal.AT_GOAL, journal.LEFT}, generation):
                return False
            return all(len(r) and int(r["end"].max()) > now
                       for r in (j.records for j in self.last_lives()))

        self.until(busy, "all workers train")

    def finish(self):
        """Sets the goal, lets all read the final values, and waits for the job's end."""

        def ended():
            self.set_goal()
            if self.in_phase({journal.AT_GOAL}, self.control.generation):
                self.control.finish()
            self.ending()
            return self.proc.poll() is not None

        self.until(ended, "the job ends")
        if self.proc.returncode:
            raise Failure(f"psrt-launch ended with {self.proc.returncode}")

    def ending(self):
        """Of a rig that starts tasks anew itself."""

    def set_goal(self):
        """Far enough ahead that nobody is past it: workers look before each step."""
        generation = self.control.generation
        if self.control.goal(generation) == journal.NEVER:
            steps = [int(s) for j in self.last_lives() for s in j.head["step"]
                     if int(j.head["generation"]) == generation]
            if steps:
                self.control.set_goal(generation, max(steps) + 50)

    def nothing_left(self):
        def clean():
            return not self.marked() and not os.listdir(self.tmp)

        deadline = time.monotonic() + PATIENCE
        while not clean():
            if time.monotonic() > deadline:
                raise Failure(f"left: {[process_text(p, 'cmdline') for p in self.marked()]} "
                              f"{os.listdir(self.tmp)}")
            time.sleep(0.02)
        left = {n for n in set(os.listdir("/dev/shm")) - self.segments if "psrt" in n}
        if left:
            raise Failure(f"left in /dev/shm: {left}")

    def check(self):
        checker = journal.Checker(self.data, self.plan.consistency)
        errors = checker.run()
        if errors:
            raise Failure("\n  ".join(["wrong values:"] + errors))
        return checker.summary

    # ---- what is kept of a failure ----

    def dump_stacks(self):
        out = self.root / "stacks"
        with open(out, "wb") as f:
            for pid in self.marked():
                f.write(f"==== {pid} {process_text(pid, 'cmdline')}\n".encode())
                f.flush()
                if shutil.which("gdb"):
                    subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
                                   stdout=f, stderr=subprocess.DEVNULL, timeout=60,
                                   stdin=subprocess.DEVNULL)
                else:
                    for task in os.listdir(f"/proc/{pid}/task"):
                        f.write(task.encode() + b"\n" +
                                process_text(pid, f"task/{task}/stack") + b"\n")

    def keep(self, error):
        """Copies logs, journals and stacks to where a person looks at them."""
        base = os.environ.get("PSRT_TEST_KEEP", "/tmp")
        kept = pathlib.Path(base, f"psrt-faults-{self.plan.seed}")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.root, kept, ignore=shutil.ignore_patterns("t"), dirs_exist_ok=True)
        text = "\n".join([str(self.plan), *self.notes, f"{type(error).__name__}: {error}", ""])
        (kept / "story").write_text(text)
        error.args = (f"{error}\n  story, logs, journals: {kept}",)
