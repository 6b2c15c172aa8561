# SPDX-License-Identifier: Apache-2.0
"""What the output of tasks looks like, and that none of it is lost."""
import array
import errno
import fcntl
import os
import pty
import re
import signal
import socket
import sys
import termios
import time

from launchtest import DEADLINE, LaunchTest, main

PYTHON = sys.executable


class Output(LaunchTest):

    def python(self, code, *flags, workers=1, **kwargs):
        return self.start("-w", str(workers), "-s", "0", "--grace", "300ms", *flags, "--", PYTHON,
                          "-c", "import os, sys, time, pathlib\n" + code, **kwargs)

    def raw(self, proc):
        out, err = proc.communicate(timeout=DEADLINE)
        self.assertEqual(proc.returncode, 0, err)
        return out

    def test_prefix_and_streams(self):
        code, out, err = self.launch("-w",
                                     "2",
                                     "-s",
                                     "1",
                                     "--grace",
                                     "300ms",
                                     "--",
                                     "/bin/sh",
                                     "-c",
                                     "echo to out; echo to err >&2",
                                     env={"FAKE_SERVER": "echo from server"})
        self.assertEqual(code, 0)
        self.assertEqual(sorted(out.splitlines()),
                         ["[server:0] from server", "[worker:0] to out", "[worker:1] to out"])
        self.assertIn("[worker:0] to err\n", err)
        self.assertIn("[worker:1] to err\n", err)

    def test_label_host(self):
        me = socket.gethostname()
        code, out, err = self.launch("-w", "2", "-s", "0", "--grace", "300ms", "--label-host", "--worker-logs", "0",
                                     "--", "/bin/sh", "-c",
                                     "echo x; [ $RANK = 0 ] && exec sleep 1000; echo why >&2; exit 3")
        self.assertEqual((code, out), (3, f"[worker:0@{me}] x\n"))
        self.assertIn(f"[worker:1@{me}] why\n", err)  # the last words of a worker that is not shown
        self.assertEqual(self.raw(self.python("print('x')", "--label-host", "-H", "127.0.0.1")),
                         b"[worker:0@127.0.0.1] x\n")
        self.assertEqual(self.raw(self.python("print('x')", "--label-host", "--no-prefix")), b"x\n")

    def test_no_prefix(self):
        self.assertEqual(self.raw(self.python("print('plain')", "--no-prefix")), b"plain\n")

    def test_last_line_without_newline(self):
        self.assertEqual(self.raw(self.python("sys.stdout.write('a\\nend')")),
                         b"[worker:0] a\n[worker:0] end\n")

    def test_empty_lines_and_crlf(self):
        out = self.raw(
            self.python(
                "os.write(1, b'\\n\\na\\r\\n'); os.write(1, b'b\\r'); os.write(1, b'\\nc')"))
        self.assertEqual(
            out, b"[worker:0] \n[worker:0] \n[worker:0] a\r\n[worker:0] b\r\n[worker:0] c\n")

    def test_progress_bars_become_lines_in_a_pipe(self):
        # Both manners: \r behind and \r in front.
        out = self.raw(self.python("os.write(1, b'1%\\r2%\\r3%\\rdone\\n\\r 10%\\r 20%\\n')"))
        self.assertEqual(
            out, b"".join(b"[worker:0] " + t + b"\n"
                          for t in (b"1%", b"2%", b"3%", b"done", b" 10%", b" 20%")))

    def test_slow_line_stays_whole(self):
        code = ("go = pathlib.Path(os.environ['GO'])\n"
                "if os.environ['RANK'] == '0':\n"
                "    os.write(1, b'first '); go.touch(); time.sleep(0.2); os.write(1, b'half\\n')\n"
                "else:\n"
                "    while not go.exists(): time.sleep(0.01)\n"
                "    os.write(1, b'other\\n')\n")
        out = self.raw(self.python(code, workers=2, env={"GO": str(self.root / "go")}))
        self.assertEqual(sorted(out.splitlines()), [b"[worker:0] first half", b"[worker:1] other"])

    def test_unfinished_line_is_shown_and_not_interrupted(self):
        code = ("go = pathlib.Path(os.environ['GO'])\n"
                "if os.environ['RANK'] == '0':\n"
                "    os.write(1, b'prompt: ')\n"
                "    while not go.exists(): time.sleep(0.01)\n"
                "    os.write(1, b'answer\\n')\n"
                "else:\n"
                "    while not go.exists(): time.sleep(0.01)\n")
        proc = self.python(code, workers=2, env={"GO": str(self.root / "go")})
        head = self.read_until(proc, "prompt: ")
        self.assertEqual(head, "[worker:0] prompt: ")
        (self.root / "go").touch()
        self.assertEqual(self.raw(proc), b"answer\n")  # the prefix stands there once

    def test_unfinished_line_gives_way(self):
        code = (
            "root, rank = pathlib.Path(os.environ['GO']), os.environ['RANK']\n"
            "def wait(name):\n"
            "    while not (root / name).exists(): time.sleep(0.01)\n"
            "if rank == '0': os.write(1, b'prompt: '); wait('answer'); os.write(1, b'answer\\n')\n"
            "else: wait('other'); os.write(1, b'other\\n'); wait('answer')\n")
        proc = self.python(code, workers=2, env={"GO": str(self.root)})
        self.assertEqual(self.read_until(proc, "prompt: "), "[worker:0] prompt: ")
        (self.root / "other").touch()
        self.assertEqual(self.read_until(proc, "other"), "\n[worker:1] other\n")
        (self.root / "answer").touch()
        self.assertEqual(self.raw(proc), b"[worker:0] answer\n")

    def test_much_output_of_several_tasks(self):
        # 10 MB each; every line of every worker arrives whole and in order.
        code = ("r = os.environ['RANK']\n"
                "for i in range(100000): print(r, i, 'x' * (90 + i % 20))\n")
        out = self.raw(self.python(code, workers=2, env={"PYTHONUNBUFFERED": ""})).decode()
        self.assertGreater(len(out), 20e6)
        following = {"0": 0, "1": 0}
        for line in out.splitlines():
            match = re.fullmatch(r"\[worker:(\d)\] (\d) (\d+) (x+)", line)
            self.assertTrue(match, line[:200])
            rank, i = match[2], int(match[3])
            self.assertEqual((match[1], i, len(match[4])), (rank, following[rank], 90 + i % 20))
            following[rank] += 1
        self.assertEqual(following, {"0": 100000, "1": 100000})

    def test_long_lines(self):
        code = "sys.stdout.write(os.environ['RANK'] * 5_000_000 + '\\n')"
        out = self.raw(self.python(code, workers=2))
        self.assertEqual(sorted(out.splitlines()),
                         [b"[worker:0] " + b"0" * 5_000_000, b"[worker:1] " + b"1" * 5_000_000])
        out = self.raw(self.python("sys.stdout.write('y' * 40_000_000 + 'z\\n')"))
        self.assertTrue(out == b"[worker:0] " + b"y" * 40_000_000 + b"z\n")

    def test_binary(self):
        data = bytes(b for b in range(256) if b not in b"\r\n") * 4000
        out = self.raw(
            self.python(
                "sys.stdout.buffer.write(bytes(b for b in range(256) "
                "if b not in b'\\r\\n') * 4000)", "--no-prefix"))
        self.assertTrue(out == data + b"\n")

    def test_last_words(self):
        # What was written just before death, by the task.
        code, out, err = self.launch("-s", "0", "--grace", "300ms", "--", "/bin/sh", "-c",
                                     "echo task; echo why >&2; kill -9 $$")
        self.assertEqual(code, 137)
        self.assertIn("[worker:0] task\n", out)
        self.assertIn("[worker:0] why\n", err)
        self.assertTrue(err.rstrip("\n").rpartition("\n")[2].endswith("; the job was stopped"), err)

    def test_filter_behind_the_task(self):
        # `> >(tee)` outlives the command for a moment; its last line counts.
        code, out, err = self.launch("-s", "0", "--grace", "300ms", "--", "bash", "-c",
                                     "echo 1 > >(cat); exit 0")
        self.assertEqual((code, out), (0, "[worker:0] 1\n"), err)

    def test_pipe_held_by_another(self):
        # A process that is not of the job got the pipe: the job ends all the same.
        sock = str(self.root / "sock")
        server = socket.socket(socket.AF_UNIX)
        server.bind(sock)
        server.listen()
        code = ("import socket\n"
                f"s = socket.socket(socket.AF_UNIX); s.connect({sock!r})\n"
                "socket.send_fds(s, [b'x'], [1]); print('given')\n")
        proc = self.python(code)
        peer, _ = server.accept()
        _, fds, _, _ = socket.recv_fds(peer, 1, 1)
        self.assertEqual(self.raw(proc), b"[worker:0] given\n")
        for fd in fds:
            os.close(fd)
        peer.close()
        server.close()

    def test_log_dir(self):
        log = self.root / "deep" / "log"
        code = "os.write(1, b'a\\r\\nb\\rc'); os.write(2, b'error ' + os.environ['RANK'].encode())"
        out = self.raw(self.python(code, "--log-dir", str(log), workers=2))
        self.assertEqual(len(out.splitlines()), 6)
        self.assertEqual(sorted(f.name for f in log.iterdir() if not f.is_symlink()), [
            f"{t}.0.{s}" for t in ("coordinator", "worker-0", "worker-1")
            for s in ("stderr", "stdout")
        ])
        for rank in (0, 1):
            self.assertEqual((log / f"worker-{rank}.0.stdout").read_bytes(), b"a\r\nb\rc")
            self.assertEqual((log / f"worker-{rank}.0.stderr").read_bytes(), b"error %d" % rank)
        file = self.root / "file"
        file.touch()
        code, _, err = self.launch("--log-dir", str(file), "--", "true")
        self.assertEqual(code, 70)
        self.assertIn(f"--log-dir {file}: not a directory", err)

    def test_log_limit(self):
        log, limit = self.root / "log", 64 << 10
        log.mkdir()
        (log / "worker-0.0.stdout.1").write_text("of a run before")
        code = "os.write(2, b'little\\n'); sys.stdout.write(''.join(f'line {i:09}\\n' for i in range(%d)))"
        for lines in (20000, 3):
            out = self.raw(self.python(code % lines, "--log-dir", str(log), "--log-limit", "64KiB", "--no-prefix"))
            file, old = log / "worker-0.0.stdout", log / "worker-0.0.stdout.1"
            self.assertEqual(out.count(b"\n"), lines)
            self.assertEqual((log / "worker-0.stdout").resolve(), file.resolve())
            self.assertEqual((log / "worker-0.stderr").read_text(), "little\n")
            self.assertFalse((log / "worker-0.0.stderr.1").exists())
            if lines == 3:  # what is left of the run before is gone
                self.assertEqual((file.read_bytes(), old.exists()), (out, False))
                continue
            first, last = old.read_bytes(), file.read_bytes()
            self.assertTrue(out.endswith(first + last))
            self.assertGreater(len(first + last), limit * 7 // 16)
            self.assertLessEqual(max(len(first), len(last)), limit // 2)
            for part in (first, last):
                self.assertTrue(part.startswith(b"line ") and part.endswith(b"\n"))

    def test_both_streams_into_one_file(self):
        path = self.root / "both"
        with open(path, "wb") as file:
            code = "for i in range(1000): os.write(1 + i % 2, b'%d\\n' % i)"
            proc = self.python(code, stdout=file, stderr=file)
            self.assertEqual(proc.wait(DEADLINE), 0)
        numbers = re.findall(r"^\[worker:0\] (\d+)$", path.read_text(), re.M)
        self.assertEqual(sorted(map(int, numbers)), list(range(1000)))

    # ---- readers that do not read ----

    def test_blocked_reader_does_not_block_supervision(self):
        flood = "while True: os.write(1, b'z' * 99 + b'\\n')"
        proc = self.python(flood)
        seen, held = [], array.array("i", [0])

        def full():  # pages may be partly filled, so full is what grows no more
            fcntl.ioctl(proc.stdout, termios.FIONREAD, held)
            seen.append(held[0])
            return held[0] > 16384 and seen[-20:] == 20 * [held[0]]

        self.wait_for(full, "the pipe never fills")
        proc.send_signal(signal.SIGTERM)
        self.wait_for(lambda: proc.poll() is not None, "hangs")
        self.assertEqual(proc.returncode, 143)
        self.assertIn(b"the job was stopped by SIGTERM", proc.stderr.read())
        self.assert_nothing_left(at_once=True)

    def test_blocked_reader_gets_all_in_the_end(self):
        proc = self.python("sys.stdout.write(('w' * 99 + '\\n') * 50000)")
        time.sleep(1.5)  # more than all grace times
        out = self.raw(proc)
        self.assertEqual(len(out.splitlines()), 50000)

    def test_reader_that_goes_away(self):
        proc = self.python("for i in range(100000): print('line', i)", env={"PYTHONUNBUFFERED": ""})
        self.read_until(proc, "line 1\n")
        proc.stdout.close()
        err = proc.stderr.read().decode()
        self.assertEqual(proc.wait(DEADLINE), 0)
        self.assertIn("psrt-launch: stdout: Broken pipe; further output is dropped", err)
        self.assert_nothing_left(at_once=True)

    def test_shared_stdout_stays_blocking(self):
        reader, writer = os.pipe()
        proc = self.python("print('x')", stdout=writer)
        self.assertEqual(proc.wait(DEADLINE), 0)
        self.assertFalse(fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK)
        os.close(reader)
        os.close(writer)


class Terminal(LaunchTest):

    def on_terminal(self, script, env=None, workers=1, answers=()):
        """All that the terminal got. `answers`: (text to wait for, file to make then)."""
        master, slave = pty.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        proc = self.start("-w",
                          str(workers),
                          "-s",
                          "0",
                          "--grace",
                          "300ms",
                          "--quiet",
                          "--",
                          "/bin/sh",
                          "-c",
                          script,
                          stdout=slave,
                          stderr=slave,
                          env={
                              "TERM": "xterm",
                              **(env or {})
                          })
        os.close(slave)
        seen, answers = b"", list(answers)
        try:
            while data := os.read(master, 65536):
                seen += data
                while answers and answers[0][0] in seen:
                    (self.root / answers.pop(0)[1]).touch()
        except OSError as error:  # how a terminal says that nobody holds it any more
            self.assertEqual(error.errno, errno.EIO)
        os.close(master)
        self.assertEqual(proc.wait(DEADLINE), 0)
        return seen

    def test_colour(self):
        script = "echo x"
        self.assertRegex(self.on_terminal(script), rb"^\x1b\[3\dm\[worker:0\]\x1b\[0m x\n")
        self.assertEqual(self.on_terminal(script, {"NO_COLOR": "1"}), b"[worker:0] x\n")
        self.assertEqual(self.on_terminal(script, {"TERM": "dumb"}), b"[worker:0] x\n")

    def test_bar_is_redrawn(self):
        seen = self.on_terminal(r"printf '1%%\r'; sleep 0.3; printf '2%%\r'; sleep 0.3; echo done",
                                {"NO_COLOR": "1"})
        self.assertEqual(seen, b"[worker:0] 1%\r[worker:0] 2%\r[worker:0] done\n")

    def test_bar_gives_way(self):
        script = r"""cd $GO; wait_for() { while [ ! -e $1 ]; do sleep 0.02; done; }
            if [ $RANK = 0 ]; then printf '1%%\r'; wait_for bar2; printf '2%%\r'
            else wait_for other; echo other; fi"""
        seen = self.on_terminal(script, {
            "NO_COLOR": "1",
            "GO": str(self.root)
        },
                                workers=2,
                                answers=[(b"1%\r", "other"), (b"other\n", "bar2")])
        self.assertEqual(seen, b"[worker:0] 1%\r\n[worker:1] other\n[worker:0] 2%\r\n")


if __name__ == "__main__":
    main()
