# SPDX-License-Identifier: Apache-2.0
"""A job started by hand, one process a task, for tests that kill, stop and order them.

Every process is killed at the end of a test, whatever happened. No time is waited for by sleeping: an
answer has a deadline, and conditions are polled until a deadline.
"""
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

BIN = os.environ.get("PSRT_TEST_BIN", "build/bin")
AGENT = os.environ.get("PSRT_TEST_AGENT", "build/tests/bin/integration_agent")
SLOW = float(os.environ.get("PSRT_TEST_SLOW", "1"))  # sanitizer builds: longer deadlines
FAST_LEASE = {"PSRT_HEARTBEAT": "100ms", "PSRT_LEASE": f"{1.5 * SLOW}s"}


class Refused(Exception):
    """An agent answered `err STATUS text`."""

    def __init__(self, status, text):
        super().__init__(f"{status} {text}")
        self.status, self.text = status, text


class Task:
    def __init__(self, job, argv, env, stdin=None, pass_fds=()):
        self.log = tempfile.TemporaryFile()
        self.proc = subprocess.Popen(argv, env=env, stdin=stdin or subprocess.DEVNULL,
                                     stdout=subprocess.PIPE if stdin else self.log,
                                     stderr=self.log, pass_fds=pass_fds, preexec_fn=job.preexec)
        job.tasks.append(self)

    def kill(self, sig=signal.SIGKILL):
        self.proc.send_signal(sig)
        if sig == signal.SIGKILL:
            self.proc.wait()
        while sig == signal.SIGSTOP and not self.stands():
            time.sleep(0.001)

    def stands(self):
        """Every thread is stopped: one takes the signal and then halts the others, which may still
        serve somebody until they had their turn on a busy machine."""
        tasks = f"/proc/{self.proc.pid}/task"
        for tid in os.listdir(tasks):
            with open(f"{tasks}/{tid}/stat") as f:
                if f.read().rpartition(")")[2].split()[0] not in "TtZX":
                    return False
        return True

    def wait(self, timeout=20):
        return self.proc.wait(timeout * SLOW)

    def alive(self):
        return self.proc.poll() is None

    def output(self):
        """Not by seek and read: the process writes at the offset of the same open file."""
        fd = self.log.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")


class Agent(Task):
    """A worker driven by commands (agent.c)."""

    def __init__(self, job, env, pass_fds=()):
        super().__init__(job, [AGENT], env, stdin=subprocess.PIPE, pass_fds=pass_fds)
        self.buf = b""

    def send(self, line):
        self.proc.stdin.write(line.encode() + b"\n")
        self.proc.stdin.flush()

    def receive(self, timeout=30):
        deadline = time.monotonic() + timeout * SLOW
        while b"\n" not in self.buf:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.proc.stdout], [], [], left)[0]:
                raise TimeoutError(f"no answer within {timeout} s; log:\n{self.output()}")
            data = os.read(self.proc.stdout.fileno(), 65536)
            if not data:
                raise EOFError(f"agent ended with {self.proc.wait()}; log:\n{self.output()}")
            self.buf += data
        line, self.buf = self.buf.split(b"\n", 1)
        word, _, rest = line.decode().partition(" ")
        if word == "ok":
            return rest
        status, _, text = rest.partition(" ")
        raise Refused(status, text)

    def cmd(self, line, timeout=30):
        self.send(line)
        return self.receive(timeout)

    def info(self):
        return dict(w.split("=", 1) for w in self.cmd("info").split())

    def quit(self, timeout=20):
        self.send("quit")
        return self.wait(timeout)


class Job:
    def __init__(self, workers=1, servers=1, job_dir=None, preexec=None, **env):
        self.workers, self.servers, self.preexec = workers, servers, preexec
        self.tasks = []
        self.base = tempfile.mkdtemp(prefix="psrt-test-")
        self.dir = job_dir or self.base
        os.makedirs(self.dir, mode=0o700, exist_ok=True)
        self.nonce, self.secret = secrets.token_hex(16), secrets.token_hex(32)
        self.write_key()
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(128)
        self.port = self.listener.getsockname()[1]
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PSRT_")}
        self.env.update(PSRT_JOB_DIR=self.dir, PSRT_WORKERS=str(workers),
                        PSRT_SERVERS=str(servers), PSRT_START_TIMEOUT=f"{30 * SLOW}s",
                        PSRT_COORDINATOR=f"tcp://127.0.0.1:{self.port}")
        self.env.update(FAST_LEASE)
        self.env.update(env)

    def write_key(self):
        path = os.path.join(self.dir, "key")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as f:
            f.write(f"psrt-job-key 1\nnonce={self.nonce}\nsecret={self.secret}\n")

    def task_env(self, role, rank, env):
        return {**self.env, "PSRT_ROLE": role, "PSRT_RANK": str(rank), **env}

    def coordinator(self, **env):
        fd = self.listener.fileno()
        e = self.task_env("coordinator", 0, {"PSRT_LISTEN_FD": str(fd), **env})
        return Task(self, [f"{BIN}/psrtd", "--coordinator"], e, pass_fds=(fd,))

    def server(self, rank, **env):
        return Task(self, [f"{BIN}/psrtd"], self.task_env("server", rank, env))

    def worker(self, rank, **env):
        return Agent(self, self.task_env("worker", rank, env))

    def start(self, workers=None):
        """Coordinator, servers and joined workers: all, or the first ones."""
        self.coord = self.coordinator()
        self.srv = [self.server(r) for r in range(self.servers)]
        w = [self.worker(r) for r in range(workers or self.workers)]
        for a in w:
            a.send("create")
        for a in w:
            a.receive(60)
        return w

    def stop(self):
        for t in self.tasks:
            if t.alive():
                t.kill()
            if t.proc.stdin:
                t.proc.stdin.close()
            if t.proc.stdout:
                t.proc.stdout.close()
            t.log.close()
        self.listener.close()
        shutil.rmtree(self.base, ignore_errors=True)


def answers(agents, line, timeout=30):
    """The command on all at once; OK or (status, text) of each."""
    for a in agents:
        a.send(line)
    out = []
    for a in agents:
        try:
            a.receive(timeout)
            out.append("OK")
        except Refused as e:
            out.append((e.status, e.text))
    return out


def every(agents, line, timeout=30):
    """The command on all at once; the answers."""
    for a in agents:
        a.send(line)
    return [a.receive(timeout) for a in agents]


class JobTest(unittest.TestCase):
    def job(self, *args, **kw):
        job = Job(*args, **kw)
        self.addCleanup(job.stop)
        return job

    def started(self, *args, **kw):
        job = self.job(*args, **kw)
        return job, job.start()

    def until(self, condition, what, timeout=20):
        deadline = time.monotonic() + timeout * SLOW
        while not condition():
            if time.monotonic() > deadline:
                self.fail(f"not within {timeout} s: {what}")
            time.sleep(0.02)

    def refused(self, status, agent, line, timeout=30):
        with self.assertRaises(Refused) as caught:
            agent.cmd(line, timeout)
        self.assertEqual(caught.exception.status, status, caught.exception.text)
        return caught.exception.text

    def finish(self, job, agents):
        """Every worker leaves; servers and coordinator follow with exit code 0."""
        for a in agents:
            a.send("destroy")
        for a in agents:
            a.receive()
            self.assertEqual(a.quit(), 0, a.output())
        for t in job.srv + [job.coord]:
            self.assertEqual(t.wait(10), 0, t.output())
