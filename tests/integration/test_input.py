# SPDX-License-Identifier: Apache-2.0
"""Bad input gets an error that names what is wrong; the job goes on."""
import os
import subprocess
import unittest

from job import Agent, BIN, JobTest, Refused, every

BIG = 700_000


class Environment(JobTest):
    def test_half_a_description_is_an_error(self):
        job = self.job(2, 1)
        job.env["PSRT_COORDINATOR"] = ""
        text = self.refused("PSRT_ERR_INVALID", job.worker(1), "create")
        self.assertIn("PSRT_COORDINATOR", text)

    def test_a_wrong_role_is_named(self):
        w = self.job().worker(0, PSRT_ROLE="wroker")
        self.assertIn("PSRT_ROLE", self.refused("PSRT_ERR_INVALID", w, "create"))

    def test_another_size_of_the_job_is_refused(self):
        job = self.job(2, 1)
        job.coordinator(), job.server(0), job.worker(0).send("create")
        text = self.refused("PSRT_ERR_REFUSED", job.worker(1, PSRT_WORKERS="3"), "create", 20)
        self.assertIn("3", text)
        self.assertIn("2", text)

    def test_an_open_key_file_is_refused(self):
        job = self.job()
        os.chmod(os.path.join(job.dir, "key"), 0o644)
        text = self.refused("PSRT_ERR_INVALID", job.worker(0), "create")
        self.assertIn("chmod", text)

    def test_an_unknown_variable_is_told_once_with_the_nearest_name(self):
        job, w = self.started(1, 1, PSRT_HEARTBEET="2s")
        self.finish(job, w)
        self.assertEqual(w[0].output().count("PSRT_HEARTBEET"), 1)
        self.assertIn("PSRT_HEARTBEAT", w[0].output())

    def test_transports(self):
        w = self.job().worker(0, PSRT_TRANSPORT="smh")
        self.assertIn("shm", self.refused("PSRT_ERR_INVALID", w, "create"))

    def test_the_coordinators_address(self):
        for address in ("127.0.0.1:7077", "tcp://127.0.0.1", "tcp://:7077", "tcp://127.0.0.1:0",
                        "tcp://127.0.0.1:70777", "tcp://::1:7077", "tcp://[::1]", "tcp://h:1:2"):
            with self.subTest(address):
                w = self.job().worker(0, PSRT_COORDINATOR=address)
                text = self.refused("PSRT_ERR_INVALID", w, "create")
                self.assertIn("PSRT_COORDINATOR", text)
                self.assertIn(address, text)

    def test_an_address_in_use_is_named(self):
        job = self.job()
        env = job.task_env("coordinator", 0, {})
        p = subprocess.run([f"{BIN}/psrtd", "--coordinator"], env=env, capture_output=True,
                           timeout=20, text=True)
        self.assertGreater(p.returncode, 0)
        self.assertIn(f"127.0.0.1:{job.port}", p.stderr)


