# SPDX-License-Identifier: Apache-2.0
"""Consistency modes, life and death, with real processes."""
import itertools
import signal
import unittest

from job import Job, JobTest, every

BIG = 700_000  # elements: three slices, so several servers take part


class Modes(JobTest):
    def test_sync_average_and_sum(self):
        for reduce, expect in (("average", 2.0), ("sum", 6.0)):
            job, w = self.started(3, 2)
            every(w, f"table t n={BIG} opt=none cons=sync reduce={reduce}")
            for i, a in enumerate(w):
                a.cmd(f"fill t {i + 1}")
            for step in range(1, 5):
                every(w, "push_pull t")
                for v in every(w, "sum t"):
                    self.assertEqual(float(v), expect * step)
            self.finish(job, w)

    def test_sync_push_then_pull_sees_own_step(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none reduce=sum")
        for step in range(1, 4):
            every(w, "fill t 1")
            every(w, "push t")
            every(w, "pull t")
            self.assertEqual({float(v) for v in every(w, "sum t")}, {2.0 * step})
        self.finish(job, w)

    def test_a_sync_step_waits_for_everyone_and_push_does_not(self):
        job, w = self.started(2, 1)
        every(w, "table t n=1000 opt=none reduce=sum")
        every(w, "fill t 1")
        w[0].cmd("push t")
        w[0].cmd("push t")
        op = w[0].cmd("start pull t")
        text = self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {op} 0.2")
        self.assertIn("table t", text)
        w[1].cmd("push t")
        w[1].cmd("push t")
        w[0].cmd(f"wait {op} 20")
        self.assertEqual(float(w[0].cmd("sum t")), 4.0)
        self.finish(job, w)

    def test_a_third_open_step_waits_at_the_worker(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none reduce=sum")
        every(w, "fill t 1")
        ops = [w[0].cmd("start push t") for _ in range(4)]
        w[0].cmd(f"wait {ops[0]} 20")
        w[0].cmd(f"wait {ops[1]} 20")
        self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {ops[2]} 0.3")
        for _ in range(4):
            w[1].cmd("push t")
        w[0].cmd(f"wait {ops[2]} 20")
        w[0].cmd(f"wait {ops[3]} 20")
        every(w, "pull t")
        self.assertEqual({float(v) for v in every(w, "sum t")}, {8.0})
        self.finish(job, w)

    def test_async_applies_on_arrival(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none cons=async")
        every(w, "fill t 1")
        for _ in range(3):
            w[0].cmd("push t")
        w[1].cmd("push_pull t")
        self.assertEqual(float(w[1].cmd("sum t")), 4.0)
        self.finish(job, w)

    def test_ssp_reaches_and_never_exceeds_its_staleness(self):
        s = 2
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none cons=ssp:{s}")
        every(w, "fill t 1")
        for _ in range(s):  # s steps ahead of worker 1: allowed
            w[0].cmd("push t")
            w[0].cmd("pull t")
        self.assertEqual(float(w[0].cmd("sum t")), float(s))
        w[0].cmd("push t")  # s + 1 ahead: the pull must wait
        op = w[0].cmd("start pull t")
        self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {op} 0.3")
        w[1].cmd("push t")
        w[0].cmd(f"wait {op} 20")
        self.assertEqual(float(w[0].cmd("sum t")), s + 2.0)
        self.finish(job, w)

    def test_ssp_push_pull(self):
        job, w = self.started(3, 2)
        every(w, f"table t n={BIG} opt=none cons=ssp:0")
        every(w, "fill t 1")
        for step in range(1, 6):
            every(w, "push_pull t")
        every(w, "pull t")
        self.assertEqual({float(v) for v in every(w, "sum t")}, {15.0})
        self.finish(job, w)

    def test_ranges_end_with_the_last_push(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none reduce=sum")
        every(w, "fill t 1")
        third = BIG // 3 // 5 * 5
        for _ in range(3):
            for a in w:
                a.cmd(f"push t offset=0 count={third} more=1")
                a.cmd(f"push t offset={third} count={third} more=1")
                a.cmd(f"push t offset={2 * third} count={BIG - 2 * third}")
        every(w, "pull t")
        self.assertEqual({float(v) for v in every(w, "sum t")}, {6.0})
        self.finish(job, w)

    def test_late_push_is_discarded_and_told(self):
        job, w = self.started(2, 1)
        every(w, "table t n=1000 opt=none reduce=sum")
        every(w, "fill t 1")
        every(w, "push_pull t")
        self.assertIn("late=1", w[0].cmd("push t step=0"))
        every(w, "push_pull t")
        self.assertEqual({float(v) for v in every(w, "sum t")}, {4.0})
        self.finish(job, w)


class Start(JobTest):
    def test_every_order(self):
        for order in itertools.permutations("csw"):
            job = self.job(1, 1)
            for role in order:
                if role == "c":
                    job.coord = job.coordinator()
                elif role == "s":
                    job.srv = [job.server(0)]
                else:
                    w = job.worker(0)
                    w.send("create")
            w.receive(30)
            self.finish(job, [w])

    def test_missing_tasks_are_named(self):
        job = self.job(2, 2, PSRT_START_TIMEOUT="2s")
        coord, server, w = job.coordinator(), job.server(0), job.worker(1)
        text = self.refused("PSRT_ERR_START_TIMEOUT", w, "create", 20)
        self.assertIn("worker:0", text)
        self.assertIn("server:1", text)
        self.assertNotIn("worker:1", text)
        self.assertNotEqual(server.wait(), 0)
        self.assertIn("server:1", server.output())
        self.assertNotEqual(coord.wait(), 0)

    def test_no_coordinator_names_its_address(self):
        job = self.job(1, 1, PSRT_START_TIMEOUT="1s")
        job.listener.close()
        w = job.worker(0)
        with self.assertRaises(Exception) as caught:
            w.cmd("create", 20)
        self.assertIn(str(job.port), caught.exception.text)

    def test_ranks_are_what_they_were_given(self):
        for _ in range(3):
            job, w = self.started(3, 1)
            self.assertEqual([a.info()["rank"] for a in w], ["0", "1", "2"])
            self.finish(job, w)

    def test_a_taken_rank_is_refused(self):
        job, w = self.started(2, 1)
        text = self.refused("PSRT_ERR_REFUSED", job.worker(1), "create", 20)
        self.assertIn("worker:1", text)
        every(w, "table t n=10 opt=none reduce=sum")
        every(w, "fill t 1")
        every(w, "push_pull t")
        self.assertEqual(float(w[0].cmd("sum t")), 2.0)
        self.finish(job, w)


class End(JobTest):
    def test_one_leaves_early_the_others_go_on(self):
        job, w = self.started(3, 2)
        every(w, f"table t n={BIG} opt=none")
        every(w, "fill t 3")
        every(w, "push_pull t")
        w[2].cmd("destroy")
        self.assertEqual(w[2].quit(), 0)
        for step in (2, 3):
            every(w[:2], "push_pull t")
            self.assertEqual({float(v) for v in every(w[:2], "sum t")}, {3.0 * step})
        self.assertTrue(all(s.alive() for s in job.srv))
        self.finish(job, w[:2])

    def test_all_workers_killed(self):
        job, w = self.started(2, 2, PSRT_DRAIN_TIMEOUT="1s")
        for a in w:
            a.kill()
        for t in job.srv + [job.coord]:
            self.assertNotEqual(t.wait(20), 0)
            self.assertIn("worker", t.output())


class Kill(JobTest):
    def test_a_dead_worker_leaves_the_average(self):
        job, w = self.started(3, 2)
        every(w, f"table t n={BIG} opt=none")
        every(w, "fill t 3")
        every(w, "push_pull t")
        w[1].kill()
        for step in range(2, 6):
            every([w[0], w[2]], "push_pull t")
            self.assertEqual({float(v) for v in every([w[0], w[2]], "sum t")}, {3.0 * step})
        self.finish(job, [w[0], w[2]])

    def test_a_worker_restarted_in_its_place(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none reduce=sum")
        every(w, "fill t 1")
        for _ in range(3):
            every(w, "push_pull t")
        w[1].kill()
        again = job.worker(1)
        again.send("create")
        w[0].cmd("push_pull t")  # alone now
        again.receive()
        again.cmd(f"table t n={BIG} opt=none reduce=sum")
        again.cmd("fill t 1")
        first = int(again.cmd("step t"))
        while int(w[0].cmd("step t")) < first:
            w[0].cmd("push_pull t")
        before = 6 + (first - 3)  # three steps of two, then one worker alone
        again.send("pull t")
        again.receive()
        self.assertEqual(float(again.cmd("sum t")), float(before))
        for step in range(1, 4):
            every([w[0], again], "push_pull t")
            got = {float(v) for v in every([w[0], again], "sum t")}
            self.assertEqual(got, {before + 2.0 * step})
        self.finish(job, [w[0], again])

    def test_a_dead_server_ends_operations_everywhere(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none")
        every(w, "fill t 1")
        every(w, "push_pull t")
        ops = every(w, "start pull t step=100")
        job.srv[1].kill()
        for a, op in zip(w, ops):
            text = self.refused("PSRT_ERR_SHARD_LOST", a, f"wait {op} 20")
            self.assertIn("server:1", text)
            self.assertIn("table t", text)
        for a in w:
            self.refused("PSRT_ERR_SHARD_LOST", a, "push t")

    def test_a_restarted_server_is_lost_never_fresh(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none init=constant:value=5")
        every(w, "fill t 1")
        every(w, "push_pull t")
        job.srv[1].kill()
        job.srv[1] = job.server(1)
        for a in w:
            self.refused("PSRT_ERR_SHARD_LOST", a, "pull t step=50", 30)
        self.until(lambda: w[0].info()["live_servers"] == "2", "server:1 is back")
        for a in w:
            self.refused("PSRT_ERR_SHARD_LOST", a, "pull t")
            self.refused("PSRT_ERR_SHARD_LOST", a, "push t")
        self.until(lambda: w[1].info()["live_servers"] == "2", "worker:1 sees server:1")
        every(w, f"table u n={BIG} opt=none")
        every(w, "fill u 1")
        every(w, "push_pull u")
        self.assertEqual(float(w[0].cmd("sum u")), 1.0)
        self.finish(job, w)

    def test_a_coordinator_restart_stops_nothing(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none reduce=sum")
        every(w, "fill t 1")
        every(w, "push_pull t")
        job.coord.kill()
        for _ in range(5):
            every(w, "push_pull t")
        job.coord = job.coordinator()
        every(w, "table u n=10 opt=none reduce=sum")
        every(w, "fill u 1")
        every(w, "push_pull u")
        every(w, "barrier b")
        every(w, "push_pull t")
        self.assertEqual({float(v) for v in every(w, "sum t")}, {14.0})
        self.finish(job, w)

    def test_a_lost_coordinator_ends_contexts(self):
        job, w = self.started(1, 1, PSRT_COORDINATOR_TIMEOUT="2s")
        w[0].cmd("table t n=10 opt=none")
        job.listener.close()
        job.coord.kill()
        op = w[0].cmd("start pull t step=9")
        self.refused("PSRT_ERR_COORDINATOR_LOST", w[0], f"wait {op} 30")
        self.assertNotEqual(job.srv[0].wait(20), 0)


class Stop(JobTest):
    def test_a_worker_killed_and_restarted_while_the_server_is_stopped(self):
        job, w = self.started(2, 1, PSRT_LEASE="20s")
        every(w, "table t n=300000 opt=none cons=async")
        job.srv[0].kill(signal.SIGSTOP)
        w[1].kill()
        again = job.worker(1)
        again.send("create")
        job.srv[0].kill(signal.SIGCONT)
        again.receive(60)
        again.cmd("table t n=300000 opt=none cons=async")
        again.cmd("fill t 1")
        again.cmd("loop push t 100", 60)
        again.cmd("pull t")
        self.assertEqual(float(again.cmd("sum t")), 100.0)

    def test_a_worker_stopped_for_less_than_the_lease(self):
        job, w = self.started(2, 2, PSRT_LEASE="30s")
        every(w, f"table t n={BIG} opt=none reduce=sum")
        every(w, "fill t 1")
        for step in range(1, 4):
            w[1].kill(signal.SIGSTOP)
            op = w[0].cmd("start push_pull t")
            self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {op} 0.2")
            w[1].kill(signal.SIGCONT)
            w[1].cmd("push_pull t")
            w[0].cmd(f"wait {op} 20")
            self.assertEqual(float(w[0].cmd("sum t")), 2.0 * step)
        self.finish(job, w)

    def test_a_worker_stopped_for_longer_is_fenced(self):
        job, w = self.started(2, 2)
        every(w, f"table t n={BIG} opt=none")
        every(w, "fill t 3")
        every(w, "push_pull t")
        w[1].kill(signal.SIGSTOP)
        w[0].cmd("push_pull t")
        self.assertEqual(float(w[0].cmd("sum t")), 6.0)
        w[1].kill(signal.SIGCONT)
        self.refused("PSRT_ERR_FENCED", w[1], "push_pull t")
        w[0].cmd("push_pull t")
        self.assertEqual(float(w[0].cmd("sum t")), 9.0)

    def test_a_server_stopped_for_longer_serves_nobody(self):
        job, w = self.started(1, 2)
        w[0].cmd(f"table t n={BIG} opt=none")
        w[0].cmd("fill t 1")
        w[0].cmd("push_pull t")
        job.srv[1].kill(signal.SIGSTOP)
        self.refused("PSRT_ERR_SHARD_LOST", w[0], "push_pull t")
        job.srv[1].kill(signal.SIGCONT)
        self.assertNotEqual(job.srv[1].wait(20), 0)
        self.assertIn("declared dead", job.srv[1].output())
        self.refused("PSRT_ERR_SHARD_LOST", w[0], "pull t")


if __name__ == "__main__":
    unittest.main(verbosity=2)
