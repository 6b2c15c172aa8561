#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every optimizer with every type, consistency and transport, against formulas in NumPy float64; and
results that must be bit-equal whatever serves them. Jobs of matrix.c, tables of three slices.

    test_matrix.py pairs   any two of the choices together, once
    test_matrix.py all     all of them

The optimizers are those of psrt-info, with the hyper-parameters and formulas of the golden vectors
(tests/kernels/golden/make_golden.py): a new one belongs there first. What the library refuses has to be
refused with a text that says why, on each transport.
"""
import itertools
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "integration"), os.path.join(HERE, "..", "kernels", "golden")]

import make_golden as golden  # noqa: E402  ends with 77 without NumPy
import numpy as np  # noqa: E402

from job import BIN, SLOW, Job  # noqa: E402

MATRIX = os.environ["PSRT_TEST_MATRIX"]
PERIOD = 511  # with ELEMENTS and the formulas below as in matrix.c
ELEMENTS = 2 * 2**18 + 1000
COUNTS = np.bincount(np.arange(ELEMENTS) % PERIOD)
WORKERS = 2
STEPS = 3

DTYPES = ("f32", "f64", "f16", "bf16")
# consistency, deterministic
ORDERS = (("sync", 0), ("sync", 1), ("async", 0), ("ssp:1", 0))
TRANSPORTS = ("inproc", "shm", "zmq")
SERVERS = 3


def modules(kind):
    """Names of psrt-info's list, and whether this machine has them."""
    out = subprocess.run([f"{BIN}/psrt-info"], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return {row[1]: row[2] == "yes" for row in rows if len(row) > 3 and row[0] == kind}


# ---- the model -----------------------------------------------------------------------------------


def whole_norm(x):
    """Of a table that repeats x."""
    return np.sqrt(np.sum(COUNTS * x * x))


golden.norm = whole_norm


def pattern(a, b, c):
    return (np.arange(PERIOD) * a + b + c) % PERIOD - 255


def initial():
    return pattern(29, 0, 0) / 64.0


def gradient(rank, step):
    return pattern(37, rank * 101, step * 173) / 128.0


def updates(consistency):
    """The gradients that the servers apply, in their order."""
    for step in range(STEPS):
        of_rank = [gradient(rank, step) for rank in range(WORKERS)]
        yield from [sum(of_rank) / WORKERS] if consistency == "sync" else of_rank


def model(name, params, consistency):
    formula, starts = golden.FORMULAS[name]
    starts = starts(**params) if callable(starts) else [0.0] * starts
    state, v = np.outer(starts, np.ones(PERIOD)), initial()
    params = dict(params)
    clip, clip_norm = params.pop("clip_value", np.inf), params.pop("clip_norm", np.inf)
    for t, g in enumerate(updates(consistency), 1):
        g = np.clip(g, -clip, clip)
        g = g * min(1, clip_norm / (whole_norm(g) + 1e-6))
        v = formula(v, g, state, t, **params)
    return v


def decode(dtype, data):
    if dtype == "bf16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(float)
    return np.frombuffer(data, {"f32": "<f4", "f64": "<f8", "f16": "<f2"}[dtype]).astype(float)


def tolerance(dtype, expected):
    """Arithmetic in f64 or f32; then one rounding to 16 bits: half a unit in the last place."""
    size = np.maximum(np.abs(expected), 2.0**-14)
    arithmetic = (1e-13 if dtype == "f64" else 2e-6) * np.maximum(size, 1)
    bits = {"f16": 10, "bf16": 7}.get(dtype)
    return arithmetic if bits is None else arithmetic + 2.0**(np.floor(np.log2(size)) - bits - 1)


# ---- jobs ----------------------------------------------------------------------------------------


class MatrixTest(unittest.TestCase):
    def run_job(self, tables, servers, workers=WORKERS, steps=STEPS, noise=0, **env):
        """tables: name -> (dtype, optimizer, consistency, deterministic). Answers: name -> words."""
        lines = "".join(f"{name} {ELEMENTS} {' '.join(map(str, row))}\n"
                        for name, row in tables.items())
        job = Job(workers, servers, PSRT_LEASE="120s", PSRT_HEARTBEAT="1s", **env)
        fd = job.listener.fileno()
        try:
            done = subprocess.run([MATRIX, str(fd), str(steps), str(noise)], env=job.env, input=lines,
                                  text=True, capture_output=True, pass_fds=(fd,),
                                  timeout=200 * SLOW, check=False)
        finally:
            job.stop()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        answers = {words[0]: words[1:] for words in (line.split(" ", 3)
                                                     for line in done.stdout.splitlines())}
        self.assertEqual(answers.keys(), tables.keys())
        return answers


def spec_of(name, params):
    return name + ":" + ",".join(f"{key}={value!r}" for key, value in params.items())


def cases():
    """optimizer -> its hyper-parameters, as in the golden vectors, and clipping by the norm."""
    found = {name: [params for n, params in golden.CASES if n == name]
             for name in modules("optimizer")}
    found["sgd"].append(dict(lr=0.3, clip_norm=40.0))
    return found


class Matrix(MatrixTest):
    def combinations(self, transport):
        """optimizer number, dtype, order: those of one transport."""
        x = TRANSPORTS.index(transport)
        for o in range(len(cases())):
            if self.everything:
                yield from ((o, d, c) for d in range(4) for c in range(4))
            else:  # each dtype and order with each optimizer, and with each other, over the transports
                yield from ((o, (o + r) % 4, (o // 4 + r + r // 4) % 4) for r in (2 * x, 2 * x + 1))

    def check(self, name, row, params, answer):
        dtype, spec, consistency, _ = row
        optimizer = spec.partition(":")[0]
        if answer[0] == "refused":
            self.assertNotEqual(consistency, "sync", answer)
            self.assertEqual(answer[1], "PSRT_ERR_INVALID")
            for part in (f"table {name}", "sync", next(p for p in (optimizer, "clip_norm") if
                                                       p in answer[2])):
                self.assertIn(part, answer[2])
            return
        self.assertEqual(answer[0], "ok", answer)
        expected = model(optimizer, params, consistency)
        got = decode(dtype, bytes.fromhex(answer[1]))
        worst = np.max(np.abs(got - expected) / tolerance(dtype, expected))
        if os.environ.get("PSRT_TEST_VERBOSE"):
            print(f"{' '.join(map(str, row))}: {worst:.3f} of the tolerance")
        self.assertLessEqual(worst, 1)

    def matrix(self, transport):
        known, jobs = cases(), {}
        for number, (o, d, c) in enumerate(self.combinations(transport)):
            optimizer = list(known)[o]
            self.assertTrue(known[optimizer], f"{optimizer} has no case in make_golden.py")
            params = known[optimizer][(d + c) % len(known[optimizer])]
            job = jobs.setdefault(o if self.everything else o % 3, {})
            job[f"t{number}"] = ((DTYPES[d], spec_of(optimizer, params), *ORDERS[c]), params)
        for job in jobs.values():
            answers = self.run_job({name: row for name, (row, _) in job.items()}, SERVERS,
                                   PSRT_TRANSPORT=transport, PSRT_SERVER_THREADS="2")
            for name, (row, params) in job.items():
                with self.subTest(" ".join(map(str, row)), transport=transport):
                    self.check(name, row, params, answers[name])

    def test_inproc(self):
        self.matrix("inproc")

    def test_shm(self):
        self.matrix("shm")

    def test_zmq(self):
        self.matrix("zmq")


class Deterministic(MatrixTest):
    """Three workers, sums that depend on their order."""

    CHOICES = ((1, 2, 3, 7), (1, 4), ("shm", "zmq"), ("scalar", "avx2", "avx512"))

    def ways(self):
        have = modules("kernels")
        for variant in self.CHOICES[3]:
            if not have.get(variant):
                print(f"not compared: {variant}, which this machine does not have")
        every = [way for way in itertools.product(*self.CHOICES) if have.get(way[3])]
        if self.everything:
            return every
        return every[:1] + [way for way in every if way in (
            (2, 4, "shm", "avx512"), (3, 1, "zmq", "avx2"), (7, 4, "zmq", "scalar"),
            (7, 1, "shm", "avx2"), (1, 4, "zmq", "avx512"), (2, 1, "shm", "scalar"))]

    def test_bit_equal_whatever_serves(self):
        tables = {}
        for number, (name, params) in enumerate(cases().items()):
            wide, narrow = DTYPES[number % 2], DTYPES[2 + number % 2]
            for dtype in ("f32", "f64", "f16", "bf16") if self.everything else (wide, narrow):
                tables[f"{name}-{dtype}"] = (dtype, spec_of(name, params[-1]), "sync", 1)
        first = None
        for servers, threads, transport, variant in self.ways():
            with self.subTest(servers=servers, threads=threads, transport=transport, cpu=variant):
                answers = self.run_job(tables, servers, workers=3, noise=1,
                                       PSRT_SERVER_THREADS=str(threads), PSRT_TRANSPORT=transport,
                                       PSRT_CPU=variant)
                self.assertEqual({words[0] for words in answers.values()}, {"ok"})
                first = first or answers
                self.assertEqual([name for name in tables if answers[name] != first[name]], [])


if __name__ == "__main__":
    MatrixTest.everything = {"pairs": False, "all": True}[sys.argv.pop(1)]
    unittest.main(verbosity=2)
