# SPDX-License-Identifier: Apache-2.0
"""f32 tables whose gradients and values travel with 16 bits. What is rounded, and where: each gradient by
the worker that pushes it, each value by the server when it is published; sums and the values between are f32.

The reference rounds by itself: f16 with Python's struct module, bf16 by arithmetic on the bits.
"""
import os
import random
import struct
import unittest

from job import JobTest, every

N = 2 * 2**18 + 777  # three slices, on two servers
PERIOD = 10007  # of the gradients; no divisor of a slice
STEPS = 4


def f32(xs):
    """The nearest f32 of each. For a sum of two f32 in f64 it is as if rounded once."""
    return struct.unpack(f"<{len(xs)}f", struct.pack(f"<{len(xs)}f", *xs))


def to_f16(xs):
    return struct.unpack(f"<{len(xs)}e", struct.pack(f"<{len(xs)}e", *xs))


def to_bf16(xs):
    """To the nearest of the upper halves, ties to the even one."""
    bits = struct.unpack(f"<{len(xs)}I", struct.pack(f"<{len(xs)}f", *xs))
    kept = [(b + 0x7FFF + (b >> 16 & 1)) & 0xFFFF0000 for b in bits]
    return struct.unpack(f"<{len(xs)}f", struct.pack(f"<{len(xs)}I", *kept))


ROUND = {"f16": to_f16, "bf16": to_bf16}


def gradient(rank, step):
    """Of all sizes, with full f32 mantissas, and some that lie half-way between two numbers of a format."""
    r = random.Random(f"{rank} {step}")
    xs = [r.uniform(-1, 1) * 2.0 ** r.randint(-12, 6) for _ in range(PERIOD)]
    xs[:6] = [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8, 2**-25, -(2**-24) * 1.5]
    return (f32(xs) * (N // PERIOD + 1))[:N]


class Codec(JobTest):
    def path(self, job, name):
        return os.path.join(job.base, name)

    def push(self, job, agents, what, grads):
        for rank, (a, g) in enumerate(zip(agents, grads)):
            path = self.path(job, f"grad{rank}")
            with open(path, "wb") as f:
                f.write(struct.pack(f"<{N}f", *g))
            a.cmd(f"load t {path}")
        every(agents, f"{what} t")

    def values(self, job, agent, table="t"):
        path = self.path(job, "values")
        agent.cmd(f"save {table} {path}")
        with open(path, "rb") as f:
            return struct.unpack(f"<{N}f", f.read())

    def assert_bits(self, got, want, what):
        wrong = [(i, g, w) for i, (g, w) in enumerate(zip(got, want)) if g != w]
        self.assertFalse(wrong, f"{what}: {len(wrong)} differ, as (index, got, want) {wrong[:3]}")

    def sums(self, codec, transport):
        """Sync sums: the master is init plus, each step, the sum of the two decoded pushes."""
        job, w = self.started(2, 2, PSRT_TRANSPORT=transport)
        every(w, f"table t n={N} opt=none reduce=sum codec={codec} init=constant:value=0.1")
        rounded = ROUND[codec]
        master = f32([0.1] * N)
        every(w, "pull t")
        for a in w:
            self.assert_bits(self.values(job, a), rounded(master), "before any push")
        for step in range(STEPS):
            grads = [gradient(rank, step) for rank in range(2)]
            decoded = [rounded(g) for g in grads]
            self.assertNotEqual(decoded[0], grads[0])
            self.push(job, w, "push_pull" if step % 2 else "push", grads)
            if not step % 2:
                every(w, "pull t")
            both = f32([a + b for a, b in zip(*decoded)])
            master = f32([m + s for m, s in zip(master, both)])
            for a in w:
                self.assert_bits(self.values(job, a), rounded(master), f"after step {step}")
        self.finish(job, w)

    def test_sums_of_decoded_pushes(self):
        for codec in ROUND:
            for transport in ("shm", "zmq"):
                with self.subTest(codec=codec, transport=transport):
                    self.sums(codec, transport)

    def test_each_push_by_itself(self):
        """Async: one after the other, each added to the f32 master."""
        for codec, rounded in ROUND.items():
            job, w = self.started(2, 2)
            every(w, f"table t n={N} opt=none cons=async codec={codec}")
            master = [0.0] * N
            for step in range(2):
                for rank in (0, 1):
                    g = gradient(rank, step)
                    self.push(job, w[rank:rank + 1], "push_pull", [g])
                    master = f32([m + x for m, x in zip(master, rounded(g))])
                    self.assert_bits(self.values(job, w[rank]), rounded(master), codec)
            self.finish(job, w)

    def test_what_rounding_would_lose_is_kept(self):
        """A thousand pushes too small to show next to 1 show when they are added up."""
        for codec, small in (("f16", 2.0**-12), ("bf16", 2.0**-9)):
            job, w = self.started(1, 1)
            w[0].cmd(f"table t n=1000 opt=none cons=async codec={codec} init=constant:value=1")
            w[0].cmd(f"flat t {small}")
            w[0].cmd("push_pull t")
            self.assertEqual(float(w[0].cmd("at t 999")), 1.0)
            w[0].cmd("loop push t 1023")
            w[0].cmd("pull t")
            self.assertEqual(float(w[0].cmd("at t 999")), 1 + 1024 * small)
            self.finish(job, w)

    def test_first_values_of_worker_0(self):
        """They travel whole; a pull rounds them."""
        for codec, rounded in ROUND.items():
            for transport in ("shm", "zmq"):
                job, w = self.started(2, 2, PSRT_TRANSPORT=transport)
                spec = f"table t n={N} opt=none reduce=sum codec={codec} init=rank0"
                w[1].send(spec)
                w[0].cmd(f"{spec} data=0.1")
                w[1].receive()
                master = f32([0.1 * (1 + i % 5) for i in range(N)])
                every(w, "pull t")
                for a in w:
                    self.assert_bits(self.values(job, a), rounded(master), codec)
                g = [gradient(rank, 0) for rank in (0, 1)]
                self.push(job, w, "push_pull", g)
                both = f32([a + b for a, b in zip(*map(rounded, g))])
                want = rounded(f32([m + s for m, s in zip(master, both)]))
                for a in w:
                    self.assert_bits(self.values(job, a), want, codec)
                self.finish(job, w)

    def test_another_codec_is_refused_by_name(self):
        for transport in ("shm", "zmq"):
            job, w = self.started(2, 2, PSRT_TRANSPORT=transport)
            for i, (one, other) in enumerate((("f16", "bf16"), ("bf16", "none"), ("none", "f16"))):
                w[0].cmd(f"table t{i} n={N} opt=none cons=async codec={one}")
                w[0].cmd(f"flat t{i} 1")
                w[0].cmd(f"push t{i}")
                text = self.refused("PSRT_ERR_MISMATCH", w[1],
                                    f"table t{i} n={N} opt=none cons=async codec={other}")
                for part in (f"table t{i}", f"codec is {one} on worker:0", f"{other} on worker:1"):
                    self.assertIn(part, text)
                w[0].cmd(f"push_pull t{i}")
                self.assertEqual(float(w[0].cmd(f"at t{i} {N - 1}")), 2.0)
            self.finish(job, w)


if __name__ == "__main__":
    unittest.main(verbosity=2)
