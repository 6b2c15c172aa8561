# SPDX-License-Identifier: Apache-2.0
"""Restarts of libpsrt's own workers, with the real psrtd."""
import os
import pathlib
import signal

from launchtest import LAUNCHER, LaunchTest, main, process_text


class Training(LaunchTest):
    PROGRAM = pathlib.Path(LAUNCHER).with_name("mnist_replica")

    def test_a_killed_worker_comes_back_and_the_job_trains_on(self):
        # The new life goes on from the step that the servers are at, be it the last: then the other worker waits
        # for it at a barrier.
        if not self.PROGRAM.exists() or not os.path.isdir("/usr/share/datasets/fashion-mnist"):
            self.skipTest("no mnist_replica or no Fashion-MNIST here")
        env = {
            "PSRT_LAUNCH_PSRTD": str(self.PROGRAM.with_name("psrtd")),
            "PSRT_HEARTBEAT": "100ms",
            "PSRT_LEASE": "2s",
        }
        proc = self.start("-w", "2", "-s", "1", "--restart", "on-failure", "--set",
                          "roles.worker.restart.backoff=20ms", "--",
                          str(self.PROGRAM), "--steps", "1000", "--batch", "16", "--train-limit",
                          "10000", env=env)
        self.read_until(proc, "step ")
        for pid in self.tasks("worker", 1):
            if process_text(pid, "comm").startswith(b"mnist_replica"):
                os.kill(pid, signal.SIGKILL)
        code, out, err = self.end(proc)
        self.assertEqual(code, 0, err)
        self.assertIn("test accuracy", out)
        self.assertRegex(err, r"worker:1 .* killed by signal 9 \(Killed\) .*; it is restarted")
        self.assert_nothing_left(at_once=True)


if __name__ == "__main__":
    main()
