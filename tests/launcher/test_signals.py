# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and its kin: everything ends, in bounded time, in the right order."""
import fcntl
import os
import re
import signal
import sys
import termios
import time

from launchtest import PATIENT, STUBBORN, LaunchTest, main

LONG = "100s"  # a grace time that no test waits for


class Signals(LaunchTest):

    def begin(self, script, *flags, workers=2, **kwargs):
        proc = self.start("-w", str(workers), "-s", "1", *flags, "--", "/bin/sh", "-c", script,
                          **kwargs)
        self.head = self.read_until(proc, "ready", workers)
        return proc

    def assert_stopped(self, proc, sig, within=20):
        began = time.monotonic()
        code, out, err = self.end(proc)
        self.assertEqual(code, 128 + sig, err)
        self.assertLess(time.monotonic() - began, within)
        last = err.rstrip("\n").rpartition("\n")[2]
        self.assertIn(f"the job was stopped by {signal.Signals(sig).name}", last)
        self.assert_nothing_left(at_once=True)
        return out, err

    def test_first_is_graceful(self):
        script = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=sig.name):
                proc = self.begin(script, "--grace", LONG)
                proc.send_signal(sig)
                out, _ = self.assert_stopped(proc, sig)
                self.assertEqual(out.count("bye"), 2)

    def test_whole_terminal_group(self):
        # Ctrl-C in a terminal goes to the launcher's process group; tasks are not in it.
        script = ("trap 'echo int' INT; trap 'echo bye; exit 0' TERM; echo ready;"
                  "while :; do sleep 0.05; done")
        proc = self.begin(script, "--grace", LONG, start_new_session=True)
        os.killpg(proc.pid, signal.SIGINT)
        out, _ = self.assert_stopped(proc, signal.SIGINT)
        self.assertEqual((out.count("bye"), out.count("int")), (2, 0))

    def test_terminal(self):
        # Tasks are in the launcher's session, where sched_yield reaches them all, but have no terminal.
        master, slave = os.openpty()

        def take_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        script = ("trap 'echo int' INT; trap 'echo bye; exit 0' TERM;"
                  "read -r _ _ _ _ group session terminal _ </proc/$$/stat;"
                  "(: </dev/tty) 2>/dev/null && echo a terminal;"
                  "echo $$ $group $session $terminal ready; while :; do sleep 0.05; done")
        proc = self.begin(script, "--grace", LONG, preexec_fn=take_terminal)
        os.write(master, b"\3")
        out, _ = self.assert_stopped(proc, signal.SIGINT)
        os.close(slave)
        os.close(master)
        out = self.head + out
        told = re.findall(r"(\d+) (\d+) (\d+) (\d+) ready", out)
        self.assertEqual(len(told), 2, out)
        for pid, group, session, terminal in told:
            self.assertEqual((group, session, terminal), (pid, str(proc.pid), "0"))
        self.assertEqual([out.count(word) for word in ("bye", "int", "a terminal")], [2, 0, 0])

    def test_grandchildren(self):
        child = self.root / "x.py"
        child.write_text("import time; print('ready', flush=True); time.sleep(1000)\n")
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=sig.name):
                proc = self.begin(f"{sys.executable} {child} & wait", "--grace", LONG)
                proc.send_signal(sig)
                self.assert_stopped(proc, sig)

    def test_ignored_sigterm_is_killed_after_grace(self):
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=sig.name):
                began = time.monotonic()
                proc = self.begin(STUBBORN, "--grace", "500ms")
                proc.send_signal(sig)
                self.assert_stopped(proc, sig)
                self.assertGreater(time.monotonic() - began, 0.5)

    def test_second_is_immediate(self):
        for first, second in ((signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)):
            proc = self.begin(STUBBORN, "--grace", LONG)
            proc.send_signal(first)
            self.read_until(proc, "a second signal kills it", stream=proc.stderr)
            proc.send_signal(second)
            self.assert_stopped(proc, first)

    def test_stopped_processes(self):
        proc = self.begin("echo ready; kill -STOP $$", "--grace", LONG, workers=1)
        proc.send_signal(signal.SIGTERM)
        self.assert_stopped(proc, signal.SIGTERM)

    def test_servers_outlive_the_workers_farewell(self):
        # A worker that saves when it is asked to end finds its server.
        server = "trap 'rm $HERE; exit 0' TERM; touch $HERE; while :; do sleep 0.05; done"
        worker = ("trap 'sleep 0.3; [ -e $HERE ] && echo saved; exit 0' TERM;"
                  "while [ ! -e $HERE ]; do sleep 0.02; done; echo ready;"
                  "while :; do sleep 0.05; done")
        proc = self.begin(worker,
                          "--grace",
                          LONG,
                          env={
                              "FAKE_SERVER": server,
                              "HERE": str(self.root / "here")
                          })
        proc.send_signal(signal.SIGINT)
        out, _ = self.assert_stopped(proc, signal.SIGINT)
        self.assertEqual(out.count("saved"), 2)
        self.assertFalse((self.root / "here").exists())

    def test_while_drained(self):
        proc = self.start(
            "-w",
            "1",
            "-s",
            "1",
            "--grace",
            LONG,
            "--",
            "true",
            env={"FAKE_SERVER": "trap '' TERM; echo ready; while :; do sleep 0.05; done"})
        self.read_until(proc, "ready")
        proc.send_signal(signal.SIGINT)
        self.read_until(proc, "a second signal kills it", stream=proc.stderr)
        proc.send_signal(signal.SIGINT)
        self.assert_stopped(proc, signal.SIGINT)

    def test_nohup(self):
        # SIGHUP that was ignored at the start stays ignored, for tasks too.
        proc = self.begin(PATIENT, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        proc.send_signal(signal.SIGHUP)
        proc.send_signal(signal.SIGINT)
        self.assert_stopped(proc, signal.SIGINT)

    def test_failure_before_the_signal_stays_the_reason(self):
        script = ("if [ $RANK = 0 ]; then while [ ! -e $GO ]; do sleep 0.02; done; exit 9; fi;"
                  "trap 'echo ready' TERM; touch $GO; while :; do sleep 0.05; done")
        proc = self.start("-w",
                          "2",
                          "-s",
                          "0",
                          "--grace",
                          LONG,
                          "--",
                          "/bin/sh",
                          "-c",
                          script,
                          env={"GO": str(self.root / "go")})
        self.read_until(proc, "ready")  # the stop is under way
        proc.send_signal(signal.SIGINT)
        proc.send_signal(signal.SIGTERM)
        code, _, err = self.end(proc)
        self.assertEqual(code, 9, err)
        self.assertIn("worker:0 ", err.rstrip("\n").rpartition("\n")[2])
        self.assert_nothing_left(at_once=True)


if __name__ == "__main__":
    main()
