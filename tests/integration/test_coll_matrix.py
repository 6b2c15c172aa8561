# SPDX-License-Identifier: Apache-2.0
"""Collectives over dtype x op x ranks x count x transport, every two values of two of them in some case (pairwise); each
result is checked against an independent computation in every rank (comm_agent.c)."""
import itertools
import subprocess
import unittest

import job as rig
from job import JobTest, every
from test_collectives import COMM_AGENT, LONG, WHATS, CommAgent, CommJob

BIG = (1 << 20) + 3
AXES = (("inproc", "shm", "zmq"), tuple(range(1, 10)),
        ("f32", "f64", "f16", "bf16", "i8", "i16", "i32", "i64", "u8"), ("sum", "prod", "min", "max", "avg"),
        (0, 1, 2, 3, 7, 1000, BIG))
ALL_SIZES = ("allreduce", "reduce", "broadcast", "ring")  # the others have a part for each rank
OTHERS = tuple(what for what in WHATS if what not in ALL_SIZES)


def pairs_of(case):
    return {((i, case[i]), (j, case[j])) for i, j in itertools.combinations(range(len(case)), 2)}


def pairwise(axes):
    """Cases that have all pairs: each takes a pair that is missing, then what brings most others."""
    missing = {((i, a), (j, b)) for i, j in itertools.combinations(range(len(axes)), 2)
               for a in axes[i] for b in axes[j]}
    cases = []
    while missing:
        (i, a), (j, b) = min(missing, key=str)
        case = {i: a, j: b}
        for k in range(len(axes)):
            if k not in case:
                case[k] = max(axes[k], key=lambda v, k=k: sum(
                    (min((k, v), (m, w)), max((k, v), (m, w))) in missing if k != m else 0
                    for m, w in case.items()))
        cases.append(tuple(case[k] for k in range(len(axes))))
        missing -= pairs_of(cases[-1])
    return cases


class Crowd(CommAgent):
    """All workers of a job as threads of one process."""

    def __init__(self, job, env, workers):
        rig.Task.__init__(self, job, [COMM_AGENT, str(workers)], env, stdin=subprocess.PIPE)
        self.buf = b""


class Matrix(JobTest):
    def world(self, transport, ranks):
        env = {"PSRT_TRANSPORT": transport, "PSRT_LEASE": "60s"}
        job = CommJob(ranks, 0, **env)
        self.addCleanup(job.stop)
        if transport != "inproc":
            return job, job.start()
        job.coord, job.srv = job.coordinator(), []
        w = [Crowd(job, job.task_env("worker", 0, {}), ranks)]
        w[0].cmd("create", 60)
        return job, w

    def test_pairwise(self):
        cases = pairwise(AXES)
        turn = itertools.count()
        for transport, ranks in itertools.product(*AXES[:2]):
            mine = [case[2:] for case in cases if case[:2] == (transport, ranks)]
            job, w = self.world(transport, ranks)
            every(w, "comm 0", LONG)
            for dtype, op, count in mine:
                others = [OTHERS[next(turn) % len(OTHERS)] for _ in range(3)]
                for what in ALL_SIZES + tuple(others if count * ranks <= 3 * BIG else ()):
                    flags = ("n", "p", "b", "pb")[next(turn) % 4]
                    with self.subTest(transport=transport, ranks=ranks, what=what, dtype=dtype, op=op, count=count):
                        every(w, f"run 0 {what} {dtype} {op} {count} {next(turn) % ranks} {flags}", LONG)
            self.finish(job, w)

    def test_the_cases_have_all_pairs(self):
        found = set().union(*map(pairs_of, pairwise(AXES)))
        for i, j in itertools.combinations(range(len(AXES)), 2):
            for a, b in itertools.product(AXES[i], AXES[j]):
                self.assertIn(((i, a), (j, b)), found)


if __name__ == "__main__":
    unittest.main()
