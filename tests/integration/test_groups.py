# SPDX-License-Identifier: Apache-2.0
"""Updates in two phases, with real processes: clipping by norm, LARS, LAMB, skipping, over servers and
threads, against plain arithmetic.

Gradients repeat every five elements (agent.c: fill), and so do values that start alike: the reference
computes five elements and counts how often each occurs.
"""
import math
import unittest

from job import JobTest, every

SIZES = {"a": 700_000, "b": 1000}  # three slices and one
WAYS = [(1, "shm", 1), (2, "shm", 1), (3, "zmq", 1), (2, "shm", 2), (1, "zmq", 3), (2, "", 2)]
GRADS = {"a": (0.02, 0.05), "b": (0.3, -0.1)}  # of two workers
STEPS = 3


def fraction(n, k):
    return len(range(k, n, 5))


class Table:
    """Five elements of a table that starts as ones."""

    def __init__(self, name):
        self.v = [1.0] * 5
        self.m, self.s = [0.0] * 5, [0.0] * 5
        self.count = [fraction(SIZES[name], k) for k in range(5)]
        mean = sum(GRADS[name]) / 2
        self.g = [mean * (1 + k) for k in range(5)]

    def square(self, x):
        return sum(c * e * e for c, e in zip(self.count, x))

    def norm(self, x):
        return math.sqrt(self.square(x))


def sgd(t, g, step):
    t.v = [v - 0.5 * x for v, x in zip(t.v, g)]


def lars(t, g, step):  # lr=0.5, momentum=0.9, trust=0.01, weight_decay=0.1
    ratio = 0.01 * t.norm(t.v) / (t.norm(g) + 0.1 * t.norm(t.v) + 1e-8)
    t.m = [0.9 * m + ratio * (x + 0.1 * v) for m, x, v in zip(t.m, g, t.v)]
    t.v = [v - 0.5 * m for v, m in zip(t.v, t.m)]


def lamb(t, g, step):  # lr=0.01, defaults
    t.m = [0.9 * m + 0.1 * x for m, x in zip(t.m, g)]
    t.s = [0.999 * s + 0.001 * x * x for s, x in zip(t.s, g)]
    u = [m / (1 - 0.9 ** step) / (math.sqrt(s / (1 - 0.999 ** step)) + 1e-6) + 0.01 * v
         for m, s, v in zip(t.m, t.s, t.v)]
    ratio = t.norm(t.v) / t.norm(u)
    t.v = [v - 0.01 * ratio * x for v, x in zip(t.v, u)]


OPTIMIZERS = {
    "sgd:lr=0.5": sgd,
    "lars:lr=0.5,momentum=0.9,trust=0.01,weight_decay=0.1": lars,
    "lamb:lr=0.01": lamb,
}


def reference(optimizer, clip, grouped):
    tables = {name: Table(name) for name in SIZES}
    for step in range(1, STEPS + 1):
        squares = {name: t.square(t.g) for name, t in tables.items()}
        for name, t in tables.items():
            norm = math.sqrt(sum(squares.values()) if grouped else squares[name])
            scale = min(1, clip / (norm + 1e-6)) if clip else 1
            OPTIMIZERS[optimizer](t, [x * scale for x in t.g], step)
    return tables


