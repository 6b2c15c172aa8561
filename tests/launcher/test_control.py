# SPDX-License-Identifier: Apache-2.0
"""Asking running jobs: ps, status, logs, attach, kill, restart, replace; jobs in the background."""
import errno
import json
import os
import pty
import re
import signal
import stat
import time

from launchtest import DEADLINE, LaunchTest, main

# Says what is in the file TALK, again and again, until the file END is there.
TALKER = ('echo "begin $RANK"; while [ ! -e $END ]; do '
          '[ -e $TALK ] && echo "said $(cat $TALK) $RANK"; sleep 0.02; done; exit $(cat $END)')


class Control(LaunchTest):

    def setUp(self):
        super().setUp()
        self.files = {"TALK": str(self.root / "talk"), "END": str(self.root / "end")}

    def talk(self, text):
        (self.root / "talk").write_text(text)

    def finish(self, code=0):
        (self.root / "end.new").write_text(str(code))
        os.rename(self.root / "end.new", self.root / "end")

    def begin(self, *flags, workers=2, script=TALKER, **kwargs):
        proc = self.start("-w", str(workers), "-s", "1", "--grace", "300ms", *flags, "--",
                          "/bin/sh", "-c", script, env=self.files, **kwargs)
        self.read_until(proc, "begin", workers)
        return proc

    def detach(self, *flags, script=TALKER):
        code, out, err = self.launch("-w", "2", "-s", "1", "--grace", "300ms", "--detach", *flags,
                                     "--", "/bin/sh", "-c", script, env=self.files)
        self.assertEqual(code, 0, err)
        self.assertRegex(out, r"^\w{6}\n$")
        return out.strip()

    def ask(self, *args, code=0):
        got, out, err = self.launch(*args)
        self.assertEqual(got, code, out + err)
        return out if code == 0 else err

    def jobs(self, *flags):
        return json.loads(self.ask("ps", "--json", *flags))

    def task(self, name, *job):
        state = json.loads(self.ask("status", "--json", *job))
        return next(t for t in state["tasks"] if t["task"] == name)

    def wait_gone(self, job):
        self.wait_for(lambda: job not in [j["id"] for j in self.jobs()], "it goes on")

    def test_status(self):
        proc = self.begin("--name", "first")
        self.wait_for(lambda: "begin 1" in self.task("worker:1")["last_line"], "no last line")
        self.wait_for(lambda: json.loads(self.ask("status", "--json"))["state"] == "running",
                      "does not run")
        state = json.loads(self.ask("status", "--json"))
        self.assertEqual((state["name"], state["state"]), ("first", "running"))
        self.assertEqual([t["task"] for t in state["tasks"]],
                         ["coordinator", "server:0", "worker:0", "worker:1"])
        for task in state["tasks"]:
            self.assertEqual((task["state"], task["attempt"]), ("running", 0))
            self.assertTrue(os.path.exists(f"/proc/{task['pid']}"))
        table = self.ask("status", "first")
        self.assertRegex(table, r"(?m)^worker:1 +running +localhost +\d+ +0 +[\d.]+  begin 1$")
        self.assertRegex(self.ask("ps"), r"(?m)^\w{6} +first +running .* 2 worker$")
        socket = self.job_dir() / "control"
        self.assertEqual(stat.S_IMODE(socket.stat().st_mode), 0o600)
        self.finish()
        self.assertEqual(self.end(proc)[0], 0)
        self.assertEqual(self.jobs(), [])
        self.assert_nothing_left(at_once=True)

    def test_which_job(self):
        self.assertIn("which job? running: none", self.ask("status", code=69))
        one, two = self.begin("--name", "one"), self.begin("--name", "two")
        err = self.ask("status", code=69)
        self.assertRegex(err, r"which job\? running: \w+ \(two\), \w+ \(one\)")
        self.assertIn("no single job is called three", self.ask("kill", "three", code=69))
        self.assertIn("(two) is ", self.ask("status", "two"))
        by_id = next(j["id"] for j in self.jobs() if j["name"] == "one")
        self.assertIn("(one) is ", self.ask("status", by_id))
        self.assertIn("no task worker:7", self.ask("restart", "-j", "one", "worker", "7", code=2))
        self.assertIn("no role or task chief", self.ask("logs", "-j", "one", "chief", code=2))
        self.assertIn("usage: psrt-launch restart", self.ask("restart", code=2))
        self.assertIn("option --jsn is not known here", self.ask("status", "--jsn", code=2))
        self.assertIn("option -f is not known here", self.ask("ps", "-f", code=2))
        self.assertIn("option --signal lacks its argument", self.ask("kill", "--signal", code=2))
        self.assertIn("no such signal", self.ask("kill", "--signal", "FOO", code=2))
        self.finish()
        for proc in (one, two):
            self.assertEqual(self.end(proc)[0], 0)

    def test_logs(self):
        proc = self.begin()
        self.assertEqual(sorted(self.ask("logs").splitlines()),
                         ["[worker:0] begin 0", "[worker:1] begin 1"])
        self.assertEqual(self.ask("logs", "worker:1"), "[worker:1] begin 1\n")
        follower = self.start("logs", "-f", "worker:0")
        self.read_until(follower, "begin 0")
        self.talk("something")
        self.assertTrue(self.read_until(follower, "\n").startswith("[worker:0] said something 0\n"))
        self.finish(4)
        self.assertEqual(self.end(proc)[0], 4)
        code, out, err = self.end(follower)
        self.assertEqual((code, err), (4, ""))
        self.assertNotIn("worker:1", out)

    def test_attach_shows_what_comes_and_the_end(self):
        job = self.detach()
        attached = self.start("attach", job)
        self.wait_for(lambda: self.task("worker:1")["state"] == "running", "does not run")
        self.read_until_attached(attached)
        self.finish(5)
        code, _, err = self.end(attached)
        self.assertEqual(code, 5)
        self.assertRegex(err, r"psrt-launch: worker:\d .* exited with code 5 .*the job was stopped")
        self.wait_gone(job)
        self.assert_nothing_left()

    def read_until_attached(self, attached):
        self.talk("now")
        self.read_until(attached, "said now", 2)

    def test_detached_job_lives_on(self):
        job = self.detach("--name", "back")
        info = self.jobs()[0]
        self.assertEqual((info["id"], info["name"], info["alive"]), (job, "back", True))
        os.kill(info["pid"], signal.SIGHUP)  # the terminal went away
        self.assertIn("is running", self.ask("status", job).replace("starting", "running"))
        self.ask("kill", job)
        self.wait_gone(job)
        ended = next(j for j in self.jobs("-a") if j["id"] == job)
        self.assertEqual(ended["exit_code"], 143)
        self.assertIn("stopped by psrt-launch kill", ended["verdict"])
        for which in (job, "back"):
            self.assertIn("ended, 143: the job was stopped by psrt-launch kill", self.ask("status", which))
        self.assertIn("does not run any more", self.ask("attach", "back", code=69))
        with open(os.path.join(ended["log_dir"], "output")) as output:
            self.assertIn("psrt-launch: the job was stopped", output.read())
        self.assertIn(f"does not run any more; its logs are in {ended['log_dir']}",
                      self.ask("logs", "-j", job, code=69))
        self.assert_nothing_left()

    def test_log_limit_of_a_detached_job(self):
        script = 'i=0; while [ $i -lt 3000 ]; do echo "line $i of $RANK"; i=$((i + 1)); done; ' + TALKER
        job = self.detach("--log-limit", "64KiB", script=script)
        self.talk("now")
        output = os.path.join(self.jobs()[0]["log_dir"], "output")
        self.wait_for(lambda: os.path.exists(output + ".1"), "it does not begin a new file")
        self.wait_for(lambda: "said now" in self.ask("logs", job), "nothing is said")
        self.finish(5)
        self.wait_gone(job)
        with open(output) as file, open(output + ".1") as old:
            whole = old.read() + file.read()
        self.assertLessEqual(os.path.getsize(output) + os.path.getsize(output + ".1"), 64 << 10)
        self.assertRegex(whole.splitlines()[0], r"^\[worker:[01]\] ")
        self.assertRegex(whole.splitlines()[-1], "^psrt-launch: worker:[01] .* exited with code 5 ")
        self.assert_nothing_left()

    def test_detach_interrupted_goes_on(self):
        job = self.detach()
        attached = self.start("attach", job)
        self.read_until_attached(attached)
        attached.send_signal(signal.SIGINT)
        code, _, err = self.end(attached)
        self.assertEqual(code, 130)
        self.assertIn("detached; the job goes on", err)
        self.assertIn(job, [j["id"] for j in self.jobs()])
        self.finish()
        self.wait_gone(job)

    def test_detached_job_that_does_not_start(self):
        file = self.root / "file"
        file.touch()
        code, out, err = self.launch("--detach", "--log-dir", str(file), "--", "true")
        self.assertEqual((code, out), (70, ""))
        self.assertIn("not a directory", err)
        self.assertIn("the job did not start", err)

    def test_restart_and_replace(self):
        proc = self.begin()
        for verb, attempt in (("restart", 1), ("replace", 2)):
            before = self.task("worker:1")["pid"]
            self.ask(verb, "worker", "1")
            self.wait_for(lambda: self.task("worker:1")["attempt"] == attempt and
                          self.task("worker:1")["state"] == "running", "not started anew")
            after = self.task("worker:1")
            self.assertNotEqual(after["pid"], before)
            self.assertEqual(after["restarts"], 0)
            self.assertFalse(os.path.exists(f"/proc/{before}"))
        self.assertEqual(self.task("worker:0")["attempt"], 0)
        self.finish()
        code, _, err = self.end(proc)
        self.assertEqual(code, 0, err)
        self.assertIn("worker:1 is restarted, at the user's wish", err)

    def test_kill_at_once(self):
        proc = self.begin("--grace", "100s", script="trap '' TERM; echo begin; while :; do sleep 1; done")
        self.ask("kill", "--signal", "KILL")
        code, _, err = self.end(proc)
        self.assertEqual(code, 137, err)
        self.assert_nothing_left(at_once=True)

    def test_a_launcher_that_does_not_answer(self):
        proc = self.begin()
        proc.send_signal(signal.SIGSTOP)
        try:
            code, _, err = self.launch("status")
        finally:
            proc.send_signal(signal.SIGCONT)
        self.assertEqual(code, 70)
        self.assertIn(f"did not answer within 10 s; its launcher is process {proc.pid}", err)
        self.finish()
        self.end(proc)

    def test_signal_is_passed_on(self):
        proc = self.begin(script="trap 'echo got it; exit 0' USR1; echo begin; "
                          "while :; do sleep 0.02; done")
        self.ask("kill", "--signal", "USR1")
        code, out, err = self.end(proc)
        self.assertEqual((code, out.count("got it")), (0, 2), err)

    def test_killed_launcher_is_not_running(self):
        proc = self.begin()
        proc.kill()
        self.end(proc)
        self.assertEqual(self.jobs(), [])
        self.assertEqual(len(self.jobs("-a")), 1)
        self.assert_nothing_left()

    def test_events(self):
        job = self.detach()
        self.finish(3)
        self.wait_gone(job)
        record = next(j for j in self.jobs("-a") if j["id"] == job)["record"]
        with open(os.path.join(record, "events.jsonl")) as lines:
            events = [json.loads(line) for line in lines]
        started = [e["task"] for e in events if e["event"] == "started"]
        self.assertEqual(sorted(started), ["coordinator", "server:0", "worker:0", "worker:1"])
        ended = [e for e in events if e["event"] == "ended"]
        self.assertTrue(any("exited with code 3" in e["text"] for e in ended))
        self.assertTrue(all(abs(e["time"] - time.time()) < 600 for e in events))
        self.assertEqual(stat.S_IMODE(os.stat(record).st_mode), 0o700)

    def test_records_are_bounded(self):
        for _ in range(23):
            self.assertEqual(self.launch("-s", "0", "--grace", "0", "--", "true")[0], 0)
        self.assertEqual(len(self.jobs("-a")), 20)

    def test_a_slow_watcher_does_not_hold_the_job(self):
        # Nobody reads what the follower writes; the job writes more than all buffers have.
        script = ("echo begin; while [ ! -e $TALK ]; do sleep 0.02; done; "
                  "yes zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz | head -c 40000000")
        with open(os.devnull, "wb") as null:
            proc = self.start("-w", "1", "-s", "0", "--grace", "300ms", "--", "/bin/sh", "-c",
                              script, env=self.files, stdout=null)
            self.wait_for(lambda: "begin" in self.launch("status")[1], "does not begin")
            follower = self.start("logs", "-f")
            self.read_until(follower, "begin")
            self.talk("go")
            self.assertEqual(proc.wait(DEADLINE), 0)
        follower.kill()

    def test_no_state_directory(self):
        env = {"XDG_STATE_HOME": "", "HOME": "/proc/nothing"}
        code, out, err = self.launch("-s", "0", "--grace", "0", "--quiet", "--", "echo", "x",
                                     env=env)
        self.assertEqual((code, out, err), (0, "[worker:0] x\n", ""))
        code, _, err = self.launch("--detach", "--", "true", env=env)
        self.assertEqual(code, 70)


