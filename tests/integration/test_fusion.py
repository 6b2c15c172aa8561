# SPDX-License-Identifier: Apache-2.0
"""Fusion among real processes; fuse_agent.c is the worker."""
import functools
import os
import time
import unittest

import job as rig
from job import SLOW, Agent, Job, JobTest, Refused, every

FUSE_AGENT = os.environ.get("PSRT_TEST_FUSE_AGENT", "build/tests/bin/integration_fuse_agent")
LONG = 120


class FuseJob(Job):
    def worker(self, rank, **env):
        return FuseAgent(self, self.task_env("worker", rank, env))


class FuseAgent(Agent):
    def __init__(self, job, env):
        rig.Task.__init__(self, job, [FUSE_AGENT], env, stdin=rig.subprocess.PIPE)
        self.buf = b""

    def facts(self):
        return dict(p.split("=") for p in self.cmd("query").split())

    def rounds(self):
        return int(self.facts()["rounds"])


answers = functools.partial(rig.answers, timeout=LONG)


class Fusion(JobTest):
    def job(self, *args, **kw):
        job = FuseJob(*args, **kw)
        self.addCleanup(job.stop)
        return job

    def world(self, workers, bytes=100000, cycle_us=2000, **env):
        job, w = self.started(workers, 1, **env)
        every(w, f"fusion {bytes} {cycle_us}")
        return job, w

    def all_fail(self, got, status, *texts):
        for s, text in got:
            self.assertEqual(s, status, text)
            for t in texts:
                self.assertRegex(text, t)

    def failed(self, agents, lines):
        """How what these submit fails: at once where the others' failure is known, or when it is waited for."""
        said = [answers([a], line)[0] for a, line in zip(agents, lines)]
        return [answers([a], "wait")[0] if s == "OK" else s for a, s in zip(agents, said)]

    def test_any_order_from_any_thread(self):
        for transport, ranks, threads, bytes in (("shm", 1, 1, 100000), ("shm", 2, 1, 100000),
                                                 ("shm", 2, 4, 20000), ("shm", 5, 2, 0),
                                                 ("zmq", 2, 1, 50000), ("zmq", 3, 3, 100000)):
            with self.subTest(transport=transport, ranks=ranks, threads=threads):
                # a long cycle: no stall falls into the steps that are counted
                job, w = self.world(ranks, bytes, 50000, PSRT_TRANSPORT=transport)
                every(w, f"steps 1 0 3 all {threads}", LONG)
                before = [a.facts() for a in w]
                every(w, f"steps 2 3 15 all {threads}", LONG)
                for a, b in zip(w, before):
                    f = a.facts()
                    self.assertEqual(f["rounds"], b["rounds"])
                    self.assertEqual(f["tensors"], "60")
                    self.assertEqual(int(f["sent"]), int(b["sent"]) + 12 * int(f["buckets"]))
                    self.assertLess(int(f["buckets"]), 40)
                every(w, "free")
                self.finish(job, w)

    def test_the_set_may_change(self):
        job, w = self.world(3, PSRT_TRANSPORT="shm")
        every(w, "steps 1 0 3 thirds+ 2", LONG)
        self.assertEqual(w[0].facts()["tensors"], "40")
        every(w, "steps 2 3 6 all+ 2", LONG)
        self.assertEqual(w[0].facts()["tensors"], "60")
        every(w, "steps 3 6 10 thirds+ 2", LONG)
        self.assertEqual(w[0].facts()["tensors"], "40")
        before = w[0].rounds()
        every(w, "steps 4 10 20 thirds+ 2", LONG)
        self.assertEqual(w[0].rounds(), before)
        every(w, "steps 5 20 40 moving+ 1", LONG)
        self.finish(job, w)

    def test_without_flush_a_stall_finds_what_stays_away(self):
        job, w = self.world(2, PSRT_TRANSPORT="shm", cycle_us=500)
        every(w, "steps 1 0 3 all 1", LONG)
        every(w, "steps 2 3 8 thirds 1", LONG)
        self.assertEqual(w[0].facts()["tensors"], "40")
        self.finish(job, w)

    def test_a_wrong_count_names_tensor_and_both_sides(self):
        lines = ("submit w 101 f32 sum", "submit w 100 f64 sum", "submit w 100 f32 max")
        for known in (False, True):
            for line in lines:
                with self.subTest(known=known, line=line):
                    job, w = self.world(3, PSRT_TRANSPORT="shm")
                    if known:
                        every(w, "submit w 100 f32 sum")
                        every(w, "wait", LONG)
                    sound = lines[0].replace("101", "100")
                    got = self.failed(w, (sound, line, sound))
                    side = line.replace("submit w ", "rank 1 has ")
                    self.all_fail(got, "PSRT_ERR_MISMATCH", "tensor w: ",
                                  "rank 0 has 100 f32 sum|rank 2 has 100 f32 sum", side)
                    self.all_fail(answers(w, "submit v 1 f32 sum"), "PSRT_ERR_MISMATCH", "tensor w")
                    self.assertEqual(w[2].facts()["status"], "PSRT_ERR_MISMATCH")
                    job.stop()

    def test_who_has_not_submitted_is_named(self):
        for transport in ("shm", "zmq"):
            for known in (False, True):
                with self.subTest(transport=transport, known=known):
                    job, w = self.world(3, PSRT_TRANSPORT=transport,
                                        PSRT_COLL_TIMEOUT=f"{2 * SLOW}s")
                    if known:
                        for name in "abc":
                            every(w, f"submit {name} 10 f32 sum")
                        every(w, "wait", LONG)
                    for a in w:
                        for name in "abc":
                            if a is not w[2] or name != "b":
                                a.cmd(f"submit {name} 10 f32 sum")
                    got = answers(w, "wait")
                    self.all_fail(got, "PSRT_ERR_TIMEOUT", "rank 2 has not submitted tensor b")
                    job.stop()

    def test_a_rank_that_submits_nothing_is_named(self):
        job, w = self.world(2, PSRT_TRANSPORT="shm", PSRT_COLL_TIMEOUT=f"{2 * SLOW}s")
        w[0].cmd("submit a 10 f32 sum")
        w[0].cmd("submit b 10 f32 sum")
        self.all_fail(answers(w[:1], "wait"), "PSRT_ERR_TIMEOUT", "rank 1 has not submitted tensor a")
        self.all_fail(self.failed(w[1:], ["submit a 10 f32 sum"]), "PSRT_ERR_TIMEOUT",
                      "rank 1 has not submitted tensor a")
        job.stop()

    def test_a_wait_with_a_limit_says_what_is_missing(self):
        job, w = self.world(2, PSRT_TRANSPORT="shm", cycle_us=500)
        every(w, "submit a 10 f32 sum")
        every(w, "submit b 10 f32 sum")
        every(w, "wait", LONG)
        every(w, "submit a 10 f32 sum")
        w[0].cmd("submit b 10 f32 sum")
        text = self.refused("PSRT_ERR_TIMEOUT", w[0], f"wait {int(1000 * SLOW)}")
        self.assertRegex(text, "rank 1 has not submitted tensor b")
        w[1].cmd("submit b 10 f32 sum")
        every(w, "wait", LONG)
        self.finish(job, w)

    def test_the_death_of_one_ends_all_operations(self):
        for transport in ("shm", "zmq"):
            for submitted in (0, 1):
                with self.subTest(transport=transport, submitted=submitted):
                    job, w = self.world(3, PSRT_TRANSPORT=transport)
                    for name in "ab":
                        every(w, f"submit {name} 100000 f32 sum")
                    every(w, "wait", LONG)
                    for a in w[:2]:
                        a.cmd("submit a 100000 f32 sum")
                        if submitted: a.cmd("submit b 100000 f32 sum")
                    w[2].kill()
                    self.all_fail(answers(w[:2], "wait"), "PSRT_ERR_PEER_LOST", "worker:2|rank 2",
                                  "tensor [ab]: ")
                    self.all_fail(answers(w[:2], "submit c 1 f32 sum"), "PSRT_ERR_PEER_LOST")
                    every(w[:2], "free")
                    job.stop()

    def test_the_death_of_one_in_the_middle_of_steps(self):
        for transport in ("shm", "zmq"):
            with self.subTest(transport=transport):
                job, w = self.world(3, PSRT_TRANSPORT=transport)
                for a in w:
                    a.send("steps 1 0 100000 all 2")
                time.sleep(0.5)  # so that they are at it
                w[2].kill()
                for a in w[:2]:
                    with self.assertRaises(Refused) as e:
                        a.receive(LONG)
                    self.assertEqual(e.exception.status, "PSRT_ERR_PEER_LOST", e.exception.text)
                every(w[:2], "free")
                every(w[:2], "destroy")
                job.stop()

    def test_a_cancel_ends_it_for_all(self):
        job, w = self.world(2, PSRT_TRANSPORT="shm")
        every(w, "submit a 10 f32 sum")
        every(w, "submit b 10 f32 sum")
        every(w, "wait", LONG)
        every(w, "submit a 10 f32 sum")
        w[0].cmd("cancel")
        self.all_fail(answers(w, "wait"), "PSRT_ERR_CANCELED", "tensor a: rank 0 canceled")
        every(w, "free")
        every(w, "fusion 0 0")  # the communicator goes on
        every(w, "steps 1 0 3 all 1", LONG)
        self.finish(job, w)

    def test_one_that_frees_it_is_named(self):
        job, w = self.world(2, PSRT_TRANSPORT="shm")
        every(w, "submit a 10 f32 sum")
        every(w, "wait", LONG)
        w[0].cmd("submit b 10 f32 sum")
        w[1].cmd("free")
        # Or, when rank 1 had answered the round of b before it left, its communicator, with the bucket under way.
        self.all_fail(answers(w[:1], "wait"), "PSRT_ERR_MISMATCH",
                      r"tensor b: (communicator of 2 ranks: )?rank 1 (\(.*\) )?freed")
        self.finish(job, w)

    def test_buckets_must_be_alike(self):
        job, w = self.started(2, 1)
        w[0].send("fusion 1000 0")
        w[1].send("fusion 2000 0")
        for a in w:
            a.receive(LONG)
        every(w, "submit a 10 f32 sum")
        self.all_fail(answers(w, "wait"), "PSRT_ERR_MISMATCH",
                      "bucket_bytes is 1000 on rank 0 and 2000 on rank 1")
        job.stop()

    def test_bad_arguments(self):
        job, w = self.world(1)
        self.assertRegex(self.refused("PSRT_ERR_INVALID", w[0], "submit a 1 f23 sum"), "dtype")
        self.assertRegex(self.refused("PSRT_ERR_INVALID", w[0], "submit a 1 f32 smu"), "redop")
        job.stop()

    def test_a_name_is_free_when_its_operation_ended(self):
        job, w = self.world(2, PSRT_TRANSPORT="shm")
        w[0].cmd("submit a 1 f32 sum")
        text = self.refused("PSRT_ERR_BUSY", w[0], "submit a 1 f32 sum")
        self.assertRegex(text, "tensor a was submitted before")
        w[1].cmd("submit a 1 f32 sum")
        every(w, "wait", LONG)
        every(w, "submit a 1 f32 sum")
        every(w, "wait", LONG)
        every(w, "submit big 1000000 f32 sum")  # left to the end of the context
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main()
