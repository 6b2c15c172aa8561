# SPDX-License-Identifier: Apache-2.0
"""Hosts that are lost and come back, over real sshd: restarts elsewhere, jobs that shrink and grow."""
import json
import os
import signal

from launchtest import main, process_text
from test_ssh import ALL, SshTest

# Goes on until the file END is there, which all hosts see.
WORKER = "echo ready $RANK; while [ ! -e $END ]; do sleep 0.05; done"


class Lost(SshTest):

    def begin_lossy(self, *flags):
        self.go = self.root / "end"
        proc = self.start("-H", ALL, "-w", "3", "-s", "0", "--no-coordinator", "--grace", "1s",
                          "--host-cooldown", "500ms", "-x", f"END={self.go}", *flags, "--",
                          "/bin/sh", "-c", WORKER)
        self.read_until(proc, "ready", 3)
        return proc

    def kill_agent(self, host):
        for pid in self.rig.processes(host):
            if process_text(pid, "comm").strip() == b"psrt-agent":
                os.kill(pid, signal.SIGKILL)

    def states(self):
        code, out, err = self.launch("status", "--json")
        self.assertEqual(code, 0, err)
        return {t["task"]: (t["state"], t["host"]) for t in json.loads(out)["tasks"]}

    def finish(self, proc):
        self.go.touch()
        code, _, err = self.end(proc)
        self.assertEqual(code, 0, err)
        self.assert_hosts_clean()
        self.assert_nothing_left()

    def test_shrinks_and_grows_with_the_same_index(self):
        proc = self.begin_lossy("--min-workers", "2")
        self.kill_agent("beta")
        self.read_until(proc, "the job goes on with 2 of role worker", stream=proc.stderr)
        self.assertEqual(self.states()["worker:1"], ("shed", "beta"))
        self.assertEqual(self.read_until(proc, "ready"), "[worker:1] ready 1\n")
        self.assertEqual(self.states()["worker:1"], ("running", "beta"))
        self.finish(proc)

    def test_restarts_elsewhere_without_using_up_the_limit(self):
        proc = self.begin_lossy("--restart", "on-failure", "--max-restarts", "0", "--set",
                                "roles.worker.restart.backoff=50ms")
        self.kill_agent("gamma")
        self.assertEqual(self.read_until(proc, "ready 2"), "[worker:2] ready 2\n")
        state, host = self.states()["worker:2"]
        self.assertEqual(state, "running")
        self.assertNotEqual(host, "gamma")
        self.finish(proc)

    def test_a_task_without_a_host_ends_the_job_in_time(self):
        self.go = self.root / "end"
        proc = self.start("-H", "alpha:1,beta:1", "-w", "2", "-s", "0", "--no-coordinator", "--restart", "on-failure",
                          "--host-cooldown", "1h", "--elastic-timeout", "500ms", "-x", f"END={self.go}", "--",
                          "/bin/sh", "-c", WORKER)
        self.read_until(proc, "ready", 2)
        self.kill_agent("beta")
        code, _, err = self.end(proc)
        self.assertNotEqual(code, 0)
        self.assertRegex(err.splitlines()[-1], r"worker:1 \(pid \d+\) on beta was lost with its host")
        self.assert_hosts_clean()

    def test_ends_where_nothing_may_be_restarted(self):
        proc = self.begin_lossy()
        self.kill_agent("beta")
        code, _, err = self.end(proc)
        self.assertNotEqual(code, 0)
        self.assertRegex(err.splitlines()[-1], r"worker:1 \(pid \d+\) on beta was lost with its host")
        self.assert_hosts_clean()


if __name__ == "__main__":
    main()
