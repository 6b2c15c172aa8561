# SPDX-License-Identifier: Apache-2.0
"""Hosts that a script lists while the job runs, over real sshd: elastic jobs grow and shrink with them."""
import re
import shutil
import signal
import time

from launchtest import main
from sshrig import netns
from test_ssh import PROGRAMS, SshTest

# Says where it is, goes on until the file END is there, which all hosts see, and leaves a file when it is asked to end.
WORKER = ("trap 'echo >$END.asked.$RANK; exit 0' TERM; echo ready $RANK at {host} {port}; "
          "while [ ! -e $END ]; do sleep 0.05; done")


class DiscoveryTest(SshTest):

    def setUp(self):
        super().setUp()
        self.go, self.hosts, self.script = self.root / "end", self.root / "hosts", self.root / "script"
        self.write_script('cat "$HOSTS"')
        self.env["HOSTS"] = str(self.hosts)
        self.env["MARK"] = str(self.root / "mark")

    def write_script(self, text):
        """In the place of the old one at once, as a job may be running."""
        fresh = self.script.with_suffix(".new")
        fresh.write_text(f"#!/bin/sh\n{text}\n")
        fresh.chmod(0o755)
        fresh.rename(self.script)

    def list_hosts(self, *lines):
        fresh = self.hosts.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.rename(self.hosts)

    def begin_with(self, *hosts, flags=(), ready=1):
        self.list_hosts(*hosts)
        proc = self.start("--host-discovery-script", self.script, "--host-discovery-interval", "100ms",
                          "--min-workers", "1", "--max-workers", "3", "-s", "0", "--no-coordinator",
                          "--grace", "2s", "--host-cooldown", "500ms", "-x", f"END={self.go}", *flags, "--",
                          "/bin/sh", "-c", WORKER)
        self.seen = self.read_until(proc, "ready", ready)
        return proc


class Course(DiscoveryTest):

    def place(self, seen):
        """Of each worker that said that it is ready: its address."""
        return dict(re.findall(r"ready (\d) at ([^ ]+) \d+\n", seen))

    def test_grows_onto_hosts_that_come(self):
        proc = self.begin_with("alpha")
        self.assertEqual(self.place(self.seen), {"0": self.rig.addresses["alpha"]})
        self.assertEqual(self.states()["worker:1"], ("shed", "-"))
        self.list_hosts("alpha", "beta", "gamma")
        places = self.place(self.read_until(proc, "ready", 2))
        self.assertEqual(set(places), {"1", "2"})
        self.assertEqual(set(places.values()), {self.rig.addresses[h] for h in ("beta", "gamma")})
        self.assertEqual({state for state, _ in self.states().values()}, {"running"})
        _, err = self.finish(proc)
        for host in ("beta", "gamma"):
            self.assertIn(f"psrt-launch: host {host} is new, with 1 slot\n", err)
            self.assertIn(f"psrt-launch: host {host} is ready\n", err)
        self.assertRegex(err, r"worker:1 joins, on (beta|gamma)\n")
        self.assertNotIn("again", err)

    def test_several_places_on_one_that_comes(self):
        proc = self.begin_with("alpha6", flags=("--slots-per-host", "2"), ready=2)
        # The interface by which it came, IPv4 first: which address of it was the first to get through is chance.
        self.assertEqual(set(self.place(self.seen).values()), {self.rig.addresses["alpha"]})
        self.list_hosts("alpha6", "beta:5")
        self.assertEqual(self.place(self.read_until(proc, "ready")), {"2": self.rig.addresses["beta"]})
        _, err = self.finish(proc)
        self.assertIn("host beta is new, with 5 slots\n", err)

    def test_leaves_a_host_that_goes(self):
        proc = self.begin_with("alpha", "beta", ready=2)
        self.list_hosts("alpha")
        self.read_until(proc, "host beta is listed no more\n", stream=proc.stderr)
        self.wait_for(self.asked(1).exists, "worker 1 is not asked to end")
        self.wait_for(lambda: self.states()["worker:1"][0] == "shed", self.states)
        self.assertEqual(self.states()["worker:0"], ("running", "alpha"))
        self.list_hosts("alpha", "beta")
        self.assertEqual(self.place(self.read_until(proc, "ready")), {"1": self.rig.addresses["beta"]})
        _, err = self.finish(proc)
        self.assertIn("host beta is listed again\n", err)
        self.assertFalse(self.asked(0).exists())

    def test_moves_to_one_that_comes_in_its_place(self):
        proc = self.begin_with("alpha", "beta", flags=("--max-workers", "2"), ready=2)
        self.list_hosts("gamma", "alpha")
        self.assertEqual(self.place(self.read_until(proc, "ready")), {"1": self.rig.addresses["gamma"]})
        self.assertTrue(self.asked(1).exists())
        self.assertEqual(self.states()["worker:1"], ("running", "gamma"))
        self.finish(proc)

    def asked(self, rank):
        return self.go.with_suffix(f".asked.{rank}")

    def test_takes_its_agent_there(self):
        agent = self.root / "it's here"  # which no shell could be told
        agent.mkdir()
        shutil.copy(PROGRAMS / "psrt-agent", agent)
        self.env["PSRT_LAUNCH_AGENT"] = str(agent / "psrt-agent")
        cache = self.rig.root / "beta" / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        proc = self.begin_with("alpha")
        self.list_hosts("alpha", "beta")
        self.read_until(proc, "ready 1")
        self.assertTrue(list(cache.glob("psrt/*/bin/psrt-agent")))
        self.finish(proc)


