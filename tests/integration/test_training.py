# SPDX-License-Identifier: Apache-2.0
"""The example while a worker dies, and another takes its place or nobody does: as good as without."""
import os
import re
import unittest

from job import BIN, JobTest, Task

STEPS = 900
DATA = "/usr/share/datasets/fashion-mnist"


@unittest.skipUnless(os.path.isdir(DATA) and os.path.exists(f"{BIN}/mnist_replica"),
                     "needs mnist_replica and dataset-fashion-mnist")
class Training(JobTest):
    def trainer(self, job, rank):
        env = job.task_env("worker", rank, {"OPENBLAS_NUM_THREADS": "1"})
        return Task(job, [f"{BIN}/mnist_replica", "--steps", str(STEPS), "--batch", "64",
                          "--optimizer", "momentum:lr=0.005,momentum=0.9"], env)

    def begin(self, workers):
        job = self.job(workers, 2)
        job.coord = job.coordinator()
        job.srv = [job.server(r) for r in range(2)]
        return job, [self.trainer(job, r) for r in range(workers)]

    def reach(self, trainer, step):
        def reached():
            self.assertTrue(trainer.alive(), trainer.output())
            done = re.findall(r"step (\d+)", trainer.output())
            return done and int(done[-1]) >= step

        self.until(reached, f"step {step}", 120)

    def accuracy(self, job, trainers):
        for task in trainers + job.srv + [job.coord]:
            self.assertEqual(task.wait(240), 0, task.output())
        return float(re.search(r"test accuracy: ([01]\.\d{4})", trainers[0].output()).group(1))

    plain = None  # accuracy of a run that nothing disturbed: one for all tests

    def undisturbed(self):
        plain = self.accuracy(*self.begin(3))
        self.assertGreater(plain, 0.8)
        return plain

    def as_good(self, changed, what):
        plain = type(self).plain = type(self).plain or self.undisturbed()
        self.assertLessEqual(abs(changed - plain), 0.01, f"{plain}, {what} {changed}")

    def test_a_worker_is_restarted(self):
        job, trainers = self.begin(3)
        self.reach(trainers[0], STEPS // 5)
        trainers[2].kill()
        trainers[2] = self.trainer(job, 2)
        changed = self.accuracy(job, trainers)
        resumed = re.search(r"worker 2 goes on with step (\d+)", trainers[2].output())
        self.assertTrue(resumed, trainers[2].output())
        self.assertTrue(STEPS // 5 < int(resumed.group(1)) < STEPS, resumed.group(0))
        self.as_good(changed, "with a restart")

    def test_a_worker_is_gone_for_good(self):
        job, trainers = self.begin(3)
        self.reach(trainers[0], STEPS // 5)
        trainers.pop().kill()
        self.as_good(self.accuracy(job, trainers), "with one less")


if __name__ == "__main__":
    unittest.main(verbosity=2)
