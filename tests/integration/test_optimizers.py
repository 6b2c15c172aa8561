# SPDX-License-Identifier: Apache-2.0
"""What servers do with gradients, with real processes: schedules, averages of the weights, plug-ins."""
import os
import unittest

from job import JobTest, every

SIGNUM = os.environ.get("PSRT_TEST_SIGNUM", "build/tests/integration/libintegration_signum.so")
BIG = 700_000  # elements: three slices, so several servers take part


class Optimizers(JobTest):
    def finish(self, w):
        for a in w:
            self.assertEqual(a.quit(), 0)

    def test_schedule_and_averages(self):
        """Numbers that floats hold: the model below computes the same in Python's."""
        opt = "sgd:lr=1,schedule=step,period=2,gamma=0.5,ema=0.75"
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                _, w = self.started(2, 2, PSRT_TRANSPORT=transport)
                every(w, f"table t n={BIG} opt={opt} cons=sync reduce=sum init=zeros")
                every(w, "fill t -1")
                value = average = 0.0
                for step in range(4):
                    every(w, "push t")
                    value += 2 * 0.5 ** (step // 2)
                    average = 0.75 * average + 0.25 * value
                    every(w, "pull t avg=1")
                    self.assertEqual({float(v) for v in every(w, "sum t")}, {average})
                    every(w, "pull t")
                    self.assertEqual({float(v) for v in every(w, "sum t")}, {value})
                self.assertIn("version=4", w[0].cmd("pull t avg=1 offset=300000 count=10"))
                self.finish(w)

    def test_averages_of_a_table_without_any(self):
        _, w = self.started(1, 1)
        w[0].cmd("table plain n=10 opt=sgd")
        self.assertIn("table plain", self.refused("PSRT_ERR_INVALID", w[0], "pull plain avg=1"))
        w[0].cmd("table t n=10 opt=sgd:ema=0.5")
        self.assertIn("table t", self.refused("PSRT_ERR_INVALID", w[0], "push_pull t avg=1"))
        w[0].cmd("pull t avg=1")
        self.finish(w)

    def test_plugin(self):
        """signum: m is 2 and 0.5 times the sign; without its state the second step would go back."""
        for transport in ("shm", "zmq"):
            with self.subTest(transport):
                _, w = self.started(2, 2, PSRT_TRANSPORT=transport, PSRT_PLUGINS=SIGNUM)
                every(w, f"table t n={BIG} opt=signum:lr=0.5,momentum=0.5,ema=0.5")
                for grad, value in ((4, -0.5), (-1, -1.0)):
                    every(w, f"flat t {grad}")
                    every(w, "push_pull t")
                    for i in (0, 300_000, BIG - 1):
                        self.assertEqual({float(v) for v in every(w, f"at t {i}")}, {value})
                every(w, "pull t avg=1")
                self.assertEqual({float(v) for v in every(w, "at t 5")}, {-0.625})
                self.finish(w)

    def test_a_plugin_in_a_group(self):
        """The coordinator, which has no plug-in, compares what a group shares. g has the norm 5 over both
        tables, 1 after clipping: the sign is the same, and a step that is not finite is left out."""
        _, w = self.started(1, 2, PSRT_PLUGINS=SIGNUM)
        for name in ("a", "b"):
            w[0].cmd(f"table {name} n=10 opt=signum:lr=0.5,clip_norm=1,skip_nonfinite=1 group=g")
        text = self.refused("PSRT_ERR_MISMATCH", w[0],
                            "table c n=10 opt=signum:lr=0.5,clip_norm=2,skip_nonfinite=1 group=g")
        self.assertIn("clip_norm is", text)
        for grads, value in (((3, 4), -0.5), ((float("nan"), 4), -0.5), ((-30, -40), 0.0)):
            for name, grad in zip("ab", grads):
                w[0].cmd(f"flat {name} {grad}")
            w[0].cmd("many a b")
            self.assertEqual([float(w[0].cmd(f"at {name} 9")) for name in "ab"], [value] * 2)
        self.finish(w)

    def test_a_server_without_the_plugin_says_so(self):
        job = self.job(1, 1)
        job.coordinator()
        job.server(0)
        w = job.worker(0, PSRT_PLUGINS=SIGNUM)
        w.cmd("create", 60)
        text = self.refused("PSRT_ERR_INVALID", w, "table t n=10 opt=signum")
        for word in ("server:0", "table t", "signum", "PSRT_PLUGINS"):
            self.assertIn(word, text)
        w.cmd("table u n=10 opt=sgd")  # the job goes on
        w.cmd("push_pull u")
        self.finish([w])

    def test_a_worker_without_the_plugin_says_so(self):
        job = self.job(2, 1)
        job.coordinator()
        job.server(0, PSRT_PLUGINS=SIGNUM)
        w = [job.worker(0, PSRT_PLUGINS=SIGNUM), job.worker(1)]
        every(w, "create", 60)
        text = self.refused("PSRT_ERR_INVALID", w[1], "table t n=10 opt=signum")
        for word in ("table t", "signum", "PSRT_PLUGINS"):
            self.assertIn(word, text)
        w[0].cmd("table t n=10 opt=signum")
        self.finish(w)

    def test_plugins_that_are_none(self):
        for path, words in (("/nonexistent/x.so", ("/nonexistent/x.so", "No such file")),
                            (f"{SIGNUM},/nonexistent/y.so", ("/nonexistent/y.so",)),
                            ("libc.so.6", ("libc.so.6", "psrt_optimizer_plugin_v1"))):
            job = self.job(1, 1)
            text = self.refused("PSRT_ERR_NOT_FOUND", job.worker(0, PSRT_PLUGINS=path), "create")
            for word in words:
                self.assertIn(word, text)
            server = job.server(0, PSRT_PLUGINS=path)
            self.assertEqual(server.wait(), 1)
            self.assertIn(words[0], server.output())


if __name__ == "__main__":
    unittest.main()