class Tables(JobTest):
    def test_mismatch_before_the_first_push_fails_all(self):
        job, w = self.started(2, 2)
        w[0].cmd("table t n=100")
        text = self.refused("PSRT_ERR_MISMATCH", w[1], "table t n=101")
        for part in ("100", "101", "worker:0", "worker:1", "shape"):
            self.assertIn(part, text)

        def told():  # worker:0 hears of it a moment later than worker:1
            try:
                w[0].cmd("push t")
            except Refused:
                return True
            return False

        self.until(told, "worker:0 hears of the mismatch")
        self.refused("PSRT_ERR_MISMATCH", w[0], "push t")
        every(w, "table u n=10 opt=none")
        every(w, "push_pull u")
        self.finish(job, w)

    def test_mismatch_after_the_first_push_fails_the_newcomer(self):
        job, w = self.started(2, 1)
        w[0].cmd("table t n=100 opt=none cons=async")
        w[0].cmd("fill t 1")
        w[0].cmd("push t")
        text = self.refused("PSRT_ERR_MISMATCH", w[1], "table t n=100 dtype=f64 opt=none cons=async")
        self.assertIn("f64", text)
        w[0].cmd("push_pull t")
        self.assertEqual(float(w[0].cmd("sum t")), 2.0)
        self.finish(job, w)

    def test_illegal_specifications(self):
        job, w = self.started(1, 1)
        for words, part in (("opt=adma", "adam"), ("opt=sgd:lt=1", "lr"), ("opt=sgd:lr=x", "lr"),
                            ("cons=snyc", "sync"), ("cons=ssp:-1", "ssp"), ("init=zeroes", "zeros"),
                            ("reduce=mean", "average"), ("cons=async det=1", "sync"),
                            ("n=0", "shape"), ("init=rank0", "init_data")):
            with self.subTest(words):
                text = self.refused("PSRT_ERR_INVALID", w[0], f"table bad {words}")
                self.assertIn(part, text)
        w[0].cmd("table good n=10 opt=none")
        for words, part in (("offset=10", "10"), ("offset=5 count=6", "11"),
                            ("offset=18446744073709551615 count=2", "elements"),
                            ("prio=200", "priority")):
            with self.subTest(words):
                self.assertIn(part, self.refused("PSRT_ERR_INVALID", w[0], f"push good {words}"))
        w[0].cmd("push_pull good")
        self.finish(job, w)

    def test_a_job_without_servers_has_no_tables(self):
        job, w = self.started(2, 0)
        for a in w:
            text = self.refused("PSRT_ERR_INVALID", a, "table t n=10")
            self.assertIn("table t", text)
            self.assertIn("PSRT_SERVERS", text)
        self.finish(job, w)

    def test_declared_twice_is_the_same_table(self):
        job, w = self.started(1, 2)
        w[0].cmd(f"table t n={BIG} opt=none init=constant:value=2")
        w[0].cmd("fill t 1")
        w[0].cmd("push t")
        w[0].cmd(f"table t n={BIG} opt=none init=constant:value=2")
        w[0].cmd("pull t")
        self.assertEqual(float(w[0].cmd("at t 0")), 3.0)
        self.finish(job, w)

    def test_pull_before_rank0_gave_the_values(self):
        job, w = self.started(3, 3)
        for a in w[1:]:
            a.cmd(f"table t n={BIG} opt=none init=rank0 cons=async")
        ops = [a.cmd("start pull t") for a in w[1:]]
        for a, op in zip(w[1:], ops):
            self.refused("PSRT_ERR_TIMEOUT", a, f"wait {op} 0.3")
        pushed = w[1].cmd("start push t")  # waits for the values, too; pushes nothing but zeros
        w[0].cmd(f"table t n={BIG} opt=none init=rank0 cons=async data=3")
        for a, op in zip(w[1:], ops):
            a.cmd(f"wait {op} 20")
            self.assertEqual(float(a.cmd("sum t")), 3.0)
        w[1].cmd(f"wait {pushed} 20")
        self.finish(job, w)

    def test_nan_travels(self):
        job, w = self.started(2, 1)
        every(w, "table t n=10 opt=none")
        w[0].cmd("fill t nan")
        w[1].cmd("fill t 1")
        every(w, "push_pull t")
        self.assertEqual(every(w, "at t 3"), ["nan", "nan"])
        self.finish(job, w)


class Contexts(JobTest):
    def test_every_worker_leaves_the_start_barrier(self):
        for _ in range(10):
            job, w = self.started(6, 2)
            every(w, "barrier b")
            self.finish(job, w)

    def test_two_embedded_contexts_do_not_meet(self):
        a = Agent(self.job(), {k: v for k, v in os.environ.items() if not k.startswith("PSRT_")})
        for use in (0, 1):
            a.cmd(f"use {use}")
            a.cmd("create")
            a.cmd("table t n=1000 opt=none")
            a.cmd(f"fill t {use + 1}")
            a.cmd("push_pull t")
        self.assertEqual(float(a.cmd("sum t")), 2.0)
        a.cmd("use 0")
        a.cmd("push_pull t")
        self.assertEqual(float(a.cmd("sum t")), 2.0)
        for use in (0, 1):
            a.cmd(f"use {use}")
            a.cmd("destroy")
        self.assertEqual(a.quit(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
