# SPDX-License-Identifier: Apache-2.0
"""Workers end in every way and at any moment, and come while others train: those who stay go on with every
step, with the right divisor, and everyone sees the same job.
"""
import random
import signal
import time
import unittest

from job import SLOW, JobTest, every

BIG = 300_000  # elements: two slices, on two servers
SLICE = 2**18
SLICES = 24


class Ends(JobTest):
    """One of three ends. The table averages: the divisor is seen in the values."""

    TABLE = f"table t n={BIG} opt=none dtype=f64"

    def one_ends(self, end):
        job, w = self.started(3, 2)
        every(w, self.TABLE)
        for rank, a in enumerate(w):
            a.cmd(f"fill t {6 * (rank + 1)}")
        every(w, "push_pull t")
        self.assertEqual([float(v) for v in every(w, "sum t")], [12.0] * 3)
        end(w[1])
        two, value = [w[0], w[2]], 12.0
        for _ in range(4):
            every(two, "push_pull t")  # the first waits for the end of the lease at most
            value += (6 + 18) / 2
            self.assertEqual([float(v) for v in every(two, "sum t")], [value] * 2)
        self.until(lambda: {a.info()["live_workers"] for a in two} == {"2"}, "two are left")
        self.assertTrue(all(s.alive() for s in job.srv))
        self.finish(job, two)

    def by_signal(self, agent, sig):
        agent.kill(sig)
        self.assertEqual(agent.wait(), -sig)

    def test_sigterm(self):
        self.one_ends(lambda a: self.by_signal(a, signal.SIGTERM))

    def test_sigint(self):
        self.one_ends(lambda a: self.by_signal(a, signal.SIGINT))

    def test_sigkill(self):
        self.one_ends(lambda a: self.by_signal(a, signal.SIGKILL))

    def test_exit_0_without_leaving(self):
        self.one_ends(lambda a: self.assertEqual(a.quit(), 0))

    def test_exit_0_with_an_operation_under_way(self):
        def end(a):
            a.cmd("start pull t")
            a.cmd("start pull t")
            self.assertEqual(a.quit(), 0)

        self.one_ends(end)

    def test_one_after_the_other_until_nobody_is_left(self):
        job, w = self.started(3, 2, PSRT_DRAIN_TIMEOUT="1s")
        every(w, self.TABLE)
        every(w, "fill t 5")
        ways = (signal.SIGTERM, signal.SIGINT, None)
        for step, sig in enumerate(ways, 1):
            every(w, "push_pull t")
            self.assertEqual([float(v) for v in every(w, "sum t")], [5.0 * step] * len(w))
            leaver = w.pop()
            self.by_signal(leaver, sig) if sig else self.assertEqual(leaver.quit(), 0)
        for t in job.srv + [job.coord]:
            self.assertNotEqual(t.wait(20), 0)
            self.assertIn("worker", t.output())

    def test_servers_end_soon_after_the_last_worker(self):
        job, w = self.started(3, 2)
        every(w, self.TABLE)
        w.pop(0).quit()  # dies
        w[0].cmd("destroy")  # leaves early
        self.assertEqual(w.pop(0).quit(), 0)
        w[0].cmd("push_pull t")
        self.assertTrue(all(t.alive() for t in job.srv + [job.coord]))
        w[0].cmd("destroy")
        for t in job.srv + [job.coord]:
            self.assertEqual(t.wait(5), 0, t.output())
        self.assertEqual(w[0].quit(), 0)


