# SPDX-License-Identifier: Apache-2.0
"""Nothing survives, whatever is killed with -9."""
import fcntl
import os
import pathlib
import signal
import time

from launchtest import PATIENT, STUBBORN, LaunchTest, main, parent

# A grandchild in a session of its own, adopted by the guardian, without the job in its environment.
ESCAPE = ("env -u PSRT_JOB_DIR setsid sh -c 'sleep 1000 & exec sleep 1000' & "
          "setsid sleep 1000 & ")


def proc_lines(name):
    return pathlib.Path("/proc/self", name).read_text().splitlines()


class Kills(LaunchTest):

    def begin(self, script, *flags):
        proc = self.start("-w", "2", "-s", "1", *flags, "--", "/bin/sh", "-c", script)
        self.read_until(proc, "ready", 2)
        return proc

    def guardian_of(self, role, rank):
        """By the environment of the guardian's child, which it has once it executes the command."""
        found = []

        def look():
            guardians = self.named("psrt-guardian")
            found.extend(parent(p) for p in self.tasks(role, rank) if parent(p) in guardians)
            return found

        self.wait_for(look, f"no guardian of {role}:{rank}")
        return found[0]

    def test_launcher(self):
        for script in (PATIENT, ESCAPE + PATIENT, ESCAPE + STUBBORN):
            proc = self.begin(script, "--grace", "500ms")
            self.job_dir().joinpath("socket").touch()
            self.kill(proc.pid)
            self.end(proc)
            self.assert_nothing_left()

    def test_the_lock_of_a_launcher_outlives_its_connections(self):
        proc = self.begin(PATIENT)
        lock = os.open(self.job_dir(), os.O_RDONLY)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)  # as the launcher's, while the kernel tears it down
        self.kill(proc.pid)
        self.end(proc)
        self.wait_for(lambda: not self.tasks("worker", 0) and not self.tasks("worker", 1),
                      self.describe_left)
        fcntl.flock(lock, fcntl.LOCK_UN)
        self.assert_nothing_left()

    def test_launcher_while_it_starts(self):
        for delay in range(20):
            proc = self.start("-w", "3", "-s", "2", "--grace", "200ms", "--", "sleep", "1000")
            time.sleep(delay / 1000)  # somewhere in its start
            self.kill(proc.pid)
            self.end(proc)
            self.wait_for(lambda: not self.marked(), self.describe_left)
        # Killed before it has a guardian, its directory is left to the next start.
        self.launch("-s", "0", "--grace", "0", "--", "true")
        self.assert_nothing_left(at_once=True)

    def test_guardian_of_a_worker(self):
        proc = self.begin(ESCAPE + STUBBORN, "--grace", "300ms")
        self.kill(self.guardian_of("worker", 1))
        code, _, err = self.end(proc)
        self.assertEqual(code, 137, err)
        last = err.rstrip("\n").rpartition("\n")[2]
        self.assertRegex(last, r"worker:1 \(pid \d+\) on \S+ was lost: its guardian was killed")
        self.assert_nothing_left(at_once=True)

    def test_guardian_of_a_server(self):
        proc = self.begin(PATIENT)
        self.kill(self.guardian_of("server", 0))
        code, _, err = self.end(proc)
        self.assertEqual(code, 137, err)
        self.assert_nothing_left(at_once=True)

    def test_guardian_of_the_coordinator(self):
        # It is restarted; then the job is ended.
        proc = self.begin(PATIENT)
        self.kill(self.guardian_of("coordinator", 0))
        self.read_until(proc, "it is restarted", stream=proc.stderr)
        self.wait_for(lambda: len(self.named("psrt-guardian")) == 4, "no new guardian")
        proc.send_signal(signal.SIGINT)
        code, _, err = self.end(proc)
        self.assertEqual(code, 130, err)
        self.assert_nothing_left(at_once=True)

    def groups(self, pids):
        """The control groups of these guardians; skips where none may be made."""
        mounts = [row[1] for row in map(str.split, proc_lines("mounts")) if row[2] == "cgroup2"]
        own = [row[3:] for row in proc_lines("cgroup") if row.startswith("0::")]
        base = pathlib.Path((mounts or [""])[0] + (own or [""])[0])
        if not mounts or not own or not os.access(base, os.W_OK):
            print("[SKIP] no control groups (version 2) of one's own here", flush=True)
            self.skipTest("no control groups")
        return [base / f"psrt-guardian-{pid}" for pid in pids]

    def test_each_task_has_a_control_group(self):
        proc = self.begin(PATIENT)
        groups = self.groups(self.named("psrt-guardian"))
        tasks = [(g / "cgroup.procs").read_text().split() for g in groups]
        self.assertTrue(all(tasks), tasks)
        self.assertEqual(len({pid for group in tasks for pid in group}), sum(map(len, tasks)))
        proc.send_signal(signal.SIGINT)
        self.assertEqual(self.end(proc)[0], 130)
        self.assertEqual([g for g in groups if g.exists()], [])

    def test_groups_of_killed_guardians_are_removed(self):
        proc = self.begin(ESCAPE + STUBBORN, "--grace", "300ms")
        groups = self.groups(self.named("psrt-guardian"))
        self.kill(*self.named("psrt-guardian"))
        self.assertEqual(self.end(proc)[0], 137)
        self.assertEqual([g for g in groups if g.exists()], [])

    def test_groups_that_nobody_was_left_to_remove(self):
        proc = self.begin(PATIENT)
        guardians = self.named("psrt-guardian")
        groups = self.groups(guardians)
        self.kill(*guardians, proc.pid)
        self.end(proc)
        self.wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in guardians), "guardians are left")

        def is_populated(group):  # the launcher may still have come to remove some
            return group.exists() and "populated 1" in (group / "cgroup.events").read_text()

        self.wait_for(lambda: not any(map(is_populated, groups)), "tasks are left")
        self.assertEqual(self.launch("-s", "0", "--grace", "0", "--", "true")[0], 0)
        self.assertEqual([g for g in groups if g.exists()], [])

    def test_launcher_and_a_guardian(self):
        proc = self.begin("setsid sleep 1000 & " + STUBBORN, "--grace", "300ms")
        self.kill(proc.pid, self.guardian_of("worker", 0))
        self.end(proc)
        self.assert_nothing_left()

    def test_all_guardians(self):
        proc = self.begin(ESCAPE + STUBBORN, "--grace", "300ms")
        self.kill(*self.named("psrt-guardian"))
        code, _, err = self.end(proc)
        self.assertEqual(code, 137, err)
        self.assert_nothing_left(at_once=True)

    def test_launcher_and_all_guardians(self):
        # Tasks die with their guardians; what they started is ended by the next start of any job.
        proc = self.begin("setsid sleep 1000 & " + STUBBORN)
        tasks = [p for p in self.marked() if parent(p) in self.named("psrt-guardian")]
        self.kill(proc.pid, *self.named("psrt-guardian"))
        self.end(proc)
        self.wait_for(lambda: not set(tasks) & set(self.marked()), "a task outlived its guardian")
        code, _, err = self.launch("-s", "0", "--grace", "0", "--", "true")
        self.assertEqual(code, 0, err)
        self.assert_nothing_left(at_once=True)

    def test_a_running_job_is_not_taken_for_a_stale_one(self):
        proc = self.begin(PATIENT)
        code, _, err = self.launch("-s", "0", "--grace", "0", "--", "true")
        self.assertEqual(code, 0, err)
        self.assertTrue(self.job_dir().joinpath("key").exists())
        self.assertIsNone(proc.poll())
        proc.send_signal(signal.SIGINT)
        self.assertEqual(self.end(proc)[0], 130)
        self.assert_nothing_left(at_once=True)

    def test_foreign_directories_stay(self):
        other = self.tmp / "psrt-job-file"
        other.touch()
        link = self.tmp / "psrt-job-link"
        link.symlink_to(self.root)
        self.launch("-s", "0", "--grace", "0", "--", "true")
        self.assertTrue(other.exists() and link.is_symlink() and self.root.exists())

    def test_children_of_the_shell_before(self):
        # `exec psrt-launch` has the background jobs of the shell as children: not ours to end.
        flag = self.root / "alive"
        script = (
            f'(trap "touch {flag}; exit" USR1; while :; do sleep 0.05; done) & echo "pid $!"; '
            'exec "$@"')
        proc = self.start("-w",
                          "1",
                          "-s",
                          "0",
                          "--grace",
                          "300ms",
                          "--",
                          "/bin/sh",
                          "-c",
                          PATIENT,
                          before=["/bin/sh", "-c", script, "sh"])
        head = self.read_until(proc, "ready")
        bystander = int(head.split()[1])
        self.kill(self.guardian_of("worker", 0))
        proc.stdout.close()
        self.assertEqual(proc.wait(60), 137)
        os.kill(bystander, signal.SIGUSR1)
        self.wait_for(flag.exists, "the bystander was killed")


if __name__ == "__main__":
    main()
