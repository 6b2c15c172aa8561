# SPDX-License-Identifier: Apache-2.0
"""A job over the hosts of a Lan, each task started by hand (docs/by-hand.md) in its namespace."""
import os
import pathlib
import secrets
import shutil
import subprocess
import tempfile
import threading

PORT = 7070


class Failed(Exception):
    """The job did not end as it should; its tasks have said why on the standard error."""


class Job:
    """`servers` and `workers` are lists: the host of each rank. The coordinator is on the first
    server's, or the first worker's where there are no servers."""

    def __init__(self, lan, servers, workers, bin_dir, security, env):
        self.lan, self.servers, self.workers, self.bin = lan, servers, workers, pathlib.Path(bin_dir)
        self.root = (servers or workers)[0]
        self.base = tempfile.mkdtemp(prefix="psrt-net-")
        self.key = f"psrt-job-key 1\nnonce={secrets.token_hex(16)}\nsecret={secrets.token_hex(32)}\n"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PSRT_")}
        self.env.update(PSRT_WORKERS=str(len(workers)), PSRT_SERVERS=str(len(servers)),
                        PSRT_COORDINATOR=f"tcp://{lan.addresses[self.root]}:{PORT}",
                        PSRT_SECURITY=security)
        self.env.update(env)
        self.tasks = []

    def job_dir(self, host):
        """Each host has its own, with the same key in it."""
        folder = pathlib.Path(self.base, f"host{host}")
        if not folder.exists():
            folder.mkdir(mode=0o700)
            with open(os.open(folder / "key", os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
                f.write(self.key)
        return str(folder)

    def start(self, host, role, rank, argv, out=subprocess.DEVNULL):
        env = {**self.env, "PSRT_ROLE": role, "PSRT_RANK": str(rank), "PSRT_JOB_DIR": self.job_dir(host),
               "PSRT_BIND_ADDRESS": self.lan.addresses[host]}
        task = subprocess.Popen(self.lan.on(host, argv), env=env, stdin=subprocess.DEVNULL, stdout=out,
                                text=True)
        self.tasks.append((f"{role}:{rank}", task))
        return task

    def run(self, argv, seconds):
        """The lines that worker 0 prints. `seconds` is the limit, after which all are killed."""
        psrtd = str(self.bin / "psrtd")
        overdue = threading.Timer(seconds, self.kill)
        overdue.start()
        try:
            self.start(self.root, "coordinator", 0, [psrtd, "--coordinator"])
            for rank, host in enumerate(self.servers):
                self.start(host, "server", rank, [psrtd])
            for rank, host in reversed(list(enumerate(self.workers))):
                worker = self.start(host, "worker", rank, argv, subprocess.PIPE if rank == 0 else
                                    subprocess.DEVNULL)
            lines = worker.stdout.read().splitlines()
            for name, task in self.tasks:
                if task.wait():
                    late = "" if overdue.is_alive() else f" after {seconds} s, the limit"
                    raise Failed(f"{name} ended with {task.returncode}{late}")
        finally:
            overdue.cancel()
            self.kill()
            for _, task in self.tasks:
                task.wait()
            shutil.rmtree(self.base, ignore_errors=True)
        return lines

    def kill(self):
        for _, task in self.tasks:
            task.kill()
