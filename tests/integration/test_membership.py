# SPDX-License-Identifier: Apache-2.0
"""Workers join, leave, are restarted in their place, or are too slow, while a model that knows who
contributed to which step says what the values must be. 100 rounds each.

Round s is step s of the table: worker r contributes 12 * (1 + (7 r + 5 s) mod 11) to it, a multiple of all
divisors, so that every sum and average is exact.
"""
import select
import signal
import socket
import unittest

from job import JobTest, Refused, every

ROUNDS = 100
BIG = 300_000  # elements: two slices, on two servers
HOST = socket.gethostname()


def contribution(rank, step):
    return 12 * (1 + (7 * rank + 5 * step) % 11)


class Rounds(JobTest):
    """A job of workers on one table, and the value that it must have."""

    def begin(self, workers, table, **env):
        self.job_, agents = self.started(workers, 2, **env)
        self.table, self.value = table, 0.0
        every(agents, f"table t {table}")
        self.w = dict(enumerate(agents))
        self.first = dict.fromkeys(self.w, 0)  # the step from which a worker counts
        self.coming = None  # (rank, agent) whose create has not been answered

    def come(self, rank):
        agent = self.job_.worker(rank)
        agent.send("create")
        self.coming = rank, agent

    def arrived(self):
        """Has the newcomer been let in? Then it counts from a step that it is told."""
        if not self.coming or not select.select([self.coming[1].proc.stdout], [], [], 0)[0]:
            return None
        rank, agent = self.coming
        agent.receive()
        agent.cmd(f"table t {self.table}")
        self.w[rank], self.first[rank], self.coming = agent, int(agent.cmd("step t")), None
        return rank

    def start(self, rank, step):
        self.w[rank].cmd(f"fill t {contribution(rank, step)}")
        self.assertEqual(int(self.w[rank].cmd("step t")), step)
        return self.w[rank].cmd("start push_pull t")

    def round(self, step, average=False):
        """Everyone who counts contributes; a newcomer is let in as soon as it is there."""
        ops = {r: self.start(r, step) for r in self.w if self.first[r] <= step}
        members = set(ops)
        while ops:
            rank, op = next(iter(ops.items()))
            try:
                self.w[rank].cmd(f"wait {op} 0.1")
                del ops[rank]
            except Refused as e:
                self.assertEqual(e.status, "PSRT_ERR_TIMEOUT", e.text)
                new = self.arrived()
                if new is not None and self.first[new] <= step:
                    ops[new] = self.start(new, step)
                    members.add(new)
        total = sum(contribution(r, step) for r in members)
        self.value += total / len(members) if average else total
        self.check(members, step)
        return members

    def check(self, ranks, step):
        for rank in ranks:
            self.assertEqual(float(self.w[rank].cmd("sum t")), self.value,
                             f"worker:{rank} after step {step}")

    def end(self):
        self.finish(self.job_, list(self.w.values()))


