# SPDX-License-Identifier: Apache-2.0
"""Jobs on other hosts, over real sshd: three network namespaces."""
import os
import re
import signal
import sys
import time

from launchtest import LaunchTest, main, process_text
import sshrig

HOSTS = ("alpha", "beta", "gamma")
ALL = "alpha,beta,gamma"
SLEEP = "echo ready; exec sleep 1000"


class SshTest(LaunchTest):
    shells = {}

    @classmethod
    def setUpClass(cls):
        try:
            cls.rig = sshrig.SshRig(HOSTS, cls.shells)
        except sshrig.netns.Unavailable as e:
            print(f"skipped: {e}")
            sys.exit(77)
        cls.addClassCleanup(cls.rig.close)
        cls.rig.wait_until_up()

    def setUp(self):
        super().setUp()
        self.env.update(self.rig.environment())

    def tearDown(self):
        for host in HOSTS:
            for pid in self.rig.processes(host):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        super().tearDown()

    def start(self, *args, **kwargs):
        kwargs.setdefault("before", self.rig.command([]))
        return super().start(*args, **kwargs)

    def begin(self, script=SLEEP, *flags):
        """Three workers, one a host, that said that they are ready."""
        proc = self.start("-H", ALL, "-w", "3", "-s", "0", "--no-coordinator", *flags, "--", "/bin/sh", "-c", script)
        self.read_until(proc, "ready", 3)
        return proc

    def remote_left(self):
        return {h: [(p, process_text(p, "cmdline")) for p in self.rig.processes(h)] +
                os.listdir(self.rig.tmp(h)) for h in HOSTS}

    def assert_hosts_clean(self, seconds=None):
        begin = time.monotonic()
        self.wait_for(lambda: not any(self.remote_left().values()),
                      lambda: f"left: {self.remote_left()}")
        if seconds:
            self.assertLess(time.monotonic() - begin, seconds)

    def agents(self):
        return [p for h in HOSTS for p in self.rig.processes(h)
                if process_text(p, "comm").strip() == b"psrt-agent"]


class Course(SshTest):
    shells = {"beta": sshrig.NOISY, "gamma": sshrig.SLOW}

    def test_a_task_on_each_host(self):
        code, out, err = self.launch("-H", ALL, "-w", "3", "-s", "0", "--no-coordinator", "--", "/bin/sh", "-c",
                                     "echo at $TMPDIR $PSRT_JOB_DIR $RANK of $WORLD_SIZE")
        self.assertEqual((code, err), (0, ""))
        for i, host in enumerate(HOSTS):
            self.assertRegex(out, rf"\[worker:{i}\] at {self.rig.tmp(host)} {self.rig.tmp(host)}/psrt-job-\w+ {i} of 3\n")
        self.assert_hosts_clean()
        self.assert_nothing_left(at_once=True)

    def test_what_a_task_ends_with_is_told(self):
        code, _, err = self.launch("-H", ALL, "-w", "3", "-s", "1", "--grace", "300ms", "--",
                                   "/bin/sh", "-c", "sleep 0.5; [ $RANK = 1 ] && exit 7; exec sleep 1000")
        self.assertEqual(code, 7, err)
        self.assertRegex(err.splitlines()[-1], r"worker:1 \(pid \d+\) on beta exited with code 7")
        self.assert_hosts_clean()

    def test_bind_by_local_rank(self):
        script = "echo @$RANK $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)"
        code, out, err = self.launch("-H", "beta:1,alpha:2", "-w", "3", "-s", "0", "--no-coordinator", "--bind",
                                     "cores", "--no-prefix", "--", "/bin/sh", "-c", script)
        self.assertEqual(code, 0, err)
        cpus = dict(re.findall(r"^@(\d) (\S+)$", out, re.M))
        self.assertEqual(sorted(cpus), ["0", "1", "2"])
        if cpus["1"] != cpus["0"]:  # more than one core
            self.assertNotEqual(cpus["1"], cpus["2"])
            self.assertNotEqual(cpus["0"], cpus["2"])
        elif len(os.sched_getaffinity(0)) > 2:  # two threads may be one core
            self.fail(cpus)

    def test_a_host_that_cannot_be_reached(self):
        begin = time.monotonic()
        code, _, err = self.launch("-H", "alpha,ghost,beta", "-w", "3", "-s", "0", "--no-coordinator", "--", "true")
        self.assertNotEqual(code, 0)
        self.assertRegex(err, r"1 of 3 hosts cannot be used: ghost: ssh: connect to host ghost port "
                         r"2222: (No route to host|Connection timed out)")
        self.assertLess(time.monotonic() - begin, 25)
        self.assert_hosts_clean()
        self.assert_nothing_left(at_once=True)

    def test_output_is_complete(self):
        script = "seq 100000; echo last $RANK >&2"
        code, out, err = self.launch("-H", ALL, "-w", "3", "-s", "0", "--no-coordinator", "--", "/bin/sh", "-c", script)
        self.assertEqual(code, 0, err)
        want = "".join(f"{i}\n" for i in range(1, 100001))
        for rank in range(3):
            got = "".join(line.split(" ", 1)[1] for line in out.splitlines(True)
                          if line.startswith(f"[worker:{rank}]"))
            self.assertEqual(got, want)
            self.assertIn(f"[worker:{rank}] last {rank}\n", err)


if __name__ == "__main__":
    main()
