# SPDX-License-Identifier: Apache-2.0
"""How jobs end: exit codes, the last line, drain, restarts, and what is left."""
import os
import pathlib
import re
import resource
import signal
import stat
import time

from launchtest import DEADLINE, LAUNCHER, LaunchTest, main, parent, process_environ, process_text

# Accepts on the inherited socket and says which process it is, for each connection.
COORDINATOR = r"""exec python3 -c '
import os, socket
s = socket.socket(fileno=int(os.environ["PSRT_LISTEN_FD"]))
while True:
    c = s.accept()[0]
    c.send(str(os.getpid()).encode())
    if c.recv(9) == b"die": os._exit(9)
    c.close()'"""
DIAL = """
import os, socket
def dial(word):
    host, _, port = os.environ["PSRT_COORDINATOR"][6:].partition(":")
    s = socket.create_connection((host, int(port)), 30)
    pid = s.recv(99).decode()
    s.send(word)
    return pid
"""


class Ends(LaunchTest):

    def last_line(self, err):
        return err.rstrip("\n").rpartition("\n")[2]

    def test_success(self):
        code, out, err = self.shell("exit 0")
        self.assertEqual((code, out), (0, ""), err)
        self.assert_nothing_left(at_once=True)

    def test_first_failure_stops_all(self):
        began = time.monotonic()
        code, _, err = self.launch("-w", "4", "-s", "1", "--", "/bin/sh", "-c",
                                   'if [ "$RANK" = 2 ]; then sleep 1; exit 3; fi; sleep 120')
        self.assertEqual(code, 3)
        self.assertLess(time.monotonic() - began, 10)
        self.assertRegex(
            self.last_line(err), r"^psrt-launch: worker:2 \(pid \d+\) on \S+ exited "
            r"with code 3 after [1-9]\.\d s; the job was stopped$")
        self.assertIn("ended by the launcher: coordinator, server:0, worker:0, worker:1, worker:3",
                      err)
        self.assert_nothing_left(at_once=True)

    def test_who_does_not_join_is_named(self):
        missing = "job did not assemble within 1 s: missing worker:1 (2 of 3 joined)"
        env = {"FAKE_COORDINATOR": f"echo first >&2; echo psrtd: '{missing}' >&2; exit 3"}
        code, _, err = self.shell("sleep 120", env=env)
        self.assertEqual(code, 3)
        self.assertEqual(self.last_line(err), f"psrt-launch: {missing}; the job was stopped")
        self.assertNotIn("restarted", err)
        self.assertIn("ended by the launcher: server:0, worker:0, worker:1", err)
        code, _, err = self.shell('echo "psrtd: no" >&2; exit 3')  # a user's command
        self.assertRegex(self.last_line(err), r"worker:\d \(pid \d+\) .* exited with code 3")
        self.assert_nothing_left()

    def test_who_does_not_join_is_named_by_psrtd(self):
        env = {"PSRT_LAUNCH_PSRTD": str(pathlib.Path(LAUNCHER).with_name("psrtd"))}
        code, _, err = self.launch("-w", "2", "--start-timeout", "1s", "--", "sleep", "120", env=env)
        self.assertEqual(code, 3)
        self.assertEqual(self.last_line(err),
                         "psrt-launch: job did not assemble within 1 s: missing worker:0, "
                         "worker:1 (1 of 3 joined); the job was stopped")

    def test_death_by_signal(self):
        code, _, err = self.shell('[ "$RANK" = 1 ] && kill -9 $$; exec sleep 120')
        self.assertEqual(code, 137)
        self.assertRegex(self.last_line(err),
                         r"worker:1 \(pid \d+\) .* killed by signal 9 \(Killed\)")
        code, _, err = self.shell('[ "$RANK" = 0 ] && kill -SEGV $$; exec sleep 120')
        self.assertEqual(code, 139)

    def test_first_by_time(self):
        # The launcher learns of both failures at the same time; the earlier one is the reason.
        script = ("echo ready; while [ ! -e $GO/$RANK ]; do sleep 0.02; done; exit $((5 + RANK))")
        for first, second in ((0, 1), (1, 0)):
            go = self.root / f"go{first}"
            go.mkdir()
            proc = self.start("-w", "2", "-s", "0", "--", "/bin/sh", "-c", script,
                              env={"GO": str(go)})
            self.read_until(proc, "ready", 2)
            guardians = {r: {parent(p) for p in self.tasks("worker", r)} for r in (0, 1)}
            proc.send_signal(signal.SIGSTOP)
            for rank in (first, second):
                (go / str(rank)).touch()
                # What its guardian saw is on its way to the launcher once that has ended too.
                self.wait_for(lambda: not guardians[rank] & set(self.named("psrt-guardian")),
                              "the guardian stays")
            proc.send_signal(signal.SIGCONT)
            code, _, err = self.end(proc)
            self.assertEqual(code, 5 + first, err)
            self.assertIn(f"worker:{first} ", self.last_line(err))
            self.assertRegex(err, rf"worker:{second} .* exited with code {5 + second}")

    def test_codes_of_the_first(self):
        for value in (1, 2, 42, 255):
            code, _, err = self.shell(f'[ "$RANK" = 0 ] && exit {value}; exec sleep 120')
            self.assertEqual(code, value)
            self.assertIn("worker:0 ", self.last_line(err))

    def test_asked_to_end_does_not_count(self):
        # Others that fail because they are stopped do not become the reason.
        script = ("trap 'exit 77' TERM;"
                  "[ $RANK = 1 ] && { while [ ! -e $GO ]; do sleep 0.02; done; exit 6; };"
                  "touch $GO; while :; do sleep 0.05; done")
        code, _, err = self.shell(script, env={"GO": str(self.root / "go")})
        self.assertEqual(code, 6)
        self.assertIn("worker:1 ", self.last_line(err))

    def test_cannot_run(self):
        code, _, err = self.launch("--", "no-such-command")
        self.assertEqual(code, 127)
        self.assertIn("worker:0 could not be run: no-such-command: No such file",
                      self.last_line(err))
        plain = self.root / "plain"
        plain.write_text("x")
        code, _, err = self.launch("--", str(plain))
        self.assertEqual(code, 126)
        self.assertIn("Permission denied", self.last_line(err))
        self.assert_nothing_left(at_once=True)

    def test_server_failure_stops_the_job(self):
        code, _, err = self.launch("-s", "2", "--server-command",
                                   '[ "$PSRT_RANK" = 1 ] && exit 8; exec sleep 100', "--", "sleep",
                                   "100")
        self.assertEqual(code, 8)
        self.assertIn("server:1 ", self.last_line(err))
        self.assert_nothing_left(at_once=True)

    def test_server_that_was_drained_early_is_no_failure(self):
        # Workers told the servers that they have finished, and go on without them.
        code, _, err = self.shell("sleep 0.5",
                                  env={
                                      "FAKE_SERVER": "exit 0",
                                      "FAKE_COORDINATOR": "exit 0"
                                  })
        self.assertEqual(code, 0, err)
        self.assertNotIn("restarted", err)

    def test_drain_by_themselves(self):
        wait = f"while [ ! -e {self.root}/done ]; do sleep 0.02; done; echo left by myself"
        code, out, err = self.launch("-w",
                                     "1",
                                     "-s",
                                     "2",
                                     "--grace",
                                     "50s",
                                     "--",
                                     "touch",
                                     f"{self.root}/done",
                                     env={
                                         "FAKE_SERVER": wait,
                                         "FAKE_COORDINATOR": wait
                                     })
        self.assertEqual(code, 0, err)
        self.assertEqual(out.count("left by myself"), 3)
        self.assertEqual(err, "")

    def test_drain_asks_then_kills(self):
        server = "trap 'echo asked' TERM; touch $GO; while :; do sleep 0.05; done"
        code, out, err = self.shell("while [ ! -e $GO ]; do sleep 0.02; done",
                                    env={
                                        "FAKE_SERVER": server,
                                        "GO": str(self.root / "go")
                                    })
        self.assertEqual(code, 0, err)
        self.assertIn("[server:0] asked", out)
        self.assertIn("all workers ended, but not coordinator, server:0", err)
        self.assert_nothing_left(at_once=True)

    def test_timeout(self):
        began = time.monotonic()
        code, _, err = self.shell("sleep 100", "--timeout", "400ms")
        self.assertEqual(code, 124)
        self.assertLess(time.monotonic() - began, 20)
        self.assertIn("--timeout", self.last_line(err))
        self.assert_nothing_left(at_once=True)

    def test_coordinator_restarts_on_the_same_socket(self):
        script = DIAL + """
a = dial(b"die")
b = dial(b"ok")
print("other" if a != b else "same")
"""
        code, out, err = self.launch("-s",
                                     "0",
                                     "--grace",
                                     "300ms",
                                     "--log-dir",
                                     f"{self.root}/log",
                                     "--",
                                     "python3",
                                     "-c",
                                     script,
                                     env={"FAKE_COORDINATOR": COORDINATOR})
        self.assertEqual(code, 0, err)
        self.assertEqual(out, "[worker:0] other\n")
        self.assertIn("coordinator (pid", err)
        self.assertIn("exited with code 9", err)
        self.assertIn("it is restarted", err)
        self.assertTrue(os.path.exists(f"{self.root}/log/coordinator.1.stderr"))

    def test_coordinator_that_always_dies(self):
        code, _, err = self.launch("-s",
                                   "0",
                                   "--",
                                   "sleep",
                                   "100",
                                   env={"FAKE_COORDINATOR": "exit 4"})
        self.assertEqual(code, 4)
        self.assertEqual(err.count("it is restarted"), 5)
        self.assertIn("coordinator ", self.last_line(err))
        self.assert_nothing_left(at_once=True)

    def test_quiet(self):
        code, _, err = self.shell('[ "$RANK" = 0 ] && exit 3; exec sleep 120', "--quiet")
        self.assertEqual(code, 3)
        self.assertEqual(err.count("\n"), 1)

    def test_left_behind_by_a_task(self):
        # In the background, and a daemon of its own session without the mark of the job.
        daemon = ("import os, time\n"
                  "if os.fork() == 0:\n"
                  "    os.setsid()\n"
                  "    if os.fork(): os._exit(0)\n"
                  "    time.sleep(1000)\n")
        code, out, err = self.shell("sleep 1000 & exec python3 -c \"$DAEMON\"",
                                    env={"DAEMON": daemon})
        self.assertEqual(code, 0, err)
        self.assert_nothing_left(at_once=True)

    def test_parallel_jobs(self):
        script = DIAL + 'print(dial(b"ok") != "", os.environ["PSRT_JOB_DIR"])'
        jobs = [
            self.start("-w",
                       "1",
                       "-s",
                       "0",
                       "--grace",
                       "2s",
                       "--",
                       "python3",
                       "-c",
                       script,
                       env={"FAKE_COORDINATOR": COORDINATOR}) for _ in range(20)
        ]
        dirs = set()
        for job in jobs:
            code, out, err = self.end(job)
            self.assertEqual(code, 0, err)
            self.assertTrue(out.startswith("[worker:0] True "), out)
            dirs.add(out.split()[-1])
        self.assertEqual(len(dirs), 20)
        self.assert_nothing_left(at_once=True)

    def test_lengths_of_tmpdir(self):
        for length in range(20, 201):
            base = (str(self.root) + "/t/").ljust(length, "d")
            if len(base) < length or base.endswith("/"):
                base = str(self.root)
            os.makedirs(base, exist_ok=True)
            code, out, err = self.launch("-s",
                                         "0",
                                         "--grace",
                                         "0",
                                         "--no-prefix",
                                         "--",
                                         "/bin/sh",
                                         "-c",
                                         'echo "$PSRT_JOB_DIR"',
                                         env={"TMPDIR": base})
            self.assertEqual(code, 0, err)
            self.assertNotIn("does not die", err)
            path = out.strip()
            # Room for the names of sockets in the 107 bytes that their paths may have.
            self.assertLessEqual(len(path) + 40, 107)
            self.assertFalse(os.path.exists(path))

    def test_tmpdir_that_is_not_there(self):
        code, _, err = self.shell("exit 0",
                                  env={
                                      "TMPDIR": f"{self.root}/none",
                                      "XDG_RUNTIME_DIR": "no"
                                  })
        self.assertEqual(code, 0, err)

    def test_launcher_without_standard_streams(self):
        proc = self.start("-s",
                          "0",
                          "--grace",
                          "0",
                          "--",
                          "/bin/sh",
                          "-c",
                          "echo x; echo y >&2; exit 3",
                          stdout=None,
                          stderr=None,
                          preexec_fn=lambda: os.closerange(0, 3))
        self.assertEqual(proc.wait(DEADLINE), 3)

    def test_no_descriptors_left(self):
        code, _, err = self.launch(
            "-w",
            "40",
            "--",
            "sleep",
            "100",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
        self.assertEqual(code, 70)
        self.assertRegex(self.last_line(err),
                         r"worker:\d+: pipes: Too many open files; the job was stopped")
        self.assert_nothing_left(at_once=True)


class Secrets(LaunchTest):

    def test_key(self):
        script = 'echo ready; while [ ! -e $GO ]; do sleep 0.02; done'
        log = self.root / "log"
        proc = self.start("-w",
                          "1",
                          "-s",
                          "1",
                          "--grace",
                          "300ms",
                          "--log-dir",
                          str(log),
                          "--",
                          "/bin/sh",
                          "-c",
                          script,
                          env={"GO": str(self.root / "go")})
        seen = self.read_until(proc, "ready")
        directory = self.job_dir()
        key = directory / "key"
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(key.stat().st_mode), 0o600)
        content = key.read_bytes().strip()
        self.assertGreater(len(content), 32)
        secrets = [w for w in re.split(rb"\s+", content) if len(w) > 16] + [content]
        running = self.marked()
        self.assertGreaterEqual(len(running), 7)  # launcher, three guardians, three tasks
        texts = b"".join(
            process_text(p, "cmdline") + b"\0".join(process_environ(p)) for p in running)
        (self.root / "go").touch()
        code, out, err = self.end(proc)
        self.assertEqual(code, 0, err)
        texts += (seen + out + err).encode() + b"".join(f.read_bytes() for f in log.iterdir())
        for secret in secrets:
            self.assertNotIn(secret, texts)
            self.assertNotIn(secret.hex().encode(), texts)
        self.assertFalse(key.exists())

    def test_each_job_has_its_own(self):
        keys = set()
        for _ in range(3):
            code, out, err = self.launch("-s", "0", "--grace", "0", "--", "/bin/sh", "-c",
                                         'od -An -tx1 -v "$PSRT_JOB_DIR/key" | tr -d " \\n"')
            self.assertEqual(code, 0, err)
            keys.add(out)
        self.assertEqual(len(keys), 3)


if __name__ == "__main__":
    main()
