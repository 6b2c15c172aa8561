# SPDX-License-Identifier: Apache-2.0
"""Restarts, elastic jobs, success by role, signals that are passed on, many tasks."""
import fcntl
import os
import re
import shutil
import signal
import socket
import sys

from launchtest import PATIENT, LaunchTest, main, parent

FAST = ("--set", "roles.worker.restart.backoff=20ms")
RESTART = ("--restart", "on-failure", *FAST)
# Counts its starts in a file of its own; N is which one this is, from 0.
COUNT = 'echo x >> $COUNT.$RANK; N=$(($(wc -l < $COUNT.$RANK) - 1)); '


class Restarts(LaunchTest):

    def run_counted(self, script, *flags, workers=1, **env):
        env["COUNT"] = str(self.root / "count")
        return self.launch("-w", str(workers), "-s", "0", "--grace", "300ms", *flags, "--",
                           "/bin/sh", "-c", COUNT + script, env=env)

    def starts(self, rank=0):
        return len((self.root / f"count.{rank}").read_text().splitlines())

    def test_restarted_until_it_succeeds(self):
        log = self.root / "log"
        code, out, err = self.run_counted("echo try $N; [ $N = 2 ]", *RESTART, "--max-restarts",
                                          "5", "--log-dir", str(log))
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "".join(f"[worker:0] try {n}\n" for n in range(3)))
        self.assertEqual(err.count("it is restarted"), 2)
        for n in range(3):
            self.assertEqual((log / f"worker-0.{n}.stdout").read_text(), f"try {n}\n")
        self.assertEqual(os.readlink(log / "worker-0.stdout"), "worker-0.2.stdout")
        self.assertEqual(os.readlink(log / "worker-0.stderr"), "worker-0.2.stderr")
        self.assert_nothing_left(at_once=True)

    def test_a_start_that_hangs(self):
        """The kernel lets an exec wait until who has a lease on the file gives it up."""
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
        code, _, err = self.launch("-s", "0", "--no-coordinator", "--launch-timeout", "500ms", "--", str(program))
        self.assertEqual(code, 3, err)
        self.assertRegex(err.splitlines()[-1], r"worker:0 did not start on \S+ within \d+\.\d s; the job was stopped")
        self.assert_nothing_left(at_once=True)

    def begin_with_a_taken_port(self):
        """A worker that fails once, and its port, which somebody else took before its second life."""
        flag = self.root / "lived"
        proc = self.start("-s", "0", "--no-coordinator", "--restart", "on-failure", "--set",
                          "roles.worker.restart.backoff=500ms", "--", "sh", "-c",
                          f"[ -e {flag} ] && echo again && exit 0; touch {flag}; echo port {{port}}; exit 1")
        out = self.read_until(proc, "\n")
        taken = socket.socket()
        self.addCleanup(taken.close)
        first = self.named("psrt-guardian")
        taken.bind(("0.0.0.0", int(out.split()[-1])))
        taken.listen()
        self.wait_for(lambda: set(self.named("psrt-guardian")) - set(first), "no second life")
        return proc, taken

    def test_a_port_that_is_taken_for_a_while(self):
        proc, taken = self.begin_with_a_taken_port()
        taken.close()
        code, out, err = self.end(proc)
        self.assertEqual((code, out), (0, "[worker:0] again\n"), err)

    def test_a_port_that_stays_taken(self):
        proc, _ = self.begin_with_a_taken_port()
        code, out, err = self.end(proc)
        self.assertEqual((code, out), (126, ""), err)
        self.assertIn("worker:0 could not be run: sh: Address already in use", err)

    def test_limit(self):
        for limit in (0, 1, 3):
            code, _, err = self.run_counted("exit 7", *RESTART, "--max-restarts", str(limit))
            self.assertEqual(code, 7)
            self.assertEqual(self.starts(), limit + 1)
            self.assertEqual(err.count("it is restarted"), limit)
            self.assertRegex(err.splitlines()[-1], r"worker:0 .* exited with code 7")
            (self.root / "count.0").unlink()

    def test_never_is_the_default(self):
        code, _, err = self.run_counted("exit 7")
        self.assertEqual((code, self.starts()), (7, 1), err)

    def test_each_task_has_its_own_count(self):
        # Workers 0 and 1 fail twice each, worker 2 never.
        code, _, err = self.run_counted("[ $RANK = 2 ] || [ $N = 2 ]", *RESTART, "--max-restarts",
                                        "2", workers=3)
        self.assertEqual(code, 0, err)
        self.assertEqual([self.starts(r) for r in range(3)], [3, 3, 1])

    def test_classes_of_codes(self):
        only = ("--set", "roles.worker.restart.codes=[42]")
        code, _, err = self.run_counted("[ $N = 0 ] && exit 42; exit 43", *RESTART, *only)
        self.assertEqual((code, self.starts()), (43, 2), err)
        (self.root / "count.0").unlink()
        code, _, err = self.run_counted("exit 2", *RESTART)  # wrong usage stays wrong
        self.assertEqual((code, self.starts()), (2, 1), err)
        code, _, err = self.launch("-s", "0", *RESTART, "--", "no-such-command")
        self.assertEqual((code, err.count("restarted")), (127, 0), err)

    def test_killed_by_a_signal(self):
        code, out, err = self.run_counted("[ $N = 0 ] && kill -9 $$; echo again", *RESTART)
        self.assertEqual((code, out), (0, "[worker:0] again\n"), err)
        self.assertIn("killed by signal 9 (Killed)", err)

    def test_not_while_something_of_it_runs(self):
        # The child of the first start holds on; the second start does not see it.
        script = ('[ $N = 0 ] && { trap "" TERM; setsid sleep 1000 & echo $! > $PID; exit 1; }; '
                  'kill -0 $(cat $PID) 2> /dev/null && echo alive; echo done')
        code, out, err = self.run_counted(script, *RESTART, PID=str(self.root / "pid"))
        self.assertEqual((code, out), (0, "[worker:0] done\n"), err)

    def test_stop_while_it_waits_to_be_restarted(self):
        proc = self.start("-s", "0", "--restart", "on-failure", "--set",
                          "roles.worker.restart.backoff=100s", "--", "/bin/sh", "-c", "exit 1")
        self.read_until(proc, "it is restarted in 100.0 s", stream=proc.stderr)
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual(code, 130, err)
        self.assert_nothing_left(at_once=True)


