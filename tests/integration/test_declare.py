# SPDX-License-Identifier: Apache-2.0
"""The first use of many tables, in every order: declared, given values, pulled and pushed too early, twice,
or with another shape; and counts of the job that are no counts."""
import subprocess
import unittest

from job import BIN, SLOW, Agent, JobTest, Refused, every

TABLES = 1000
BAD = ("-1", "", " 2", "2 ", "abc", "2147483648", "1.5", "0x2")


class FirstUse(JobTest):
    def test_values_of_a_thousand_tables_come_late(self):
        """Workers 1 and 2 pull all of them before worker 0 has declared the first."""
        job, w = self.started(3, 3)
        spec = "opt=none reduce=sum init=rank0"
        for i in range(TABLES):
            every(w[1:], f"table k{i} n={1 + i % 64} {spec}")
        ops = [every(w[1:], f"start pull k{i}") for i in range(TABLES)]
        for i in (0, TABLES // 2, TABLES - 1):
            for a, op in zip(w[1:], ops[i]):
                self.refused("PSRT_ERR_TIMEOUT", a, f"wait {op} 0.1")
        for i in range(TABLES):
            w[0].cmd(f"table k{i} n={1 + i % 64} {spec} data={i + 1}")
        for i in range(TABLES):
            for a, op in zip(w[1:], ops[i]):
                a.cmd(f"wait {op} 30")
                self.assertEqual(float(a.cmd(f"sum k{i}")), i + 1)
        self.assertTrue(all(s.alive() for s in job.srv))
        self.finish(job, w)

    def test_a_pull_right_after_the_declaration(self):
        job, w = self.started(2, 2)
        for i, a in enumerate(w):
            a.cmd(f"table own{i} n=64 opt=none init=constant:value=2.5")
            a.cmd(f"pull own{i}")
            self.assertEqual([float(a.cmd(f"at own{i} {e}")) for e in (0, 31, 63)], [2.5] * 3)
        self.finish(job, w)

    def test_another_shape_is_refused_and_changes_nothing(self):
        job, w = self.started(2, 2)
        spec = "opt=none cons=async init=constant:value=2"
        w[0].cmd(f"table k n=64 {spec}")
        w[0].cmd("flat k 1")
        w[0].cmd("push k")
        w[0].cmd(f"table k n=64 {spec}")  # once more: the same table, its values kept
        for a in w:
            text = self.refused("PSRT_ERR_MISMATCH", a, f"table k n=65 {spec}")
            for part in ("table k", "64", "65"):
                self.assertIn(part, text)
        for words in ("count=256", "offset=1 count=64", "offset=64 count=1"):
            text = self.refused("PSRT_ERR_INVALID", w[0], f"push k {words}")
            for part in ("table k", "64"):
                self.assertIn(part, text)
        w[1].cmd(f"table k n=64 {spec}")
        every(w, "pull k")
        for a in w:
            self.assertEqual([float(a.cmd(f"at k {e}")) for e in (0, 63)], [3.0, 3.0])
        self.finish(job, w)

    def test_a_hundred_lengths_and_values_in_one_operation(self):
        for transport in ("shm", "zmq"):
            job, w = self.started(2, 3, PSRT_TRANSPORT=transport)
            lengths = range(1, 101)
            for n in lengths:
                every(w, f"table k{n} n={n} opt=none reduce=sum")
                for rank, a in enumerate(w):
                    a.cmd(f"fill k{n} {n * (1 + 1000 * rank)}")
            every(w, "many " + " ".join(f"k{n}" for n in lengths))
            for n in lengths:
                self.assertEqual([float(v) for v in every(w, f"sum k{n}")], [1002.0 * n] * 2)
            self.refused("PSRT_ERR_INVALID", w[0], "table k0 n=0 opt=none")
            self.finish(job, w)


class Counts(JobTest):
    """Whatever the role, a wrong rank or count ends that task alone, by name, and it never comes to the job."""

    NAMES = ("PSRT_RANK", "PSRT_WORKERS", "PSRT_SERVERS")

    def daemon(self, job, role, name, value):
        env = job.task_env(role, 0, {name: value})
        argv = [f"{BIN}/psrtd"] + (["--coordinator"] if role == "coordinator" else [])
        done = subprocess.run(argv, env=env, capture_output=True, timeout=30, text=True)
        self.assertIn(done.returncode, range(1, 126), done)
        return done.stderr

    def create(self, job, name, value):
        worker = job.worker(0, **{name: value})
        with self.assertRaises(Refused) as caught:
            worker.cmd("create")
        self.assertEqual(worker.quit(), 0)
        self.assertEqual(caught.exception.status, "PSRT_ERR_INVALID")
        return caught.exception.text

    def named(self, text, name, value):
        self.assertIn(name, text)
        self.assertIn(value.strip() or "is empty", text)

    def refuse_all(self, name, value):
        job = self.job(2, 2)
        for role in ("server", "coordinator"):
            with self.subTest(role=role, name=name, value=value):
                self.named(self.daemon(job, role, name, value), name, value)
        with self.subTest(role="worker", name=name, value=value):
            self.named(self.create(job, name, value), name, value)

    def test_no_counts(self):
        for name in self.NAMES:
            for value in BAD:
                self.refuse_all(name, value)

    def test_none_of_a_role(self):
        job = self.job(2, 2)
        for role in ("server", "coordinator"):
            self.named(self.daemon(job, role, "PSRT_WORKERS", "0"), "PSRT_WORKERS", "0")
        self.named(self.create(job, "PSRT_WORKERS", "0"), "PSRT_WORKERS", "0")
        self.named(self.daemon(job, "server", "PSRT_SERVERS", "0"), "PSRT_RANK", "0")

    def test_a_rank_beyond_the_job(self):
        job = self.job(2, 2)
        self.named(self.daemon(job, "server", "PSRT_RANK", "2"), "PSRT_RANK", "2")
        self.named(self.create(job, "PSRT_RANK", "2"), "PSRT_RANK", "2")

    def test_unset_they_are_a_job_of_one_and_one(self):
        """What another task was told differently, or holds already, the coordinator refuses by name."""
        job = self.job(2, 2)
        job.coord = job.coordinator()

        def refused(name, *parts):
            env = job.task_env("worker", 0, {"PSRT_START_TIMEOUT": f"{10 * SLOW}s"})
            del env[name]
            text = self.refused("PSRT_ERR_REFUSED", Agent(job, env), "create")
            for part in parts:
                self.assertIn(part, text)

        refused("PSRT_WORKERS", "PSRT_WORKERS", "told of 1 workers", "has 2 and 2")
        refused("PSRT_SERVERS", "PSRT_SERVERS", "and 1 servers", "has 2 and 2")
        job.srv = [job.server(r) for r in range(2)]
        w = [job.worker(r) for r in range(2)]
        every(w, "create", 60)
        refused("PSRT_RANK", "worker:0")
        self.finish(job, w)

    def test_a_refused_task_is_no_part_of_the_job(self):
        """The right ones start as if the wrong one had never been there."""
        job = self.job(2, 1)
        job.coord, job.srv = job.coordinator(), [job.server(0)]
        w = [job.worker(0)]
        w[0].send("create")
        self.refused("PSRT_ERR_INVALID", job.worker(1, PSRT_RANK="-1"), "create")
        w.append(job.worker(1))
        w[1].cmd("create", 60)
        w[0].receive(60)
        every(w, "table t n=10 opt=none reduce=sum")
        every(w, "fill t 1")
        every(w, "push_pull t")
        self.assertEqual([float(v) for v in every(w, "sum t")], [2.0, 2.0])
        self.finish(job, w)


if __name__ == "__main__":
    unittest.main(verbosity=2)
