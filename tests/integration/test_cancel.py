# SPDX-License-Identifier: Apache-2.0
"""Cancel and deadlines with real processes, of which servers are stopped at any moment.

Pushes have the powers of two as values, so that the sum that a slice ends with tells which of them are in
it, and a slice that was read while its buffer was refilled would hold two values."""
import random
import signal
import time
import unittest

from job import SLOW, JobTest, Refused, every

SLICES = 24
BIG = SLICES << 18  # elements; in f64 a push takes some 50 ms
ENV = {"PSRT_CANCEL_TIMEOUT": "100ms"}
LONG = 60


def parts(value):
    """Exponents of the powers of two that make up a sum."""
    return {i for i in range(60) if int(value) >> i & 1}


class Cancel(JobTest):
    def ended(self, w, op):
        """Status of an operation that was asked to end; it takes no longer than cutting off."""
        began = time.monotonic()
        status = "PSRT_OK"
        try:
            w.cmd(f"wait {op} {LONG}")
        except Refused as e:
            status = e.status
        self.assertLess(time.monotonic() - began, 10 * SLOW)
        return status

    def check_sums(self, w, sure, maybe):
        """Each slice has all pushes that ended well, and any, whole, of the others, once."""
        w.cmd("pull t", LONG)
        values = w.cmd("slices t").split()
        self.assertEqual(len(values), SLICES, values)
        for v in values:
            self.assertLessEqual(sure, parts(float(v)))
            self.assertLessEqual(parts(float(v)), sure | maybe)

    def stop_and_refill(self, transport, rounds, random_seed):
        """A server is stopped while it takes in a push, longer than the push's deadline or shorter; the
        buffer is refilled as soon as the operation ended, and pushed again."""
        rng = random.Random(random_seed)
        job, (w,) = self.started(1, 1, PSRT_TRANSPORT=transport, **ENV)
        w.cmd(f"table t n={BIG} dtype=f64 opt=none cons=async")
        sure, maybe = set(), set()
        for i in range(rounds):
            w.cmd(f"flat t {2 ** i}")
            op = w.cmd("start push t deadline=0.08")
            time.sleep(rng.uniform(0, 0.05))  # any moment of the push
            job.srv[0].kill(signal.SIGSTOP)
            short = rng.random() < 0.25
            if short:
                job.srv[0].kill(signal.SIGCONT)
            status = self.ended(w, op)
            self.assertIn(status, ("PSRT_OK", "PSRT_ERR_DEADLINE"))
            (sure if status == "PSRT_OK" else maybe).add(i)
            w.cmd("flat t nan")  # what must never be seen
            job.srv[0].kill(signal.SIGCONT)
        self.assertTrue(maybe)
        self.check_sums(w, sure, maybe)
        self.refused("PSRT_ERR_DEADLINE", w, "barrier b")  # tells of the first that failed
        self.finish(job, [w])

    def test_stopped_and_refilled_shm(self):
        self.stop_and_refill("shm", 40, 1)

    def test_stopped_and_refilled_zmq(self):
        self.stop_and_refill("zmq", 12, 2)

    def test_stopped_for_longer_than_the_lease(self):
        job, (w,) = self.started(1, 1, PSRT_TRANSPORT="shm", **ENV)
        w.cmd(f"table t n={BIG} dtype=f64 opt=none cons=async")
        job.srv[0].kill(signal.SIGSTOP)
        text = self.refused("PSRT_ERR_DEADLINE", w, "push t deadline=0.05")
        self.assertRegex(text, "push of table t, step 0, .*server:0")
        self.assertIn("server:0", self.refused("PSRT_ERR_SHARD_LOST", w, "push t", LONG))

    def test_waiting_for_others(self):
        """A pull and a push_pull that wait for the other worker are canceled; nothing is written to their
        buffers when it comes at last, and nobody waits for the canceled ones."""
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                self.waiting_for_others(transport)

    def waiting_for_others(self, transport):
        job, (a, b) = self.started(2, 2, PSRT_TRANSPORT=transport, **ENV)
        every((a, b), "table t n=1500000 opt=none reduce=sum")
        every((a, b), "table u n=1500000 opt=none reduce=sum")
        a.cmd("flat t 1")
        for line in ("start push_pull t", "start pull u step=1"):
            a.cmd(f"values {line.split()[2]} 77")
            op = a.cmd(line)
            a.cmd(f"cancel {op}")
            self.assertEqual(self.ended(a, op), "PSRT_ERR_CANCELED")
            a.cmd(f"values {line.split()[2]} 33")
        text = self.refused("PSRT_ERR_DEADLINE", a, "pull u step=1 deadline=0.05")
        self.assertIn("waits for worker:0, worker:1", text)
        a.cmd("values u 33")
        b.cmd("flat t 10")
        b.cmd("push_pull t")  # step 0 needs no more of a
        self.assertLessEqual(set(b.cmd("slices t").split()), {"10", "11"})
        self.assertEqual(a.cmd("step t"), "1")
        every((a, b), "push u")
        self.assertEqual(a.cmd("sum t"), "33")
        self.assertEqual(a.cmd("sum u"), "33")
        self.assertIn("step=1", every((a, b), "push_pull t")[0])
        self.assertLessEqual(set(a.cmd("slices t").split()), {"21", "22"})
        self.finish(job, (a, b))

    def test_the_step_of_a_cut_off_push_ends(self):
        """The server is stopped; a push is canceled, by a fence; when the server goes on, the others'
        steps close, with that push or without it."""
        job, (a, b) = self.started(2, 1, PSRT_TRANSPORT="shm", **ENV)
        every((a, b), "table t n=1000000 opt=none reduce=sum")
        a.cmd("flat t 1")
        b.cmd("flat t 10")
        for step in range(4):
            job.srv[0].kill(signal.SIGSTOP)
            op = a.cmd("start push t")
            a.cmd(f"cancel {op}")
            self.assertEqual(self.ended(a, op), "PSRT_ERR_CANCELED")
            job.srv[0].kill(signal.SIGCONT)
            self.assertIn(f"step={step} version={step + 1}", b.cmd("push_pull t"))
        for v in b.cmd("slices t").split():
            self.assertIn(float(v), range(40, 45))
        self.assertEqual(a.cmd("step t"), "4")
        self.finish(job, (a, b))


if __name__ == "__main__":
    unittest.main()
