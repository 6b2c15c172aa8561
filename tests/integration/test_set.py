# SPDX-License-Identifier: Apache-2.0
"""Hyper-parameters that workers set for a step, with real processes: every slice of every server uses the
same learning rate for the same step, or nothing has changed.

The table is sgd in f64 with sums; the reference is plain arithmetic in the same order, equal to the bit.
"""
import random
import signal
import unittest

from job import JobTest, Refused, every

ROUNDS = 100
BIG = 1_500_000  # elements: six slices, on three servers with two threads each
NEXT = "next"


class Rates(JobTest):
    """Two workers push 1 and 2 times the pattern in every step."""

    def begin(self, **env):
        self.job_, self.w = self.started(2, 3, PSRT_SERVER_THREADS="2", **env)
        every(self.w, f"table t n={BIG} opt=sgd:lr=0.1 reduce=sum dtype=f64 det=1")
        for rank, agent in enumerate(self.w):
            agent.cmd(f"fill t {rank + 1}")
        self.value, self.sets = [0.0] * 5, []

    def rate(self, step):
        """What was set last, for this step or one before."""
        return next((lr for lr, first in reversed(self.sets) if first <= step), 0.1)

    def round(self, step):
        every(self.w, "push_pull t", 60)
        self.reached(step)

    def reached(self, step):
        lr = self.rate(step)
        self.value = [v - lr * (3.0 * (1 + i)) for i, v in enumerate(self.value)]
        for slice_ in range(6):  # a slice begins at a multiple of 2^18
            at = (slice_ * 2**18 + 4) // 5 * 5
            i = step % 5
            self.assertEqual(float(self.w[step % 2].cmd(f"at t {at + i}")), self.value[i],
                             f"step {step}, slice {slice_}, learning rate {lr}")
        self.assertEqual(len(set(every(self.w, "hash t"))), 1)

    def set(self, agent, lr, step):
        first = int(agent.cmd(f"set t lr {lr} {step}"))
        self.sets.append((lr, first))
        return first


class Steps(Rates):
    def test_from_the_step_on_and_not_before(self):
        self.begin()
        for step in range(12):
            if step == 3:
                self.assertEqual(self.set(self.w[1], 0.03, 7), 7)
            self.round(step)
        self.assertEqual([self.rate(s) for s in (6, 7)], [0.1, 0.03])
        self.finish(self.job_, self.w)

    def test_many_sets_at_random(self):
        self.begin()
        rand = random.Random(7)
        made = late = 0
        for step in range(ROUNDS):
            for _ in range(rand.randrange(3)):
                agent, lr = rand.choice(self.w), rand.choice((0.1, 0.25, 0.013, 1.5))
                first = rand.choice((NEXT, max(step - 1, 0), step, step + 1, step + 5))
                if first != NEXT and first < step:
                    text = self.refused("PSRT_ERR_TOO_LATE", agent, f"set t lr {lr} {first}")
                    self.assertRegex(text, f"table t: lr .* step {first}: server:[0-2] has closed "
                                           f"it, step {step} is the first that is open")
                    late += 1
                else:
                    self.assertEqual(self.set(agent, lr, first), step if first == NEXT else first)
                    made += 1
            self.round(step)
        self.assertGreater(min(made, late), 5)
        self.finish(self.job_, self.w)

    def test_while_the_step_is_open(self):
        self.begin()
        self.round(0)
        op = self.w[0].cmd("start push_pull t")
        self.assertEqual(self.set(self.w[0], 0.5, NEXT), 1)
        self.assertEqual(self.set(self.w[1], 0.25, 1), 1, "the last one wins")
        self.w[1].cmd("push_pull t", 60)
        self.w[0].cmd(f"wait {op} 60")
        self.reached(1)
        self.round(2)
        self.finish(self.job_, self.w)

    def test_at_once_without_steps(self):
        job, w = self.started(2, 2)
        every(w, "table a n=600000 opt=sgd:lr=1 cons=async dtype=f64")
        every(w, "fill a 1")
        w[0].cmd("push a")
        self.assertEqual(w[1].cmd("set a lr 0.5 next"), "0")
        every(w, "push a")
        w[0].cmd("pull a")
        self.assertEqual(float(w[0].cmd("sum a")), -2.0)
        self.assertIn("PSRT_STEP_NEXT", self.refused("PSRT_ERR_INVALID", w[0], "set a lr 0.5 9"))
        self.finish(job, w)

    def test_what_is_wrong_is_named(self):
        job, (w,) = self.started(1, 1)
        w.cmd("table t n=10 opt=adam:lr=0.1")
        w.cmd("table plain n=10 opt=none")
        self.assertIn('did you mean "beta1"', self.refused("PSRT_ERR_INVALID", w, "set t beta_1 0 next"))
        self.assertIn("beta1 must", self.refused("PSRT_ERR_INVALID", w, "set t beta1 1 next"))
        self.assertIn("finite", self.refused("PSRT_ERR_INVALID", w, "set t lr nan next"))
        self.assertIn("table plain", self.refused("PSRT_ERR_INVALID", w, "set plain lr 1 next"))
        self.assertEqual(w.cmd("set t beta1 0.5 next"), "0")
        self.finish(job, [w])