class Changes(Rounds):
    def test_joining_while_the_others_go_on(self):
        self.begin(3, f"n={BIG} opt=none reduce=sum dtype=f64")
        without = set()
        for step in range(ROUNDS):
            if step % 30 == 10:
                self.w.pop(2).kill()
            if step % 30 == 14:
                self.come(2)
            if step % 30 == 24:
                self.until(lambda: self.arrived() is not None or not self.coming, "worker:2 joins")
            if 2 not in self.round(step):
                without.add(step)
            self.arrived()
        self.assertTrue(without.issuperset({10, 11, 12, 13, 40, 41, 42, 43, 70, 71, 72, 73}))
        self.assertLessEqual(without, {s for s in range(ROUNDS) if 10 <= s % 30 <= 25})
        self.end()

    def test_leaving_in_order(self):
        self.begin(4, f"n={BIG} opt=none reduce=average dtype=f64")
        for step in range(ROUNDS):
            if step in (25, 50, 75):
                leaver = self.w.pop(step // 25)
                leaver.cmd("destroy")
                self.assertEqual(leaver.quit(), 0)
            members = self.round(step, average=True)
            self.assertEqual(members, {0} | {r for r in (1, 2, 3) if step < 25 * r})
        self.end()

    def test_restarted_in_its_place_in_the_middle_of_a_step(self):
        self.begin(2, "n=1000 opt=none reduce=sum dtype=f64")  # one slice: it is in or not
        for step in range(ROUNDS):
            if step % 20 == 15:
                self.until(lambda: self.arrived() is not None or not self.coming, "worker:1 is back")
            if step % 20 != 5:
                self.round(step)
                self.arrived()
                continue
            self.start(1, step)
            self.w.pop(1).kill()
            self.come(1)
            op = self.start(0, step)
            self.w[0].cmd(f"wait {op} 30")
            alone, both = (self.value + contribution(0, step) + x
                           for x in (0, contribution(1, step)))
            got = float(self.w[0].cmd("sum t"))
            self.assertIn(got, (alone, both))
            self.value = got
        self.end()


    def test_coming_back_when_the_others_have_made_their_last_step(self):
        """They wait for it at a barrier: it has nothing to wait for, unless it pushes what nobody expects."""
        for cons in ("sync", "ssp:0"):
            with self.subTest(cons):
                self.come_back_at_the_end(cons)

    def come_back_at_the_end(self, cons):
        self.begin(2, f"n={BIG} opt=none reduce=sum dtype=f64 cons={cons}", PSRT_STALL_WARNING="200ms")
        old, steps = self.w[0], 3
        for step in range(steps):
            every(self.w.values(), "fill t 12")
            every(self.w.values(), "push_pull t")
        self.w.pop(1).kill()
        self.come(1)
        self.until(lambda: self.arrived() is not None, "worker:1 is back")
        new = self.w[1]
        old.send("barrier trained 0 60")
        new.cmd("pull t")
        self.assertEqual(self.first[1], steps)
        self.assertEqual(float(new.cmd("sum t")), 24 * steps)
        new.cmd("barrier trained 0 60")
        old.receive()
        if cons == "sync":
            self.push_what_nobody_expects(new, old)
        self.end()

    def push_what_nobody_expects(self, new, old):
        """It is said whom that waits for; when they leave, it is made without them."""
        value = float(new.cmd("sum t"))
        new.cmd("fill t 12")
        text = self.refused("PSRT_ERR_DEADLINE", new, "push_pull t deadline=0.3")
        self.assertIn("waits for worker:0", text)
        op = new.cmd("start push_pull t")
        self.refused("PSRT_ERR_TIMEOUT", new, f"wait {op} 0.5")
        self.assertRegex(new.output(), "has waited for 0.2 s: push_pull of table t, step 4: other workers are missing")
        old.cmd("destroy")
        self.assertEqual(self.w.pop(0).quit(), 0)
        new.cmd(f"wait {op} 30")
        self.assertEqual(float(new.cmd("sum t")), value + 2 * 12)  # the first was in, if not made


class Backup(Rounds):
    def test_the_first_two_of_three_are_the_sum(self):
        self.begin(3, f"n={BIG} opt=none reduce=average cons=sync:backup=1 dtype=f64",
                   PSRT_LEASE="120s")
        for step in range(ROUNDS):
            if step == 40:
                self.w[2].kill(signal.SIGSTOP)  # for twenty rounds it is nobody's third
            if step == 60:
                self.w[2].kill(signal.SIGCONT)
            stopped = 40 <= step < 60
            last = 2 if stopped or step == 60 else step % 3
            pair = [r for r in range(3) if r != last]
            ops = [self.start(r, step) for r in pair]
            for r, op in zip(pair, ops):
                self.assertIn("late=0", self.w[r].cmd(f"wait {op} 30"))
            self.value += sum(contribution(r, step) for r in pair) / 2
            self.check(pair, step)
            if stopped:
                continue
            self.w[last].cmd("fill t 1000")
            got = self.w[last].cmd("push_pull t")
            self.assertIn(f"late=1 step={40 if step == 60 else step} ", got)
            self.check([last], step)
        self.end()

    def test_at_full_speed_each_step_has_two_contributions(self):
        self.begin(3, f"n={BIG} opt=none reduce=sum cons=sync:backup=1", PSRT_LEASE="120s")
        every(self.w.values(), "fill t 1")
        for a in self.w.values():
            a.send(f"upto push_pull t {ROUNDS}")
        self.w[0].receive(120)
        self.w[1].receive(120)
        self.w[2].receive(120)
        every(self.w.values(), "pull t")
        self.assertEqual({float(v) for v in every(self.w.values(), "sum t")}, {2.0 * ROUNDS})
        self.end()

    def test_a_stopped_worker_holds_nobody_up(self):
        self.begin(3, f"n={BIG} opt=none reduce=sum cons=sync:backup=1", PSRT_LEASE="120s")
        every(self.w.values(), "fill t 1")
        self.w[2].send(f"upto push_pull t {ROUNDS}")
        self.w[2].kill(signal.SIGSTOP)
        for a in (self.w[0], self.w[1]):
            a.send(f"upto push_pull t {ROUNDS}")
        self.w[0].receive(120)
        self.w[1].receive(120)
        self.w[2].kill(signal.SIGCONT)
        self.w[2].receive(120)
        every(self.w.values(), "pull t")
        self.assertEqual({float(v) for v in every(self.w.values(), "sum t")}, {2.0 * ROUNDS})
        self.end()

    def test_a_mismatch_names_both(self):
        job, w = self.started(2, 1)
        w[0].cmd("table t n=10 cons=sync:backup=1")
        w[0].cmd("push t")
        text = self.refused("PSRT_ERR_MISMATCH", w[1], "table t n=10 cons=sync")
        self.assertIn("sync:backup=1", text)


class FirstValues(JobTest):
    """Worker 0 of a rank0 table is lost before it gave the values."""

    TABLE = f"n={BIG} opt=none reduce=sum init=rank0"

    def lose_worker_0(self, consistency):
        job, w = self.started(2, 2)
        w[1].cmd(f"table t {self.TABLE} cons={consistency}")
        w[1].cmd("fill t 1")
        waiting = [w[1].cmd(f"start {what} t") for what in ("pull", "push_pull")]
        w[0].kill()
        for op in waiting:
            text = self.refused("PSRT_ERR_PEER_LOST", w[1], f"wait {op} 30")
            for part in ("table t", "worker:0", "rank0"):
                self.assertIn(part, text)
        self.refused("PSRT_ERR_PEER_LOST", w[1], "push t")
        return job, w

    def test_operations_end(self):
        job, w = self.lose_worker_0("sync")
        self.finish(job, w[1:])

    def test_a_restarted_worker_0_gives_them(self):
        for consistency in ("sync", "async", "ssp:1"):
            with self.subTest(consistency):
                job, w = self.lose_worker_0(consistency)
                w[0] = job.worker(0)
                w[0].cmd("create", 60)
                w[0].cmd(f"table t {self.TABLE} cons={consistency} data=3")
                every(w, "pull t")
                self.assertEqual([float(v) for v in every(w, "sum t")], [3.0, 3.0])
                self.refused("PSRT_ERR_PEER_LOST", w[1], "barrier settled")  # tells of them once
                every(w, "fill t 2")
                every(w, "push t")
                every(w, "barrier pushed")
                every(w, "pull t")
                self.assertEqual([float(v) for v in every(w, "sum t")], [7.0, 7.0])
                self.finish(job, w)


class Members(JobTest):
    def members(self, agent, role):
        names = ("rank", "incarnation", "alive", "finished", "host")
        return [dict(zip(names, m.split(":"))) for m in agent.cmd(f"members {role}").split()]

    def next_event(self, agent, text):
        seen = []
        self.until(lambda: seen.append(agent.cmd("events")) or text in " | ".join(seen),
                   f'"{text}" is told, not {seen}')
        return " | ".join(filter(None, seen))

    def test_they_are_listed_and_changes_are_told(self):
        job, w = self.started(3, 2, PSRT_SERVER_THREADS="2")
        self.next_event(w[0], "3 workers and 2 servers are in the job")
        start = self.members(w[0], "worker") + self.members(w[0], "server")
        self.assertEqual([m["rank"] for m in start], ["0", "1", "2", "0", "1"])
        self.assertEqual(len({m["incarnation"] for m in start}), 5)
        for m in start:
            self.assertEqual((m["alive"], m["finished"], m["host"]), ("1", "0", HOST[:63]))

        w[1].kill()
        self.assertEqual(self.next_event(w[0], "worker:1"), "worker:1 died")
        one = self.members(w[0], "worker")[1]
        self.assertEqual((one["alive"], one["finished"]), ("0", "0"))
        self.assertEqual(one["incarnation"], start[1]["incarnation"])

        w[1] = job.worker(1)
        w[1].cmd("create", 60)
        self.assertEqual(self.next_event(w[0], "worker:1"), f"worker:1 joined at {HOST[:63]}")
        again = self.members(w[0], "worker")[1]
        self.assertEqual(again["alive"], "1")
        self.assertGreater(int(again["incarnation"]), int(one["incarnation"]))
        self.assertEqual(self.members(w[1], "worker"), self.members(w[0], "worker"))

        w[2].cmd("destroy")
        self.assertEqual(self.next_event(w[0], "worker:2"), "worker:2 left")
        two = self.members(w[0], "worker")[2]
        self.assertEqual((two["alive"], two["finished"]), ("0", "1"))

        job.srv[1].kill()
        self.assertEqual(self.next_event(w[0], "server:1"), "server:1 died")
        self.assertEqual([m["alive"] for m in self.members(w[0], "server")], ["1", "0"])
        job.srv[1] = job.server(1, PSRT_SERVER_THREADS="2")
        self.assertEqual(self.next_event(w[0], "server:1"), f"server:1 joined at {HOST[:63]}")
        self.finish(job, w[:2])


if __name__ == "__main__":
    unittest.main(verbosity=2)