class Terminal(LaunchTest):

    def on_terminal(self, *flags, until=None):
        master, slave = pty.openpty()
        go = self.root / "go"
        proc = self.start("-w", "2", "-s", "0", "--grace", "300ms", *flags, "--", "/bin/sh", "-c",
                          "echo epoch 3; while [ ! -e $GO ]; do sleep 0.02; done; echo bye",
                          stdout=slave, stderr=slave, env={"TERM": "xterm", "NO_COLOR": "1",
                                                           "GO": str(go)})
        os.close(slave)
        if until is None:
            go.touch()
        seen = b""
        try:
            while data := os.read(master, 65536):
                seen += data
                if until and re.search(until, seen):
                    go.touch()
        except OSError as error:  # how a terminal says that nobody holds it any more
            self.assertEqual(error.errno, errno.EIO)
        os.close(master)
        self.assertEqual(proc.wait(DEADLINE), 0)
        return seen.decode()

    def test_status_line(self):
        line = r"0:00:0\d \| coordinator 1 running \| worker 2 running \| worker:\d: epoch 3"
        seen = self.on_terminal(until=line.encode())
        self.assertRegex(seen, line)
        # Nothing is written behind it, and it does not stay.
        for part in seen.split("\r\x1b[K")[1:]:
            self.assertTrue(re.match(r"0:0|\[worker|psrt-launch|$", part), repr(part))
        screen = re.sub(r"[^\n]*\r\x1b\[K", "", seen.replace("\r\n", "\n"))
        lines = [x for x in screen.splitlines() if not x.startswith("psrt-launch: all workers")]
        self.assertEqual(sorted(lines),
                         sorted(["[worker:0] epoch 3", "[worker:1] epoch 3", "[worker:0] bye",
                                 "[worker:1] bye"]), repr(seen))

    def test_none_when_quiet(self):
        self.assertNotIn("\x1b[K", self.on_terminal("--quiet"))


if __name__ == "__main__":
    main()
