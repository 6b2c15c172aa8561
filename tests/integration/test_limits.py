# SPDX-License-Identifier: Apache-2.0
"""Descriptors, memory, long paths, clocks, namespaces, leaks."""
import os
import resource
import shutil
import subprocess
import tempfile
import unittest

from job import Agent, JobTest, SLOW, every

BIG = 700_000
plain_only = unittest.skipIf(SLOW != 1, "address space and RSS mean nothing under a sanitizer")


def limited(which, value):
    return lambda: resource.setrlimit(which, (value, value))


class Limits(JobTest):
    def test_no_descriptors_left(self):
        """64 descriptors do not serve 20 workers: whoever cannot go on says why; nobody aborts."""
        job = self.job(20, 2, PSRT_START_TIMEOUT="10s")
        job.preexec = limited(resource.RLIMIT_NOFILE, 64)
        job.coordinator(), job.server(0), job.server(1)
        job.preexec = None
        w = [job.worker(r) for r in range(20)]
        for a in w:
            a.send("create")
        failed = 0
        for a in w:
            try:
                a.receive(60)
            except Exception as e:
                self.assertNotIsInstance(e, (EOFError, TimeoutError), str(e))
                failed += 1
        if failed == 0:  # all fitted: then everything must work
            every(w, "table t n=1000 opt=none", 60)
            every(w, "push_pull t", 60)
        else:
            logs = "".join(t.output() for t in job.tasks)
            self.assertIn("RLIMIT_NOFILE", logs)
        for t in job.tasks:
            code = t.proc.poll()
            self.assertTrue(code is None or code >= 0, f"died of signal {code}: {t.output()}")

    @plain_only
    def test_no_memory_for_a_table(self):
        job = self.job(1, 1)
        job.coord = job.coordinator()
        job.preexec = limited(resource.RLIMIT_AS, 1 << 30)
        job.srv = [job.server(0)]
        job.preexec = None
        w = job.worker(0)
        w.cmd("create")
        text = self.refused("PSRT_ERR_NO_MEMORY", w, f"table huge n={1 << 32} mem=user")
        self.assertIn("huge", text)
        self.assertIn("server:0", text)
        w.cmd("table small n=1000 opt=none")
        w.cmd("fill small 1")
        w.cmd("push_pull small")
        self.finish(job, [w])

    @plain_only
    def test_no_memory_for_a_buffer(self):
        job = self.job(1, 1)
        job.coord, job.srv = job.coordinator(), [job.server(0)]
        job.preexec = limited(resource.RLIMIT_AS, 1 << 30)
        w = job.worker(0)
        w.cmd("create")
        self.refused("PSRT_ERR_NO_MEMORY", w, f"table huge n={1 << 30}")
        w.cmd("table small n=1000 opt=none")
        w.cmd("push_pull small")
        self.finish(job, [w])

    def test_job_directories_of_any_length(self):
        base = tempfile.mkdtemp(prefix="p")
        self.addCleanup(shutil.rmtree, base)
        for length in (20, 80, 90, 95, 100, 105, 106, 107, 108, 109, 110, 120, 150, 200, 300):
            path = base + "/"
            while len(path) < length:
                path += "ü" if len(path) % 7 == 0 else "d" if len(path) % 60 else "/"
            job, w = self.started(1, 1, job_dir=path.rstrip("/"), PSRT_TRANSPORT="shm")
            every(w, f"table t n={BIG} opt=none")
            every(w, "push_pull t")
            self.finish(job, w)

    def test_processes_in_their_own_user_namespaces(self):
        if subprocess.run(["unshare", "--user", "--map-root-user", "true"],
                          capture_output=True).returncode:
            self.skipTest("user namespaces are not available")
        job = self.job(1, 1)
        job.coord = job.coordinator()
        job.srv = [job.server(0)]
        env = job.task_env("worker", 0, {})
        w = Agent.__new__(Agent)
        w.buf = b""
        argv = ["unshare", "--user", "--map-root-user", os.environ.get("PSRT_TEST_AGENT")]
        super(Agent, w).__init__(job, argv, env, stdin=subprocess.PIPE)
        w.cmd("create")
        w.cmd(f"table t n={BIG} opt=none mem=user")
        w.cmd("fill t 2")
        w.cmd("push_pull t")
        self.assertEqual(float(w.cmd("sum t")), 2.0)
        self.finish(job, [w])

    @plain_only
    def test_no_leak_in_a_plain_loop(self):
        job, w = self.started(1, 1)
        w[0].cmd("table t n=4 opt=none cons=async")
        n = int(20_000 / SLOW)
        server = job.srv[0].proc.pid

        def server_rss():
            with open(f"/proc/{server}/statm") as f:
                return int(f.read().split()[1]) * 4096

        def round_of(n):
            w[0].cmd(f"loop push t {n}", 300)
            w[0].cmd(f"loop pull t {n}", 300)

        round_of(n)
        worker, srv = int(w[0].cmd("rss")), server_rss()
        round_of(5 * n)
        self.assertLess(int(w[0].cmd("rss")) - worker, 2 << 20)
        self.assertLess(server_rss() - srv, 2 << 20)
        self.finish(job, w)

    def test_the_wall_clock_may_jump(self):
        """A shim makes CLOCK_REALTIME jump by an hour with every look; nothing may notice."""
        shim = os.environ.get("PSRT_TEST_CLOCK_SHIM")
        if not shim:
            self.skipTest("PSRT_TEST_CLOCK_SHIM is not set (sanitizer builds cannot preload it)")
        job, w = self.started(2, 2, LD_PRELOAD=shim)
        every(w, f"table t n={BIG} opt=none")
        every(w, "fill t 1")
        for _ in range(5):
            every(w, "push_pull t")
        op = w[0].cmd("start push_pull t")
        self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {op} 0.5")
        w[1].cmd("push_pull t")
        w[0].cmd(f"wait {op} 20")
        every(w, "barrier b 0 20")
        self.assertEqual({a.info()["live_workers"] for a in w}, {"2"})
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main(verbosity=2)
