# SPDX-License-Identifier: Apache-2.0
"""Every update exactly once over links that drop, repeat, reorder, delay and cut."""
import unittest

from job import JobTest, every

BIG = 700_000
FAULTS = "drop=0.03,dup=0.05,reorder=0.05,delay=0.03,cut=0.003"


class Faults(JobTest):
    def run_mode(self, cons, seed, transport, rounds=30):
        job, w = self.started(2, 2, PSRT_FAULT=f"seed={seed},{FAULTS}", PSRT_RETRY="50ms",
                              PSRT_TRANSPORT=transport, PSRT_LOG_LEVEL="error")
        every(w, f"table t n={BIG} opt=none cons={cons} reduce=sum")
        every(w, "fill t 1")
        for _ in range(rounds):
            every(w, "push_pull t", 60)
        every(w, "barrier b", 60)
        every(w, "pull t", 60)
        self.assertEqual({float(v) for v in every(w, "sum t")}, {2.0 * rounds})
        self.finish(job, w)

    def test_shm(self):
        for seed, cons in enumerate(("sync", "async", "ssp:1")):
            with self.subTest(cons):
                self.run_mode(cons, seed, "shm")

    def test_zmq(self):
        for seed, cons in enumerate(("sync", "async", "ssp:1")):
            with self.subTest(cons):
                self.run_mode(cons, seed + 10, "zmq")

    def test_steps_in_two_phases(self):
        """What servers tell each other is lost, repeated and cut as well."""
        sizes, rounds = {"t": BIG, "u": 1000}, 20
        square = sum(len(range(k, n, 5)) * (2 * (k + 1)) ** 2
                     for n in sizes.values() for k in range(5))
        scale = 1 / (square ** 0.5 + 1e-6)
        for seed, transport in ((3, "shm"), (4, "zmq")):
            job, w = self.started(2, 3, PSRT_FAULT=f"seed={seed},{FAULTS}", PSRT_RETRY="50ms",
                                  PSRT_TRANSPORT=transport, PSRT_LOG_LEVEL="error")
            for t, n in sizes.items():
                every(w, f"table {t} n={n} opt=sgd:lr=1,clip_norm=1 reduce=sum group=g")
                every(w, f"fill {t} 1")
            for _ in range(rounds):
                every(w, "many t u", 60)
            for t, n in sizes.items():
                for i in (0, 4, n - 1):
                    want = -rounds * scale * 2 * (1 + i % 5)
                    for got in every(w, f"at {t} {i}"):
                        self.assertAlmostEqual(float(got), want, delta=1e-4 * abs(want))
            self.finish(job, w)


if __name__ == "__main__":
    unittest.main(verbosity=2)