class Joins(JobTest):
    """The third place of a job of three is empty for a while."""

    TABLE = f"table t n={BIG} opt=none reduce=sum dtype=f64"

    def begin(self, w):
        every(w, "fill t 1")
        self.w, self.step, self.base = w, 0, 0
        return w

    def two_of_three(self):
        self.job_, w = self.started(3, 2)
        every(w, self.TABLE)
        w.pop().kill()
        return self.begin(w)

    def two_and_a_free_place(self):
        self.job_ = self.job(3, 2, PSRT_START_WORKERS="2")
        w = self.job_.start(workers=2)
        self.assertEqual({a.info()["live_workers"] for a in w}, {"2"})
        every(w, self.TABLE)
        return self.begin(w)

    def round(self):
        """The two end a step, the next one: none is skipped, none made twice."""
        for a in self.w:
            self.assertEqual(int(a.cmd("step t")), self.step)
        for got in every(self.w, "push_pull t"):
            self.assertIn(f"late=0 step={self.step} version={self.step + 1}", got)
        self.step += 1
        self.base += len(self.w)
        values = {float(v) for v in every(self.w, "sum t")}
        self.assertEqual(len(values), 1)
        return values.pop()

    def test_all_agree_when_it_has_come(self):
        self.third_comes(self.two_of_three())

    def test_all_agree_when_it_comes_for_the_first_time(self):
        self.third_comes(self.two_and_a_free_place())

    def test_who_never_comes_is_not_missed(self):
        w = self.two_and_a_free_place()
        for _ in range(5):
            self.assertEqual(self.round(), self.base)
        every(w, "barrier all")
        self.finish(self.job_, w)

    def third_comes(self, w):
        for _ in range(5):
            self.assertEqual(self.round(), self.base)
        new = self.job_.worker(2)
        new.send("create")
        new.receive(60)
        new.cmd(self.TABLE)
        new.cmd("fill t 1")
        first = int(new.cmd("step t"))
        self.assertIn(first, (self.step, self.step + 1))
        while self.step < first:  # the step that was open for the two alone
            self.assertEqual(self.round(), self.base)
        new.cmd("pull t")
        self.assertEqual(float(new.cmd("sum t")), self.base)
        w.append(new)
        for _ in range(5):
            self.assertEqual(self.round(), self.base)
        self.assertEqual(self.base, 2 * first + 3 * 5)

        def views():
            infos = [a.info() for a in w]
            return {(i["view"], i["live_workers"], i["workers"]) for i in infos}

        self.until(lambda: len(views()) == 1, "all have the same view")
        self.assertEqual({v[1:] for v in views()}, {("3", "3")})
        self.assertEqual(len(set(every(w, "members worker"))), 1)
        self.assertEqual({int(s) for s in every(w, "step t")}, {self.step})
        self.finish(self.job_, w)

    def test_killed_at_any_moment_of_joining(self):
        """Each newcomer pushes one step at most, with a digit of its own (base 4) above the two's sums."""
        w = self.two_of_three()
        random_ = random.Random(7)
        unit, comers = 2**12, 16
        for i in range(comers):
            new = self.job_.worker(2)
            for line in ("create", self.TABLE, f"fill t {unit * 4**i}", "push_pull t"):
                new.send(line)
            time.sleep(random_.uniform(0, 0.15) * SLOW)  # the moment of its death, anywhere
            new.kill()
            self.round()
            total = self.round() - self.base
            self.assertGreaterEqual(total, 0)
            digits = [int(total) // unit // 4**j % 4 for j in range(comers)]
            self.assertEqual(sum(unit * d * 4**j for j, d in enumerate(digits)), total)
            self.assertLessEqual(set(digits), {0, 1}, f"after newcomer {i}")
            self.assertFalse(any(digits[i + 1:]))
        self.finish(self.job_, w)


class Halves(JobTest):
    """A worker ends in the middle of pushing a large table. The others push 3; it pushes so much that the
    average with it is 5. So a slice gains 5 with it, 3 without, and anything else with a wrong divisor or
    part of it."""

    WORKERS = 5

    def kill(self, victim, sig):
        victim.kill(sig)

    def lose_all_but_one(self, sig, transport):
        job, w = self.started(self.WORKERS, 2, PSRT_TRANSPORT=transport)
        every(w, f"table t n={SLICES * SLICE - 5} opt=none")
        every(w, "flat t 3")
        began = time.monotonic()
        every(w, "push t")
        took = time.monotonic() - began
        every(w, "pull t")
        self.assertEqual(set(every(w, "slices t")), {" ".join(["3"] * SLICES)})
        random_, value = random.Random(f"{sig} {transport}"), [3.0] * SLICES
        while len(w) > 1:
            victim = w.pop()
            victim.cmd(f"flat t {3 + 2 * (len(w) + 1)}")
            victim.send("push t")
            time.sleep(random_.uniform(0, took / 2))  # the moment of its end, anywhere
            self.kill(victim, sig)
            every(w, "push_pull t")
            seen = set(every(w, "slices t"))
            self.assertEqual(len(seen), 1)
            now = [float(v) for v in seen.pop().split()]
            self.assertLessEqual({b - a for a, b in zip(value, now)}, {3.0, 5.0})
            value = now
            every(w, "push_pull t")  # whatever had half come is no part of a later step
            value = [v + 3 for v in value]
            self.assertEqual([float(v) for v in w[0].cmd("slices t").split()], value)
        self.finish(job, w)

    def test_killed(self):
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                self.lose_all_but_one(signal.SIGKILL, transport)

    def test_stopped_for_longer_than_the_lease(self):
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                self.lose_all_but_one(signal.SIGSTOP, transport)

    def test_between_two_servers(self):
        """One server has its part of the contribution, the other stands still and has not."""
        job, w = self.started(3, 2)
        every(w, f"table t n={SLICES * SLICE} opt=none")
        every(w[:2], "flat t 3")
        w[2].cmd("flat t 9")
        job.srv[1].kill(signal.SIGSTOP)
        op = w[2].cmd("start push t")
        self.refused("PSRT_ERR_TIMEOUT", w[2], f"wait {op} 0.2")
        w.pop().kill()
        job.srv[1].kill(signal.SIGCONT)
        for step in range(1, 4):
            every(w, "push_pull t")
            values = [float(v) for v in w[0].cmd("slices t").split()]
            self.assertLessEqual(set(values), {3.0 * step, 3.0 * step + 2})
            first = values if step == 1 else first
            self.assertEqual(values, [v + 3 * (step - 1) for v in first])
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main(verbosity=2)
