# SPDX-License-Identifier: Apache-2.0
"""Contexts that end badly, with real processes: every call comes back, destroy is bounded."""
import signal
import time
import unittest

from job import JobTest, every

TIMEOUT = {"PSRT_COORDINATOR_TIMEOUT": "1s"}


class Lost(JobTest):
    def test_no_common_transport_names_the_server(self):
        job = self.job(1, 2, **TIMEOUT)
        job.coordinator()
        for rank in range(2):
            job.server(rank, PSRT_TRANSPORT="zmq")
        w = job.worker(0, PSRT_TRANSPORT="shm")
        w.cmd("create")
        w.cmd("table t n=1000 opt=none")
        text = self.refused("PSRT_ERR_UNREACHABLE", w, "push t")
        self.assertRegex(text, "server:[01] lives, but could not be reached for 1 s")
        self.assertIn("no allowed transport", text)
        self.refused("PSRT_ERR_UNREACHABLE", w, "barrier b")
        self.refused("PSRT_ERR_UNREACHABLE", w, "table u n=10")
        w.cmd("destroy", 10)
        self.assertEqual(w.quit(), 0, w.output())

    def test_calls_after_the_coordinator_is_lost(self):
        job, (w,) = self.started(1, 1, **TIMEOUT)
        w.cmd("table t n=1000 opt=none")
        w.cmd("push t")
        job.coord.kill()
        text = self.refused("PSRT_ERR_COORDINATOR_LOST", w, "barrier b 0 20")
        self.assertIn("coordinator", text)
        for line in ("push t", "pull t", "table u n=10", "barrier c"):
            self.assertIn("coordinator", self.refused("PSRT_ERR_COORDINATOR_LOST", w, line))
        w.info()
        w.cmd("step t")
        began = time.monotonic()
        w.cmd("destroy", 15)
        self.assertLess(time.monotonic() - began, 15)
        self.assertEqual(w.quit(), 0, w.output())
        self.assertNotEqual(job.srv[0].wait(10), 0)

    def test_destroy_while_the_coordinator_is_down(self):
        job, (w,) = self.started(1, 1)
        w.cmd("table t n=1000 opt=none")
        w.cmd("push t")
        job.coord.kill()
        w.cmd("destroy", 15)
        self.assertEqual(w.quit(), 0, w.output())

    def test_the_coordinator_dies_while_the_job_assembles(self):
        job = self.job(2, 1, PSRT_START_TIMEOUT="3s", **TIMEOUT)
        coord = job.coordinator()
        server = job.server(0)
        w = job.worker(0)
        w.send("create")
        time.sleep(0.3)  # nothing tells from outside how far it came: any moment is a test
        coord.kill()
        with self.assertRaisesRegex(Exception, "coordinator"):
            w.receive(30)
        self.assertNotEqual(server.wait(30), 0)

    def test_a_fenced_worker_destroys(self):
        job, w = self.started(2, 1, PSRT_HEARTBEAT="50ms", PSRT_LEASE="1s")
        every(w, "table t n=1000 opt=none")
        w[0].kill(signal.SIGSTOP)
        self.until(lambda: w[1].info()["live_workers"] == "1", "the lease of worker 0 ends")
        w[0].kill(signal.SIGCONT)
        self.refused("PSRT_ERR_FENCED", w[0], "push t")
        self.refused("PSRT_ERR_FENCED", w[0], "barrier b")
        w[0].cmd("destroy", 10)
        self.assertEqual(w[0].quit(), 0, w[0].output())


class Alone(JobTest):
    """An embedded job has one process: if it was stopped, nobody else was the wiser."""

    def test_stopped_for_longer_than_the_lease(self):
        job = self.job()
        env = {k: v for k, v in job.env.items()
               if k not in ("PSRT_COORDINATOR", "PSRT_WORKERS", "PSRT_SERVERS", "PSRT_JOB_DIR")}
        job.env = {**env, "PSRT_HEARTBEAT": "50ms", "PSRT_LEASE": "300ms"}
        job.task_env = lambda role, rank, extra: {**job.env, **extra}
        w = job.worker(0)
        w.cmd("create")
        w.cmd("table t n=1000 opt=none reduce=sum")
        w.cmd("fill t 1")
        for step in range(1, 4):
            w.cmd("push_pull t")
            self.assertEqual(float(w.cmd("sum t")), step)
            w.kill(signal.SIGSTOP)
            time.sleep(1)  # this much longer than the lease
            w.kill(signal.SIGCONT)
        w.cmd("barrier b")
        w.cmd("destroy", 10)
        self.assertEqual(w.quit(), 0, w.output())


if __name__ == "__main__":
    unittest.main()