class Roles(LaunchTest):

    def test_the_chief_decides_and_all_else_ends(self):
        code, out, err = self.launch("--no-coordinator", "--grace", "5s", "--role", "chief=1",
                                     "--command", "chief=echo chief", "--role", "ps=2",
                                     "--command", "ps=exec sleep 1000", "-w", "1", "--", "sleep",
                                     "0.1")
        self.assertEqual(code, 0, err)
        self.assertIn("[chief:0] chief\n", out)
        self.assertNotIn("asking to end", err)  # the ps were asked at once, and went
        self.assert_nothing_left(at_once=True)

    def test_failure_of_what_nothing_depends_on(self):
        go = self.root / "go"
        code, _, err = self.launch("-s", "0", "--grace", "300ms", "--role", "tensorboard=1",
                                   "--command", f"tensorboard=touch {go}; exit 9", "--", "/bin/sh",
                                   "-c", f"while [ ! -e {go} ]; do sleep 0.02; done; sleep 0.2")
        self.assertEqual(code, 0, err)
        self.assertIn("exited with code 9", err)
        self.assertIn("the job goes on without it", err)

    def test_any(self):
        code, _, err = self.launch("-s", "0", "-w", "3", "--grace", "300ms", "--set",
                                   "roles.worker.success=any", "--", "/bin/sh", "-c",
                                   "[ $RANK = 0 ] && exit 1; [ $RANK = 1 ] && exec sleep 1000; "
                                   "sleep 0.3")
        self.assertEqual(code, 0, err)
        self.assert_nothing_left(at_once=True)