class Deaths(Rates):
    def test_a_server_dies_in_the_middle(self):
        self.begin()
        small = [f"s{i}" for i in range(12)]  # of one slice each
        for name in small:
            every(self.w, f"table {name} n=10 opt=sgd:lr=1 reduce=sum")
        self.job_.srv[2].kill(signal.SIGSTOP)  # so that it does not answer
        self.w[0].send("set t lr 0.5 next")
        self.job_.srv[2].kill()
        with self.assertRaises(Refused) as caught:
            self.w[0].receive()
        self.assertEqual(caught.exception.status, "PSRT_ERR_SHARD_LOST")
        self.assertIn("server:2", caught.exception.text)
        fine = 0
        for name in small:
            try:
                self.assertEqual(self.w[1].cmd(f"set {name} lr 0.5 next"), "0")
            except Refused as e:
                self.assertEqual(e.status, "PSRT_ERR_SHARD_LOST", e.text)
                continue
            every(self.w, f"flat {name} 1")
            every(self.w, f"push_pull {name}")
            self.assertEqual(float(self.w[0].cmd(f"at {name} 3")), -1.0, "of 2 times 0.5")
            fine += 1
        self.assertGreater(fine, 0)

    def test_the_coordinator_dies_in_the_middle(self):
        self.begin()
        self.round(0)
        for step in (1, 2, 3):
            self.job_.srv[1].kill(signal.SIGSTOP)  # it holds back the decision
            self.w[0].send(f"set t lr {step / 4} {step}")
            self.w[1].send("push_pull t")
            self.job_.coord.kill()
            self.job_.coord = self.job_.coordinator()
            self.job_.srv[1].kill(signal.SIGCONT)
            self.assertEqual(int(self.w[0].receive(60)), step)
            self.sets.append((step / 4, step))
            self.w[0].cmd("push_pull t", 60)
            self.w[1].receive(60)
            self.reached(step)
        self.finish(self.job_, self.w)

    def test_the_worker_dies_in_the_middle(self):
        self.begin()
        self.round(0)
        self.job_.srv[1].kill(signal.SIGSTOP)
        self.w[0].send("set t lr 0.5 next")
        self.w[0].kill()
        self.job_.srv[1].kill(signal.SIGCONT)
        self.w[1].cmd("push_pull t", 60)  # alone, once the other one is declared dead
        first = float(self.w[1].cmd("at t 0"))
        self.assertIn(first, (self.value[0] - 0.5 * 2, self.value[0] - 0.1 * 2))
        for slice_ in range(6):
            at = (slice_ * 2**18 + 4) // 5 * 5
            self.assertEqual(float(self.w[1].cmd(f"at t {at}")), first, f"slice {slice_}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
