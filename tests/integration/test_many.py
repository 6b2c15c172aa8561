# SPDX-License-Identifier: Apache-2.0
"""20,000 small tables, all of them in each operation, with real processes; many.c is the worker."""
import re
import unittest

from job import SLOW, JobTest, every

TABLES = 20000 if SLOW == 1 else 4000
ROUNDS = 4
DEADLINE = 120


class Many(JobTest):
    def many(self, cons, workers=2, **env):
        job, w = self.started(workers, 2, PSRT_LOG_LEVEL="error", **env)
        every(w, f"declare {TABLES} {cons}", DEADLINE)
        return job, w

    def counts(self, agent):
        """How often worker 0's gradients were added, and worker 1's: at least, at most."""
        text = agent.cmd("check")
        found = re.fullmatch(r"a=(\d+) k=(\d+)\.\.(\d+)", text)
        self.assertIsNotNone(found, text)
        return tuple(int(n) for n in found.groups())

    def exact(self, **env):
        for cons in ("sync", "async", "ssp:1"):
            with self.subTest(cons):
                job, w = self.many(cons, **env)
                for n in range(1, ROUNDS + 1):
                    every(w, "all push_pull", DEADLINE)
                    every(w, "barrier round", DEADLINE)
                    every(w, "all pull", DEADLINE)
                    for a in w:
                        self.assertEqual(self.counts(a), (n, n, n))
                    every(w, "barrier looked", DEADLINE)
                every(w, "all push", DEADLINE)
                every(w, "barrier pushed", DEADLINE)
                every(w, "all pull", DEADLINE)
                for a in w:
                    self.assertEqual(self.counts(a), (ROUNDS + 1,) * 3)
                self.finish(job, w)

    def test_exact_sums_shm(self):
        self.exact(PSRT_TRANSPORT="shm")

    def test_exact_sums_zmq(self):
        self.exact(PSRT_TRANSPORT="zmq")

    def test_exact_sums_over_links_that_fail(self):
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                job, w = self.many("async", PSRT_TRANSPORT=transport, PSRT_RETRY="100ms",
                                   PSRT_FAULT="seed=5,drop=0.02,dup=0.05,reorder=0.05,cut=0.01")
                for _ in range(ROUNDS):
                    every(w, "all push_pull", DEADLINE)
                every(w, "barrier round", DEADLINE)
                every(w, "all pull", DEADLINE)
                for a in w:
                    self.assertEqual(self.counts(a), (ROUNDS,) * 3)
                self.finish(job, w)

    def test_a_worker_is_killed_in_the_middle_of_a_batch(self):
        for transport in ("shm", "zmq"):
            for cons in ("async", "sync"):
                with self.subTest(transport=transport, cons=cons):
                    job, w = self.many(cons, PSRT_TRANSPORT=transport)
                    for a in w:
                        a.send("loop push_pull 1000" if a is w[1] else f"loop push_pull {ROUNDS}")
                    w[1].receive(DEADLINE)  # the next round is on its way
                    w[1].kill()
                    for _ in range(ROUNDS):
                        w[0].receive(DEADLINE)
                    w[0].cmd("all pull", DEADLINE)
                    a, low, high = self.counts(w[0])
                    self.assertEqual(a, ROUNDS)
                    self.assertGreaterEqual(low, 1)
                    self.assertLessEqual(high, ROUNDS + 1 if cons == "sync" else 1000)
                    self.finish(job, w[:1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
