# SPDX-License-Identifier: Apache-2.0
"""Communicators and collectives among real processes; comm_agent.c is the worker."""
import os
import signal
import time
import unittest

import job as rig
from job import SLOW, Agent, Job, JobTest, Refused, answers, every

COMM_AGENT = os.environ.get("PSRT_TEST_COMM_AGENT", "build/tests/bin/integration_comm_agent")
WHATS = ("allreduce", "reduce", "broadcast", "allgather", "allgatherv", "reduce_scatter", "alltoall",
         "alltoallv", "gather", "scatter", "barrier", "ring")
LONG = 120


class CommJob(Job):
    def worker(self, rank, **env):
        return CommAgent(self, self.task_env("worker", rank, env))


class CommAgent(Agent):
    def __init__(self, job, env):
        rig.Task.__init__(self, job, [COMM_AGENT], env, stdin=rig.subprocess.PIPE)
        self.buf = b""


class Collectives(JobTest):
    def job(self, *args, **kw):
        job = CommJob(*args, **kw)
        self.addCleanup(job.stop)
        return job

    def world(self, workers, **env):
        job, w = self.started(workers, 1, **env)
        every(w, "comm 0")
        return job, w

    def test_every_collective(self):
        for transport in ("shm", "zmq"):
            for ranks in (1, 2, 3, 5):
                with self.subTest(transport=transport, ranks=ranks):
                    job, w = self.world(ranks, PSRT_TRANSPORT=transport)
                    for what in WHATS:
                        for count in (0, 3, 1000, 300001):
                            every(w, f"run 0 {what} f32 sum {count} 1 p", LONG)
                            every(w, f"run 0 {what} bf16 avg {count} 0 b", LONG)
                    self.finish(job, w)

    def test_random_calls(self):
        for transport, ranks, seed in (("shm", 2, 1), ("shm", 4, 2), ("shm", 9, 3), ("zmq", 3, 4),
                                       ("zmq", 4, 5)):
            with self.subTest(transport=transport, ranks=ranks):
                job, w = self.world(ranks, PSRT_TRANSPORT=transport, PSRT_COLL_CHUNK="16KiB")
                every(w, f"random 0 {seed} 150", LONG)
                self.finish(job, w)

    def test_algorithms_are_chosen_by_hand(self):
        job, w = self.world(3, PSRT_COLL_TUNE="allreduce:-1k:two_trees,allreduce::halving")
        every(w, "random 0 7 40", LONG)
        self.finish(job, w)
        with self.subTest("not alike"):
            job = self.job(2, 1)
            start_worker = job.worker
            job.worker = lambda rank: start_worker(
                rank, PSRT_COLL_TUNE=("allreduce::ring", "allreduce::two_trees")[rank])
            w = job.start()
            for status, text in answers(w, "comm 0", LONG):
                self.assertEqual(status, "PSRT_ERR_MISMATCH", text)
                self.assertRegex(text, "PSRT_COLL_TUNE")
            job.stop()
        with self.subTest("files"):
            job = self.job(2, 1)
            path = os.path.join(job.base, "tune")
            start_worker = job.worker
            job.worker = lambda rank: start_worker(rank, PSRT_COLL_TUNE=f"@{path}{rank}")
            for rank in range(2):
                with open(f"{path}{rank}", "w", encoding="ascii") as f:
                    f.write(f"# of rank {rank}\nallreduce:-1k:two_trees ranks=2\nallreduce::halving\n")
            w = job.start()
            every(w, "comm 0")
            every(w, "random 0 8 40", LONG)
            self.finish(job, w)
        with self.subTest("wrong"):
            job, w = self.started(1, 1)
            a = job.worker(0, PSRT_COLL_TUNE="allreduce::rnig")
            self.assertRegex(self.refused("PSRT_ERR_INVALID", a, "create"), 'nearest is "ring"')
            job.stop()

    def test_communicators_of_some(self):
        job, w = self.world(4, PSRT_TRANSPORT="shm")
        for a, line in zip(w, ("split 1 0 0 5", "split 1 0 1 0", "split 1 0 0 4", "split 1 0 -1 0")):
            a.send(line)
        for a in w:
            a.receive()
        self.assertEqual(w[0].cmd("query 1"), "rank=1 ranks=2 status=PSRT_OK")
        self.assertEqual(w[2].cmd("query 1"), "rank=0 ranks=2 status=PSRT_OK")
        self.assertEqual(w[1].cmd("query 1"), "rank=0 ranks=1 status=PSRT_OK")
        self.refused("PSRT_ERR_INVALID", w[3], "run 1 allreduce f32 sum 1 0")
        every([w[0], w[2]], "run 1 allreduce f32 sum 1000 0")
        some = [w[3], w[1]]
        every(some, "comm 2 3,1")
        self.assertEqual(w[3].cmd("query 2"), "rank=0 ranks=2 status=PSRT_OK")
        every(some, "random 2 9 40", LONG)
        every(w, "dup 3 0")
        every(some, "free 2")
        every(w, "random 3 11 40", LONG)
        every(w, "random 0 12 40", LONG)
        self.finish(job, w)

    def test_disagreement_names_both_calls(self):
        calls = (("allreduce f32 sum 100 0", "allreduce f32 sum 101 0"),
                 ("allreduce f32 sum 100 0", "allreduce f64 sum 100 0"),
                 ("allreduce f32 sum 100 0", "allreduce f32 max 100 0"),
                 ("broadcast f32 sum 100 0", "broadcast f32 sum 100 1"),
                 ("allgather f32 sum 100 0", "alltoall f32 sum 100 0"),
                 ("allreduce f32 sum 300000 0", "barrier f32 sum 0 0"))
        for transport in ("shm", "zmq"):
            for one, other in calls:
                with self.subTest(transport=transport, one=one, other=other):
                    job, w = self.world(3, PSRT_TRANSPORT=transport)
                    for a in w[:2]:
                        a.send(f"run 0 {one}")
                    w[2].send(f"run 0 {other}")
                    for a in w:
                        with self.assertRaises(Refused) as e:
                            a.receive(20)
                            a.cmd("run 0 barrier f32 sum 0 0", 20)
                        self.assertEqual(e.exception.status, "PSRT_ERR_MISMATCH", e.exception.text)
                        self.assertRegex(e.exception.text, one.split()[0])
                        self.assertRegex(e.exception.text, other.split()[0])
                    job.stop()

    def test_the_death_of_one_ends_it_for_all_and_the_rest_goes_on(self):
        for transport in ("shm", "zmq"):
            for when in ("idle", "running"):
                with self.subTest(transport=transport, when=when):
                    job, w = self.world(4, PSRT_TRANSPORT=transport)
                    rest = [w[0], w[1], w[3]]
                    if when == "running":
                        every(rest, "start 0 allreduce f32 sum 3000000 0 b")
                        w[2].kill()
                        got = answers(rest, "wait", LONG)
                    else:
                        w[2].kill()
                        got = answers(rest, "run 0 allreduce f32 sum 1000 0", LONG)
                    for status, text in got:
                        self.assertEqual(status, "PSRT_ERR_PEER_LOST", text)
                        self.assertRegex(text, "worker:2|rank 2")
                    every(rest, "shrink 1 0", LONG)
                    self.assertEqual(w[3].cmd("query 1"), "rank=2 ranks=3 status=PSRT_OK")
                    every(rest, "random 1 21 30", LONG)
                    job.stop()

    def test_a_killed_worker_comes_back(self):
        job, w = self.world(3, PSRT_TRANSPORT="shm")
        w[1].kill()
        got = answers([w[0], w[2]], "run 0 barrier f32 sum 0 0", LONG)
        self.assertEqual({s for s, _ in got}, {"PSRT_ERR_PEER_LOST"})
        w[1] = job.worker(1)
        w[1].cmd("create", 60)
        every([w[0], w[2]], "shrink 2 0", LONG)  # its new life does not know the communicator
        self.assertEqual(w[2].cmd("query 2"), "rank=1 ranks=2 status=PSRT_OK")
        every(w, "comm 1 0,1,2", LONG)
        every(w, "random 1 31 30", LONG)
        self.finish(job, w)

    def test_who_leaves_ends_what_it_began(self):
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                job, w = self.world(3, PSRT_TRANSPORT=transport)
                w[0].cmd("start 0 broadcast f32 sum 3000000 0")
                w[0].send("destroy")
                every(w[1:], "run 0 broadcast f32 sum 3000000 0", LONG)
                w[0].receive(LONG)
                text = self.refused("PSRT_ERR_MISMATCH", w[1], "run 0 barrier f32 sum 0 0")
                self.assertRegex(text, "rank 0 .*freed it after 1 collective")
                job.stop()

    def test_one_that_is_stopped_is_waited_for(self):
        job, w = self.world(3, PSRT_TRANSPORT="shm", PSRT_LEASE="60s")
        w[1].kill(signal.SIGSTOP)
        every([w[0], w[2]], "start 0 allreduce f32 sum 1000000 0")
        time.sleep(0.3)  # so that they really wait
        w[1].kill(signal.SIGCONT)
        w[1].cmd("start 0 allreduce f32 sum 1000000 0")
        every(w, "wait")
        self.finish(job, w)

    def test_one_that_is_stopped_after_it_left_is_not_waited_for(self):
        job, w = self.world(3, PSRT_TRANSPORT="shm", PSRT_HEARTBEAT="50ms", PSRT_LEASE="1s")
        every(w, "comm 1 0,1,2")
        w[0].cmd("start 0 broadcast f32 sum 10000 0")
        w[0].cmd("wait")
        w[0].cmd("free 0")
        w[0].kill(signal.SIGSTOP)
        every(w[1:], "run 0 broadcast f32 sum 10000 0")
        for status, text in answers(w[1:], "run 1 barrier f32 sum 0 0"):
            self.assertEqual(status, "PSRT_ERR_PEER_LOST", text)
        job.stop()

    def test_messages_of_several_blocks_keep_to_the_limit(self):
        job, w = self.world(4, PSRT_MAX_MESSAGE="256KiB", PSRT_COLL_TUNE="reduce_scatter::halving")
        every(w, "run 0 reduce_scatter f32 sum 60000 0", LONG)
        self.finish(job, w)

    def test_who_has_not_called_is_named(self):
        for transport in ("shm", "zmq"):
            with self.subTest(transport=transport):
                job, w = self.world(3, PSRT_TRANSPORT=transport, PSRT_COLL_TIMEOUT=f"{SLOW}s")
                for status, text in answers(w[:2], "run 0 allreduce f32 sum 100000 0", LONG):
                    self.assertEqual(status, "PSRT_ERR_TIMEOUT", text)
                    self.assertRegex(text, "rank 2")
                text = self.refused("PSRT_ERR_TIMEOUT", w[2], "run 0 allreduce f32 sum 100000 0")
                self.assertRegex(text, "rank 2")
                job.stop()

    def test_a_creation_names_who_does_not_come(self):
        job, w = self.started(3, 1, PSRT_COLL_TIMEOUT=f"{SLOW}s")
        for status, text in answers(w[:2], "comm 0", LONG):
            self.assertEqual(status, "PSRT_ERR_TIMEOUT", text)
            self.assertRegex(text, "worker:2|rank 2")
        job.stop()

    def test_bad_arguments(self):
        job, w = self.world(2)
        self.refused("PSRT_ERR_INVALID", w[0], "run 1 allreduce f32 sum 1 0")  # no communicator
        self.assertRegex(self.refused("PSRT_ERR_INVALID", w[0], "comm 1 0,7"), "rank 7")
        self.assertRegex(self.refused("PSRT_ERR_INVALID", w[0], "comm 1 0,0"), "twice")
        self.assertRegex(self.refused("PSRT_ERR_INVALID", w[0], "comm 1 1"), "not listed")
        every(w, "run 0 barrier f32 sum 0 0")
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main()