class Groups(JobTest):
    def declare(self, w, optimizer, group, extra=""):
        for name, n in SIZES.items():
            every(w, f"table {name} n={n} opt={optimizer} init=constant:value=1 "
                     f"{'group=' + group if group else ''} {extra}")
            for agent, v in zip(w, GRADS[name]):
                agent.cmd(f"fill {name} {v}")

    def step(self, w):
        for name in SIZES:
            every(w, f"push {name}")
        for name in SIZES:
            every(w, f"pull {name}")

    def run_once(self, way, optimizer, clip, group, extra=""):
        servers, transport, threads = way
        job, w = self.started(2, servers, PSRT_TRANSPORT=transport,
                              PSRT_SERVER_THREADS=str(threads))
        self.declare(w, f"{optimizer},clip_norm={clip}", group, extra)
        for _ in range(STEPS):
            self.step(w)
        return job, w

    def expect(self, agent, tables):
        for name, t in tables.items():
            for k in list(range(5)):
                for i in (k, SIZES[name] - 5 + k):
                    got = float(agent.cmd(f"at {name} {i}"))
                    want = t.v[i % 5]
                    self.assertAlmostEqual(got, want, delta=2e-5 * max(1, abs(want)),
                                           msg=f"{name}[{i}]")

    def test_reference_over_servers_threads_and_transports(self):
        cases = [(o, c, g) for o in OPTIMIZERS for c, g in ((20, "model"), (5, None))]
        cases.append(("lamb:lr=0.01", 0, None))
        for i, (optimizer, clip, group) in enumerate(cases):
            job, w = self.run_once(WAYS[i % len(WAYS)], optimizer, clip, group)
            with self.subTest(optimizer=optimizer, clip=clip, group=group):
                for agent in w:
                    self.expect(agent, reference(optimizer, clip, group))
            self.finish(job, w)

    def test_bit_equal_whatever_serves(self):
        for optimizer in ("momentum:lr=0.1", "lamb:lr=0.01"):
            hashes = set()
            for way in WAYS:
                job, w = self.run_once(way, optimizer, 7, "model", "det=1")
                hashes |= {tuple(agent.cmd(f"hash {name}") for name in SIZES) for agent in w}
                self.finish(job, w)
            self.assertEqual(len(hashes), 1, optimizer)

    def test_a_step_that_is_not_finite_changes_nothing(self):
        job, w = self.started(2, 2)
        self.declare(w, "momentum:lr=0.5,skip_nonfinite=1", "model")
        self.step(w)
        before = [a.cmd(f"hash {name}") for a in w for name in SIZES]
        w[1].cmd("flat b nan")
        self.step(w)
        self.assertEqual([a.cmd(f"hash {name}") for a in w for name in SIZES], before)
        self.assertEqual(every(w, "skipped a"), ["1", "1"])
        self.assertEqual(every(w, "skipped b"), ["1", "1"])
        w[1].cmd("fill b -0.1")
        self.step(w)
        self.assertNotEqual([a.cmd(f"hash {name}") for a in w for name in SIZES], before)
        self.assertEqual(every(w, "skipped a"), ["1", "1"])
        self.finish(job, w)

    def test_a_dead_server_ends_operations_on_all_tables_of_the_group(self):
        for rank in (0, 1):  # one of them decides for the group
            job, w = self.started(2, 2)
            for i in range(4):  # of one slice each, some on each server
                every(w, f"table t{i} n=1000 opt=sgd:clip_norm=1 group=model")
                every(w, f"fill t{i} 1")
            every(w, "table alone n=1000 opt=sgd:clip_norm=1")
            for i in range(4):
                every(w, f"push t{i}")
            for i in range(4):
                every(w, f"pull t{i}")
            ops = [[a.cmd(f"start pull t{i} step=100") for i in range(4)] for a in w]
            job.srv[rank].kill()
            for a, numbers in zip(w, ops):
                for op in numbers:
                    text = self.refused("PSRT_ERR_SHARD_LOST", a, f"wait {op} 20")
                    self.assertIn(f"server:{rank}", text)
                self.refused("PSRT_ERR_SHARD_LOST", a, "push t0")

    def test_a_worker_dies_in_the_middle_of_a_step(self):
        job, w = self.started(3, 2)
        self.declare(w, "sgd:lr=0.5,clip_norm=20", "model")
        every(w[:2], "push a")
        w[2].cmd("push a")
        every(w[:2], "push b")
        op = w[0].cmd("start pull b")
        self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {op} 0.3")
        w[2].kill()
        w[0].cmd(f"wait {op} 20")
        self.step(w[:2])
        self.finish(job, w[:2])

    def test_a_worker_that_joins_late_starts_at_the_same_step_of_all_tables(self):
        job, w = self.started(2, 2)
        self.declare(w, "sgd:lr=0.5,clip_norm=20", "model")
        self.step(w)
        w[1].kill()
        again = job.worker(1)
        again.send("create")
        w[0].cmd("push a")  # a is a step ahead of b
        again.receive(60)
        for name, n in SIZES.items():
            again.cmd(f"table {name} n={n} opt=sgd:lr=0.5,clip_norm=20 init=constant:value=1 "
                      "group=model")
        first = {name: int(again.cmd(f"step {name}")) for name in SIZES}
        self.assertEqual(first["a"], first["b"])
        w[0].cmd(f"upto push a {first['a']}")
        w[0].cmd(f"upto push b {first['b']}")
        self.step([w[0], again])
        self.finish(job, [w[0], again])

    def test_declarations(self):
        job, w = self.started(1, 2)
        w[0].cmd("table a opt=sgd:clip_norm=1 group=model")
        text = self.refused("PSRT_ERR_MISMATCH", w[0],
                            "table b opt=adam:clip_norm=2 group=model")
        self.assertIn("clip_norm", text)
        self.assertIn("table a", text)
        self.assertIn("table b", text)
        text = self.refused("PSRT_ERR_INVALID", w[0], "table c opt=sgd group=model")
        self.assertIn("skip_nonfinite", text)
        w[0].cmd("table d opt=adam:clip_norm=1 group=model")
        w[0].cmd("fill a 1")
        w[0].cmd("push a")
        text = self.refused("PSRT_ERR_INVALID", w[0],
                            "table e opt=adam:clip_norm=1 group=model")
        self.assertIn("before the first push", text)
        w[0].cmd("fill d 1")
        w[0].cmd("push_pull d")
        w[0].cmd("pull a")
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main(verbosity=2)
