# SPDX-License-Identifier: Apache-2.0
"""What shows only after long, or after many times: late starts, many restarts, a million calls."""
import os
import re
import subprocess
import tempfile
import unittest

from job import AGENT, BIN, JobTest, SLOW, every

REPETITIONS = 100
RESTARTS = 20
CALLS = 1_000_000
PATIENCE = 30  # seconds


class Patience(JobTest):
    def test_ranks_that_are_not_contiguous_meet(self):
        job, w = self.started(10, 1)
        some = [w[r] for r in (0, 3, 9)]
        for i in range(REPETITIONS):
            every(some, f"barrier some{i} 3 60", 90)
        every(w, "barrier all 0 60", 90)
        self.finish(job, w)

    def test_contexts_of_one_process_that_are_not_contiguous_meet(self):
        """Ranks 0, 3 and 9 of one process; the others live elsewhere."""
        job = self.job(10, 1)
        job.coord, job.srv = job.coordinator(), [job.server(0)]
        others = [job.worker(r) for r in range(10) if r not in (0, 3, 9)]
        for a in others:
            a.send("create")
        trio = job.worker(0)
        trio.cmd(f"meet {REPETITIONS} 0 3 9", 240)
        for a in others:
            a.receive(60)
        every(others, "destroy", 60)
        for a in others + [trio]:
            self.assertEqual(a.quit(), 0, a.output())
        for t in job.srv + [job.coord]:
            self.assertEqual(t.wait(10), 0, t.output())

    @unittest.skipIf(SLOW != 1, "RSS means nothing under a sanitizer")
    def test_a_million_calls_leak_nothing(self):
        job, w = self.started(1, 1)
        w[0].cmd("table t n=4 opt=none cons=async")

        def rss():
            with open(f"/proc/{job.srv[0].proc.pid}/statm") as f:
                return int(w[0].cmd("rss")), int(f.read().split()[1]) * 4096

        def calls(n):
            w[0].cmd(f"loop push t {n}", 400)
            w[0].cmd(f"loop pull t {n}", 400)

        calls(CALLS // 50)
        warm = rss()
        calls(CALLS)
        for before, after, who in zip(warm, rss(), ("worker", "server")):
            self.assertLess(after - before, 2 << 20, who)
        self.finish(job, w)

    def test_a_worker_waits_long_for_its_server(self):
        job = self.job(1, 1, PSRT_START_TIMEOUT=f"{3 * PATIENCE}s")
        job.coord = job.coordinator()
        w = job.worker(0)
        w.send("create")
        with self.assertRaises(TimeoutError):
            w.receive(PATIENCE / SLOW)
        job.srv = [job.server(0)]
        w.receive(30)
        w.cmd("table t n=10 opt=none")
        w.cmd("push_pull t")
        self.finish(job, [w])

    def test_a_place_keeps_its_rank(self):
        """Restarts with random delays before the start: the launcher's place and the rank agree."""
        command = ('sleep "0.$(shuf -i 0-3 -n 1)"; '
                   'printf "create\\ninfo\\ndestroy\\nquit\\n" | "$0"')
        state = tempfile.TemporaryDirectory()
        self.addCleanup(state.cleanup)
        env = {k: v for k, v in os.environ.items() if not k.startswith("PSRT_")}
        env["XDG_STATE_HOME"] = state.name
        for _ in range(RESTARTS):
            done = subprocess.run(
                [f"{BIN}/psrt-launch", "-w", "3", "-s", "1", "--", "bash", "-c", command, AGENT],
                env=env, capture_output=True, text=True, timeout=60 * SLOW)
            self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
            got = re.findall(r"^\[worker:(\d)\].*\brank=(\d)", done.stdout, re.M)
            self.assertEqual(sorted(got), [(str(r), str(r)) for r in range(3)], done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