class Elastic(LaunchTest):
    SCRIPT = ("[ $RANK -lt $FAILING ] && exit 5; echo ready; "
              "while [ ! -e $GO ]; do sleep 0.02; done")

    def begin(self, failing, *flags):
        return self.start("-w", "4", "--min-workers", "2", "-s", "1", "--grace", "300ms", *flags,
                          "--", "/bin/sh", "-c", self.SCRIPT,
                          env={"GO": str(self.root / "go"), "FAILING": str(failing)})

    def test_shrinks_to_the_minimum(self):
        proc = self.begin(2)
        self.read_until(proc, "ready", 2)
        self.read_until(proc, "the job goes on with 2 of role worker", stream=proc.stderr)
        (self.root / "go").touch()
        code, _, err = self.end(proc)
        self.assertEqual(code, 0, err)
        self.assert_nothing_left(at_once=True)

    def test_not_below_the_minimum(self):
        code, _, err = self.end(self.begin(3))
        self.assertEqual(code, 5, err)
        self.assertEqual(err.count("the job goes on with"), 2)
        self.assert_nothing_left(at_once=True)

    def test_grows_again_with_the_same_index(self):
        script = ("[ $RANK = 1 ] && [ ! -e $HEALED ] && exit 5; echo ready $RANK of $WORLD_SIZE; "
                  "while [ ! -e $GO ]; do sleep 0.02; done")
        healed = self.root / "healed"
        proc = self.start("-w", "3", "--min-workers", "2", "-s", "0", "--grace", "300ms", "--",
                          "/bin/sh", "-c", script,
                          env={"GO": str(self.root / "go"), "HEALED": str(healed)})
        self.read_until(proc, "the job goes on with 2", stream=proc.stderr)
        healed.touch()
        code, _, err = self.launch("restart", "worker", "1")
        self.assertEqual(code, 0, err)
        self.read_until(proc, "[worker:1] ready 1 of 3")
        (self.root / "go").touch()
        code, _, err = self.end(proc)
        self.assertEqual(code, 0, err)

    def test_minimum_above_the_number(self):
        code, _, err = self.launch("--min-workers", "3", "-w", "2", "--", "true")
        self.assertEqual(code, 2)
        self.assertIn("--min-workers 3 is more than the 2 workers", err)


class PassedOn(LaunchTest):

    def begin(self, script, *flags, workers=2):
        proc = self.start("-w", str(workers), "-s", "1", "--grace", "100s", *flags, "--",
                          "/bin/sh", "-c", script)
        self.read_until(proc, "ready", workers)
        return proc

    def test_user_signals_reach_the_programs(self):
        # And not psrtd, which they would kill.
        proc = self.begin('trap "echo got one" USR1; trap "echo got two" USR2; echo ready; '
                          'while :; do sleep 0.05; done')
        for sig, text in ((signal.SIGUSR1, "got one"), (signal.SIGUSR2, "got two")):
            proc.send_signal(sig)
            self.read_until(proc, text, 2)
        proc.send_signal(signal.SIGTERM)
        code, _, err = self.end(proc)
        self.assertEqual(code, 143, err)
        self.assertNotIn("User defined", err)

    def test_quit_shows_the_state(self):
        proc = self.begin("echo epoch 7; echo ready; exec sleep 1000")
        table = "starting"
        while "starting" in table:
            proc.send_signal(signal.SIGQUIT)
            table = self.read_until(proc, "worker:1 ", stream=proc.stderr)
        for name in ("coordinator", "server:0", "worker:0", "worker:1"):
            self.assertRegex(table, rf"psrt-launch: {name} +running +on localhost, pid \d+")
        self.assertRegex(table, "worker:0 .*; ready\n")
        proc.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(proc)[0], 143)

    def test_third_signal_leaves_at_once(self):
        # A guardian that stands can end nothing; the launcher does not wait for it.
        proc = self.begin(PATIENT, workers=1)
        task = self.tasks("worker", 0)
        guardians = [parent(p) for p in task if parent(p) in self.named("psrt-guardian")]
        for pid in guardians:
            os.kill(pid, signal.SIGSTOP)
        proc.send_signal(signal.SIGINT)
        self.read_until(proc, "a second signal kills it", stream=proc.stderr)
        proc.send_signal(signal.SIGINT)
        self.wait_for(lambda: len(self.named("psrt-guardian")) == len(guardians), "others stay")
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual(code, 130, err)
        self.assertIn("worker:0 (pid", err)
        self.assertIn("does not die; its guardian goes on trying", err)
        for pid in guardians:
            os.kill(pid, signal.SIGCONT)
        self.assert_nothing_left()


class Many(LaunchTest):

    def test_200_tasks_start_and_stop(self):
        proc = self.start("-w", "200", "-s", "0", "--grace", "60s", "--quiet", "--", "/bin/sh",
                          "-c", PATIENT)
        self.read_until(proc, "ready", 200)
        self.assertEqual(len(self.named("psrt-guardian")), 201)
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual(code, 130, err)
        self.assert_nothing_left(at_once=True)

    def test_200_tasks_succeed(self):
        code, out, err = self.launch("-w", "200", "-s", "0", "--grace", "0", "--", "/bin/sh", "-c",
                                     "echo $RANK")
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()),
                         sorted(f"[worker:{r}] {r}" for r in range(200)))
        self.assert_nothing_left(at_once=True)

    def test_one_of_200_fails(self):
        code, _, err = self.launch("-w", "200", "-s", "0", "--", "/bin/sh", "-c",
                                   "[ $RANK = 123 ] && exit 3; exec sleep 1000")
        self.assertEqual(code, 3)
        self.assertRegex(err.splitlines()[-1], r"worker:123 .* exited with code 3")
        self.assertRegex(err, r"ended by the launcher: .* and 1\d\d more")
        self.assert_nothing_left(at_once=True)


