# SPDX-License-Identifier: Apache-2.0
"""Small collectives of one host, which go through shared memory: that they do, and how they end otherwise."""
import os
import re
import signal
import time
import unittest

import test_collectives as coll
from job import SLOW, JobTest, every

LONG = coll.LONG
MADE = re.compile(r"(\d+) small collectives of a communicator were called in shared memory")


class SmallCollectives(JobTest):
    def world(self, workers, **env):
        env = {"PSRT_TRANSPORT": "shm", "PSRT_LOG_LEVEL": "debug", **env}
        job = coll.CommJob(workers, 1, **env)
        self.addCleanup(job.stop)
        w = job.start()
        every(w, "comm 0")
        return job, w

    def in_memory(self, agents, comm=0):
        """Frees the communicator; how many calls of each went through shared memory."""
        every(agents, f"free {comm}")
        found = [MADE.findall(a.output()) for a in agents]
        return [int(f[-1]) if f else 0 for f in found]

    def all_end(self, agents, line, status, text):
        for got in coll.answers(agents, line, LONG):
            self.assertEqual(got[0], status, got)
            self.assertRegex(got[1], text)

    # ---- which way they go ----

    def test_they_go_through_shared_memory(self):
        for ranks in (2, 3, 8):
            with self.subTest(ranks=ranks):
                job, w = self.world(ranks)
                every(w, "loop 0 700 16", LONG)  # more than wait to be counted
                every(w, f"random 0 {ranks} 120", LONG)
                every(w, "loop 0 20 1000", LONG)
                every(w, "run 0 allreduce f32 sum 100000 0", LONG)
                self.assertGreaterEqual(min(self.in_memory(w)), 720)
                self.finish(job, w)

    def test_so_do_larger_ones_of_two_ranks_and_where_ranks_share_cores(self):
        for ranks in (2, 3, 8):
            with self.subTest(ranks=ranks):
                job, w = self.world(ranks)
                every(w, "loop 0 20 4096", LONG)
                in_memory = ranks == 2 or ranks > len(os.sched_getaffinity(0))
                self.assertEqual(set(self.in_memory(w)), {20 if in_memory else 0})
                self.finish(job, w)

    def test_or_as_messages(self):
        for ranks, env in ((9, {}), (2, {"PSRT_TRANSPORT": "zmq"}), (2, {"PSRT_COLL_TUNE": "allreduce::ring"})):
            with self.subTest(ranks=ranks, **env):
                job, w = self.world(ranks, **env)
                every(w, "loop 0 20 16", LONG)
                self.assertEqual(set(self.in_memory(w)), {0})
                self.finish(job, w)

    def test_one_that_has_no_descriptors_left(self):
        """It cannot make its memory, or not open that of others: all send messages. Two are enough."""
        for left in (0, 1, 2):
            with self.subTest(left=left):
                job, w = self.world(3)
                every(w, "run 0 allreduce f32 sum 100000 0")  # which takes scratch memory
                w[1].cmd(f"descriptors {left}")
                every(w, "dup 1 0", LONG)
                every(w, "loop 1 300 16", LONG)
                every(w, "run 1 broadcast f32 sum 10 1", LONG)
                w[1].cmd("descriptors -1")
                calls = self.in_memory(w, 1)
                self.assertEqual(set(calls), {300 if left == 2 else 0})
                every(w, "dup 2 0", LONG)
                every(w, "loop 2 300 16", LONG)
                self.assertEqual(set(self.in_memory(w, 2)), {300})
                self.finish(job, w)

    def test_many_communicators(self):
        job, w = self.world(2)
        every(w, "many 0 70", LONG)
        every(w, "many 0 70", LONG)
        self.finish(job, w)

    # ---- how they end otherwise ----

    def test_the_death_of_one_ends_it_for_all_and_the_rest_goes_on(self):
        for when in ("idle", "calling", "waited for", "with operations"):
            with self.subTest(when=when):
                job, w = self.world(4)
                rest = [w[0], w[1], w[3]]
                every(w, "loop 0 50 16")
                if when == "calling":
                    for a in w:
                        a.send("loop 0 1000000000 16")
                    time.sleep(0.2)  # wherever that is
                    w[2].kill()
                    got = [self.error_of(a) for a in rest]
                elif when == "waited for":
                    for a in rest:
                        a.send("loop 0 1 16")
                    time.sleep(0.2)  # so that they sleep
                    w[2].kill()
                    got = [self.error_of(a) for a in rest]
                elif when == "with operations":
                    every(rest, "start 0 allreduce f32 sum 16 0")
                    w[2].kill()
                    got = coll.answers(rest, "wait", LONG)
                else:
                    w[2].kill()
                    got = coll.answers(rest, "loop 0 1 16", LONG)
                for status, text in got:
                    self.assertEqual(status, "PSRT_ERR_PEER_LOST", text)
                    self.assertRegex(text, "worker:2|rank 2")
                self.all_end(rest, "loop 0 1 16", "PSRT_ERR_PEER_LOST", "worker:2|rank 2")
                every(rest, "shrink 1 0", LONG)
                every(rest, "loop 1 300 16", LONG)
                every(rest, "random 1 21 30", LONG)
                self.assertGreaterEqual(min(self.in_memory(rest, 1)), 300)
                job.stop()

    def error_of(self, agent):
        with self.assertRaises(coll.Refused) as e:
            agent.receive(LONG)
        return e.exception.status, e.exception.text

    def test_one_that_is_stopped_is_waited_for_asleep(self):
        job, w = self.world(8, PSRT_LEASE="60s")
        every(w, "loop 0 300 16", LONG)
        w[1].kill(signal.SIGSTOP)
        rest = w[:1] + w[2:]
        for a in rest:
            a.send("loop 0 300 16")
        self.until(lambda: all(state_of(a) == "S" for a in rest), "all sleep")
        w[1].kill(signal.SIGCONT)
        w[1].cmd("loop 0 300 16", LONG)
        for a in rest:
            a.receive(LONG)
        self.finish(job, w)

    def test_who_has_not_called_is_named(self):
        job, w = self.world(3, PSRT_COLL_TIMEOUT=f"{SLOW}s")
        every(w, "loop 0 7 16", LONG)
        self.all_end(w[:2], "loop 0 1 16", "PSRT_ERR_TIMEOUT", "allreduce of 16 i32 sum, call 8 of .*rank 2")
        self.all_end(w[2:], "loop 0 1 16", "PSRT_ERR_TIMEOUT", "rank 2")
        job.stop()

    def test_disagreement_names_both_calls(self):
        """Small and small, small and large; of ranks that wait and ranks that do not."""
        calls = (("allreduce f32 sum 100 0", "allreduce f32 sum 101 0"),
                 ("allreduce f32 sum 100 0", "allreduce f32 max 100 0"),
                 ("allgather f32 sum 100 0", "barrier f32 sum 0 0"),
                 ("gather f32 sum 100 0", "gather f32 sum 100 2"),
                 ("allreduce f32 sum 100 0", "allreduce f32 sum 3000 0"),
                 ("barrier f32 sum 0 0", "broadcast f32 sum 300000 2"),
                 ("reduce f32 sum 300000 0", "reduce f32 sum 3 2"))
        for i, (one, other) in enumerate(calls):
            with self.subTest(one=one, other=other):
                job, w = self.world(3)
                every(w, "loop 0 100 16", LONG)
                for a in w[:2]:
                    a.send(f"run 0 {one} {'n' if i % 2 else ''}")
                w[2].send(f"run 0 {other} {'n' if i % 3 else ''}")
                for a in w:
                    with self.assertRaises(coll.Refused) as e:
                        a.receive(20)
                        a.cmd("run 0 barrier f32 sum 0 0", 20)
                    self.assertEqual(e.exception.status, "PSRT_ERR_MISMATCH", e.exception.text)
                    self.assertRegex(e.exception.text, one.split()[0])
                    self.assertRegex(e.exception.text, other.split()[0])
                job.stop()

    def test_one_that_leaves(self):
        with self.subTest("having called as often as the others"):
            job, w = self.world(3)
            every(w, "loop 0 300 16", LONG)
            every(w[2:], "free 0")
            self.all_end(w[:2], "loop 0 1 16", "PSRT_ERR_MISMATCH",
                         "rank 2.* freed it after 300 collectives, this rank called allreduce of 16 i32 sum, "
                         "number 301")
            job.stop()
        with self.subTest("while others wait"):
            job, w = self.world(3)
            for a in w[:2]:
                a.send("loop 0 1 16")
            every(w[2:], "free 0")
            for a in w[:2]:
                status, text = self.error_of(a)
                self.assertEqual(status, "PSRT_ERR_MISMATCH", text)
                self.assertRegex(text, "rank 2.* freed it after 0 collectives")
            job.stop()
        with self.subTest("with operations of its own"):
            job, w = self.world(3)
            every(w[1:], "start 0 allreduce f32 sum 16 0")
            every(w[2:], "free 0")
            self.all_end(w[1:], "wait", "PSRT_ERR_CANCELED", "rank 2.*freed")
            self.all_end(w[:1], "loop 0 1 16", "PSRT_ERR_CANCELED", "rank 2.*freed")
            job.stop()

    def test_one_that_cancels(self):
        job, w = self.world(3)
        every(w[:2], "start 0 allreduce f32 sum 16 0")
        every(w[:1], "cancel")
        self.all_end(w[:2], "wait", "PSRT_ERR_CANCELED", "allreduce of 16 f32 sum.* rank 2.* rank 0")
        self.all_end(w[2:], "loop 0 1 16", "PSRT_ERR_CANCELED", "allreduce of 16 f32 sum.* rank 0")
        job.stop()


def state_of(agent):
    with open(f"/proc/{agent.proc.pid}/stat") as f:
        return f.read().rsplit(")", 1)[1].split()[0]


if __name__ == "__main__":
    unittest.main()
