# SPDX-License-Identifier: Apache-2.0
"""What servers do with gradients, with real processes: schedules, averages of the weights."""
import unittest

from job import JobTest, every

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


if __name__ == "__main__":
    unittest.main()
