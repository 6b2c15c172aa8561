# SPDX-License-Identifier: Apache-2.0
"""Hosts that are lost and come back, over real sshd: restarts elsewhere, jobs that shrink and grow."""
import fcntl
import os
import shutil
import signal

from launchtest import main, process_text
from test_ssh import ALL, SshTest

# Goes on until the file END is there, which all hosts see.
WORKER = "echo ready $RANK; while [ ! -e $END ]; do sleep 0.05; done"


class LostTest(SshTest):

    def begin_lossy(self, *flags):
        self.go = self.root / "end"
        proc = self.start("-H", ALL, "-w", "3", "-s", "0", "--no-coordinator", "--grace", "1s",
                          "--host-cooldown", "500ms", "-x", f"END={self.go}", *flags, "--",
                          "/bin/sh", "-c", WORKER)
        self.read_until(proc, "ready", 3)
        return proc


class Lost(LostTest):

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


# Fails once, in worker 1, and then goes on as the others do.
ONCE = "[ $RANK = 1 ] && [ ! -e $ONCE ] && touch $ONCE && exit 1; " + WORKER


class Hanging(LostTest):
    """--launch-timeout: hosts that are there, but where a task does not start."""

    def begin_hanging(self, hosts, *flags):
        """The agent of the last worker's host stops between two lives of that worker."""
        self.go = self.root / "end"
        script = ONCE if "," in hosts else ONCE.replace("RANK = 1", "RANK = 0", 1)
        proc = self.start("-H", hosts, "-w", str(hosts.count(",") + 1), "-s", "0", "--no-coordinator", "--grace", "1s",
                          "--label-host", "--launch-timeout", "1s", "--restart", "on-failure", "--set",
                          "roles.worker.restart.backoff=3s", "-x", f"END={self.go}", "-x",
                          f"ONCE={self.root / 'once'}", *flags, "--", "/bin/sh", "-c", script)
        self.read_until(proc, "it is restarted", stream=proc.stderr)
        host = hosts.split(",")[-1]
        agents = [p for p in self.rig.processes(host) if process_text(p, "comm").strip() == b"psrt-agent"]
        self.assertEqual(len(agents), 1)
        os.kill(agents[0], signal.SIGSTOP)
        self.addCleanup(self.wake, agents[0])
        return proc, agents[0]

    def wake(self, pid):
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_an_agent_that_does_not_answer(self):
        """Its host is lost when it has been silent for 20 s; nothing starts elsewhere before that."""
        proc, agent = self.begin_hanging("alpha,beta")
        err = self.read_until(proc, "it is restarted", stream=proc.stderr)
        self.assertRegex(err, r"worker:1 did not start on beta within 1\.\d s; it is restarted")
        self.assertIn("[worker:1@alpha] ready 1\n", self.read_until(proc, "ready 1"))
        self.assertEqual(self.states()["worker:1"], ("running", "alpha"))
        self.wake(agent)  # too late: it ends itself
        self.finish(proc)

    def test_an_agent_that_does_not_answer_and_no_other_host(self):
        proc, agent = self.begin_hanging("gamma")
        code, _, err = self.end(proc)
        self.assertEqual(code, 3, err)
        self.assertRegex(err.splitlines()[-1], r"worker:0 did not start on gamma within 1\.\d s; the job was stopped")
        self.wake(agent)
        self.assert_hosts_clean()
        self.assert_nothing_left()

    def test_a_program_that_does_not_start(self):
        """Its exec waits until who has a lease on the file gives it up, as it would for a file server; the agent lives."""
        program = self.root / "program"
        shutil.copy("/bin/true", program)
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGIO, before)
        fd = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        self.addCleanup(os.close, fd)
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            self.skipTest(f"no leases here: {error}")
        proc = self.start("-H", "alpha,beta", "-w", "1", "-s", "0", "--no-coordinator", "--launch-timeout", "2s",
                          "--restart", "on-failure", "--set", "roles.worker.restart.backoff=50ms", "--", str(program))
        err = self.read_until(proc, "it is restarted", stream=proc.stderr)
        self.assertRegex(err, r"worker:0 did not start on alpha within 2\.\d s; it is restarted")
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        code, _, err = self.end(proc)
        self.assertEqual(code, 0, err)
        self.assert_hosts_clean()
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
