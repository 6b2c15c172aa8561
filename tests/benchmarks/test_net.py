#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/bench --net: its hosts, what delays and loses packets between them, its rows, and that nothing
is left of it. No figure is judged."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

NET = pathlib.Path(__file__).parents[2] / "benchmarks" / "net"
sys.path.insert(0, str(NET))

from lan import Lan, Unavailable  # noqa: E402

BIN = os.environ["PSRT_TEST_BIN"]
DEADLINE = 120  # seconds; only shows that nothing hangs
KEYS = ["op", "bytes", "workers", "servers", "rate_gbit", "hosts", "delay_ms", "loss_percent", "best_ms", "ms",
        "share"]

# Answers each datagram.
ECHO = """
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 5000))
print("up", flush=True)
while True:
    s.sendto(*s.recvfrom(99))
"""
# Prints the seconds of a round trip; with a count: how many of them come there and back.
ASK = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 5000))
answers, count = 0, int(sys.argv[2])
for i in range(count):
    start = time.monotonic()
    s.send(b"%d" % i)
    s.settimeout(0.1 if count > 1 else 60)
    try:
        s.recv(99)
        answers += 1
    except TimeoutError:
        pass
print(answers if count > 1 else time.monotonic() - start)
"""


def bench(*args):
    return [sys.executable, "-B", str(NET / "bench.py"), "--bin", BIN, *args]


def namespaces(pid):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split() if name.startswith(f"psrt{pid}h")]


def until(condition, what):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {DEADLINE} s: {what}")
        time.sleep(0.02)


class Network(unittest.TestCase):
    def ask(self, count, **lan):
        hosts = Lan(2, 1e9, relay=f"{BIN}/psrt-net-relay", **lan)
        echo = subprocess.Popen(hosts.on(0, [sys.executable, "-c", ECHO, hosts.addresses[0]]),
                                stdout=subprocess.PIPE)
        try:
            self.assertEqual(echo.stdout.readline(), b"up\n")
            done = subprocess.run(hosts.on(1, [sys.executable, "-c", ASK, hosts.addresses[0], str(count)]),
                                  capture_output=True, text=True, timeout=DEADLINE, check=True)
        finally:
            hosts.close()  # and with it, what runs there
            with echo:
                pass
        return float(done.stdout)

    def test_every_packet_is_delayed(self):
        self.assertGreaterEqual(self.ask(1, delay=0.05), 0.1)
        self.assertLess(self.ask(1), 0.1)  # without a relay there is none

    def test_packets_are_lost(self):
        self.assertTrue(20 <= self.ask(50, loss=20) <= 44)  # 32 expected: there and back


class Bench(unittest.TestCase):
    def rows(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            done = subprocess.run(bench(*args, "--json", path), capture_output=True, text=True,
                                  timeout=DEADLINE, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(path, encoding="utf-8") as f:
                return json.load(f)

    def test_operations(self):
        rows = self.rows("--hosts", "3", "--servers", "1", "--bytes", "1MiB", "--delay", "1")
        self.assertEqual([row["op"] for row in rows], ["push", "pull", "allreduce"])
        self.assertEqual((rows[2]["workers"], rows[2]["servers"]), (3, 0))
        self.assertAlmostEqual(rows[2]["best_ms"], (1 << 20) * 8 * 4 / 3 / 1e6)
        for row in rows:
            self.assertTrue(0 < row["share"] < 0.957, row)  # the rest are headers: the links are limited
        for row in rows[:2]:
            self.assertEqual(list(row), KEYS)
            self.assertEqual((row["workers"], row["servers"], row["bytes"]), (2, 1, 1 << 20))
            self.assertAlmostEqual(row["best_ms"], (1 << 20) * 8 * 2 / 1e6)
            self.assertAlmostEqual(row["share"], row["best_ms"] / row["ms"])

    def test_models(self):
        rows = self.rows("--hosts", "3", "--model", "alexnet,resnet50", "--faster", "20", "--steps", "2",
                         "--as", "50", "--rate", "5")
        self.assertEqual([(row["model"], row["hosts"], row["workers"], row["servers"]) for row in rows],
                         [(name, n, n, n) for name in ("alexnet", "resnet50") for n in (1, 2, 3)])
        for row, alone in zip(rows, 3 * rows[:1] + 3 * rows[3:4]):
            self.assertAlmostEqual(row["divide"], 200)
            self.assertAlmostEqual(row["scaling"] * row["hosts"] * alone["samples_per_s"],
                                   row["samples_per_s"])
            self.assertTrue(0 < row["links_allow"] <= 1)
        self.assertAlmostEqual(rows[3]["compute_ms"], 6 * 4.09 * 32 / 4.2 / 20, 1)

    def ended_by(self, number, expected):
        """However it ends, no namespace is left, and nothing runs in one."""
        run = subprocess.Popen(bench("--hosts", "2", "--seconds", "600"), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, start_new_session=True)
        with run, contextlib.ExitStack() as on_failure:
            on_failure.callback(run.kill)
            run.stdout.readline()  # the hosts are there
            self.assertEqual(len(namespaces(run.pid)), 3)
            until(lambda: subprocess.run(["ip", "netns", "pids", f"psrt{run.pid}h0"], capture_output=True,
                                         check=False).stdout, "a task")
            run.send_signal(number)
            self.assertEqual(run.wait(DEADLINE), expected)
        until(lambda: not namespaces(run.pid), "no namespace")

    def test_killed(self):
        self.ended_by(signal.SIGKILL, -signal.SIGKILL)

    def test_interrupted(self):
        self.ended_by(signal.SIGINT, 130)

    def test_terminated(self):
        self.ended_by(signal.SIGTERM, 143)

    def test_usage(self):
        for args, word in ((["--hosts", "0"], "--hosts"), (["--rate", "x"], "--rate"),
                           (["--hosts", "2", "--servers", "2"], "worker"), (["--delay", "-1"], "--delay"),
                           (["--model", "vgg"], "vgg19"), (["--env", "X"], "--env")):
            done = subprocess.run(bench(*args), capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(word, done.stderr)


# What runs in the background ignores it, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    Lan(2, 1e9).close()
except Unavailable as e:
    print(f"skipped: {e}")
    sys.exit(77)
unittest.main(verbosity=2)