class Lines(LaunchTest):

    def test_the_tail_is_never_lost(self):
        # 100,000 lines in one go, and gone.
        code = ("import os; d = b''.join(b'%d\\n' % i for i in range(100000))\n"
                "while d: d = d[os.write(1, d):]\n"
                "os._exit(7)")
        log = self.root / "log"
        status, out, err = self.launch("-s", "0", "--no-prefix", "--grace", "300ms", "--log-dir",
                                       str(log), "--", sys.executable, "-c", code)
        self.assertEqual(status, 7, err)
        want = "".join(f"{i}\n" for i in range(100000))
        self.assertTrue(out == want)
        self.assertTrue((log / "worker-0.0.stdout").read_text() == want)

    def test_timestamps(self):
        code, out, err = self.launch("-s", "0", "--grace", "0", "--timestamps", "--", "/bin/sh",
                                     "-c", "echo a; echo b")
        self.assertEqual(code, 0, err)
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}"
        self.assertRegex(out, rf"^{stamp} \[worker:0\] a\n{stamp} \[worker:0\] b\n$")

    def test_worker_logs(self):
        log = self.root / "log"
        code, out, err = self.launch("-w", "4", "-s", "0", "--grace", "0", "--worker-logs", "0,2-3",
                                     "--log-dir", str(log), "--", "/bin/sh", "-c", "echo of $RANK")
        self.assertEqual(code, 0, err)
        self.assertEqual(sorted(out.splitlines()), [f"[worker:{r}] of {r}" for r in (0, 2, 3)])
        self.assertEqual((log / "worker-1.0.stdout").read_text(), "of 1\n")
        for flags, shown in ((("--tee", "1"), "1"), (("--quiet-ranks", "0,2-3"), "1"), (("--quiet-ranks", "*"), "")):
            code, out, err = self.launch("-w", "4", "-s", "0", "--grace", "0", *flags, "--", "/bin/sh", "-c",
                                         "echo of $RANK")
            self.assertEqual((code, sorted(out.splitlines())), (0, [f"[worker:{r}] of {r}" for r in shown]), err)

    def test_last_words_of_a_hidden_worker(self):
        code, out, err = self.launch("-w", "2", "-s", "0", "--grace", "300ms", "--worker-logs", "0",
                                     "--", "/bin/sh", "-c",
                                     "[ $RANK = 0 ] && exec sleep 1000; echo no memory >&2; exit 3")
        self.assertEqual(code, 3)
        self.assertIn("[worker:1] no memory\n", err)
        self.assertRegex(err.splitlines()[-1], r"worker:1 .* exited with code 3")

    def test_equal_errors_are_told_once(self):
        script = "echo same >&2; echo mine $RANK >&2; echo same"
        log = self.root / "log"
        code, out, err = self.launch("-w", "20", "-s", "0", "--grace", "300ms", "--log-dir",
                                     str(log), "--", "/bin/sh", "-c", script)
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("] same\n"), 20)  # what is no error is not counted
        shown = re.findall(r"^\[worker:\d+\] same$", err, re.M)
        told = re.findall(r"^psrt-launch: (.*) wrote the same as worker:\d+: same$", err, re.M)
        counted = sum(t.count("worker:") + int((re.findall(r"and (\d+) more", t) or [0])[0])
                      for t in told)
        self.assertEqual(len(shown) + counted, 20, err)
        self.assertLess(len(shown), 20)
        for rank in range(20):
            self.assertIn(f"[worker:{rank}] mine {rank}\n", err)
            self.assertEqual((log / f"worker-{rank}.0.stderr").read_text(),
                             f"same\nmine {rank}\n")

    def test_without_prefixes_all_are_shown(self):
        code, _, err = self.launch("-w", "5", "-s", "0", "--grace", "0", "--no-prefix", "--quiet",
                                   "--", "/bin/sh", "-c", "echo same >&2")
        self.assertEqual((code, err), (0, 5 * "same\n"))


if __name__ == "__main__":
    main()