class Unreachable(DiscoveryTest):

    def setUp(self):
        """ssh to ghost fails with what the file `why` says."""
        super().setUp()
        self.why, self.tries = self.root / "why", self.root / "tries"
        client = self.root / "ssh"
        client.write_text(f'#!/bin/sh\ncase "$*" in *"-- ghost "*) echo x >>{self.tries}; cat {self.why} >&2; '
                          f'exit 255;; esac\nexec {self.rig.client} "$@"\n')
        client.chmod(0o755)
        self.env["PSRT_LAUNCH_SSH"] = str(client)

    def wait_for_tries(self, count):
        have = len(self.tries.read_text()) if self.tries.exists() else 0
        self.wait_for(lambda: self.tries.exists() and len(self.tries.read_text()) >= have + 2 * count, "no tries")

    def test_each_reason_is_told_once(self):
        self.why.write_text("ssh: it is dark\n")
        proc = self.begin_with("alpha", flags=("--host-cooldown", "50ms"))
        self.list_hosts("ghost", "alpha", "gamma")
        self.read_until(proc, "ready 1")
        self.wait_for_tries(3)
        self.why.write_text("ssh: it is cold\n")
        self.wait_for_tries(2)
        _, err = self.finish(proc)
        for reason in ("ssh: it is dark", "ssh: it is cold"):
            self.assertEqual(err.count(f"host ghost cannot be used: {reason}; it is tried again\n"), 1, err)


    def test_one_that_does_not_reach_the_others(self):
        """Though psrt-launch reaches it."""
        gamma = self.rig.names[1 + self.rig.hosts.index("gamma")]
        route = ("unreachable", f"{self.rig.addresses['alpha']}/32")
        netns.ip("-n", gamma, "route", "add", *route)
        try:
            proc = self.begin_with("alpha", flags=("--host-cooldown", "200ms"))
            self.list_hosts("alpha", "gamma")
            self.read_until(proc, "host gamma cannot be used: it does not reach host alpha at "
                            f"{self.rig.addresses['alpha']}; it is tried again\n", stream=proc.stderr)
        finally:
            netns.ip("-n", gamma, "route", "del", *route)
        self.read_until(proc, "ready 1")
        self.finish(proc)

    def test_one_that_comes_back_as_another_machine(self):
        beta = self.rig.names[1 + self.rig.hosts.index("beta")]
        old, new = self.rig.addresses["beta"], f"10.{self.rig.net}.0.77"
        proc = self.begin_with("alpha", "beta", ready=2)
        self.list_hosts("alpha")
        self.read_until(proc, "the job goes on with 1 of role worker", stream=proc.stderr)
        self.kill_agent("beta")
        self.read_until(proc, "host beta was lost", stream=proc.stderr)
        self.wait_for(lambda: not self.rig.processes("beta"), "its sshd waits for a connection")
        netns.ip("-n", beta, "addr", "del", f"{old}/24", "dev", "eth0")  # others in its network go with it
        netns.ip("-n", beta, "addr", "add", f"{new}/24", "dev", "eth0")
        self.rig.addresses["beta"] = new
        self.rig.write_table()
        try:
            self.list_hosts("alpha", "beta")
            self.assertIn(f"ready 1 at {new} ", self.read_until(proc, "ready 1"))
            self.finish(proc)
        finally:
            netns.ip("-n", beta, "addr", "del", f"{new}/24", "dev", "eth0")
            netns.ip("-n", beta, "addr", "add", f"{old}/24", "dev", "eth0")
            self.rig.addresses["beta"] = old
            self.rig.write_table()


class Scripts(DiscoveryTest):

    def wait_for_runs(self, count):
        mark = self.root / "mark"
        self.wait_for(lambda: mark.exists() and mark.read_text().count("run") >= count, "the script is not run")

    def test_one_that_fails_later(self):
        proc = self.begin_with("alpha")
        self.write_script('echo run >>"$MARK"; echo oh >&2; exit 3')
        self.wait_for_runs(4)
        _, err = self.finish(proc)
        self.assertEqual(err.count(f"psrt-launch: host discovery: {self.script} ended with code 3; the list before "
                                   "holds\n"), 1, err)
        self.assertIn("\noh\n", err)

    def test_one_that_hangs_later(self):
        proc = self.begin_with("alpha")
        self.write_script("trap '' TERM; echo run >>\"$MARK\"; setsid sleep 1000 & while :; do sleep 1000; done")
        self.wait_for_runs(1)
        begin = time.monotonic()
        self.finish(proc)
        self.assertLess(time.monotonic() - begin, 25)  # it may run for 30 s

    def test_one_that_hangs_when_the_launcher_is_killed(self):
        proc = self.begin_with("alpha")
        self.write_script("trap '' TERM HUP; echo run >>\"$MARK\"; setsid sleep 1000 & while :; do sleep 1000; done")
        self.wait_for_runs(1)
        self.kill(*self.named("psrt-launch"))
        self.end(proc)
        self.wait_for(lambda: not self.marked(), lambda: f"left: {self.describe_left()}")
        self.assert_hosts_clean()

    def test_the_first_run_hangs_and_is_interrupted(self):
        self.write_script("trap '' TERM INT; echo run >>\"$MARK\"; while :; do sleep 1000; done")
        proc = self.start("--host-discovery-script", self.script, "--max-workers", "3", "--", "true")
        self.wait_for_runs(1)
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual((code, err), (-signal.SIGINT, ""))
        self.assert_nothing_left()


class Training(DiscoveryTest):

    def test_workers_join_a_job_under_way(self):
        program = PROGRAMS / "mnist_replica"
        if not program.exists():
            self.skipTest("the examples are not built")
        self.env.update({"PSRT_LAUNCH_PSRTD": str(PROGRAMS / "psrtd"), "OPENBLAS_NUM_THREADS": "1"})
        self.list_hosts("alpha")
        proc = self.start("--host-discovery-script", self.script, "--host-discovery-interval", "100ms",
                          "--max-workers", "2", "-s", "1", "--", program, "--steps", "1000000")
        self.read_until(proc, "step ")
        self.list_hosts("alpha", "gamma")
        self.read_until(proc, "[worker:1] worker 1 goes on with step ")
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual(code, 130, err)
        self.assertIn("worker:1 joins, on gamma\n", err)
        self.assert_hosts_clean()
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
