# SPDX-License-Identifier: Apache-2.0
"""psrt-launch in allocations of a real Slurm: steps, sbatch, scancel, a lost node."""
import os
import pathlib
import re
import subprocess
import time
import unittest

import slurmrig

BIN = pathlib.Path(os.environ["PSRT_TEST_LAUNCHER"]).parent
SOON = 30  # seconds; only shows that nothing hangs


def processes(mark):
    """Those that have `mark` in their environment."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark.encode() in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(int(entry))
        except OSError:
            pass
    return found


class Slurm(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        why = slurmrig.missing()
        if why:
            print(f"[SKIP] Slurm: {why}", flush=True)
            raise unittest.SkipTest(why)
        os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
        del os.environ["PSRT_TEST_LAUNCHER"]  # psrtd warns of PSRT_ variables that it does not know
        cls.cluster = slurmrig.Cluster()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.close()

    def setUp(self):
        self.mark = f"LAUNCH_SLURM_TEST={self.id()}.{time.monotonic_ns()}"
        self.flags = ["--backend", "slurm", "-x", self.mark]

    def tearDown(self):
        self.cluster.call("scancel", "--user=root")
        self.until(lambda: not processes(self.mark), "processes are left")

    def until(self, condition, what):
        end = time.monotonic() + SOON
        while not condition():
            self.assertLess(time.monotonic(), end, what + "\n" + self.cluster.logs())
            time.sleep(0.1)

    def start(self, *command):
        name, value = self.mark.split("=", 1)
        p = subprocess.Popen(["salloc", "--quiet", "-N2", "-n4", "psrt-launch", *self.flags, *command],
                             env={**self.cluster.env, name: value}, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        return p

    def run_job(self, *command):
        p = self.start(*command)
        out, err = p.communicate(timeout=2 * SOON)
        return p.returncode, out, err

    def test_tasks_run_on_all_nodes(self):
        code, out, err = self.run_job("-s", "0", "--no-coordinator", "-w", "4", "--", "sh", "-c",
                                      "tr '\\0' '\\n' </proc/$PPID/cmdline | head -1; echo rank $RANK of $WORLD_SIZE")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(sorted(re.findall(r"rank (\d) of 4", out)), ["0", "1", "2", "3"])

    def test_places_are_those_of_the_allocation(self):
        r = subprocess.run(["salloc", "--quiet", "-N2", "-n4", "psrt-launch", "plan", *self.flags, "-s", "0",
                            "--no-coordinator", "-w", "4", "--", "t"], env=self.cluster.env, stdout=subprocess.PIPE,
                           stdin=subprocess.DEVNULL, text=True, timeout=SOON, check=True)
        hosts = re.findall(r"^(n\d) +worker", r.stdout, re.M)
        self.assertEqual(sorted(set(hosts)), ["n0", "n1"])
        self.assertEqual(len(hosts), 4)

    def test_the_environment_is_that_of_the_allocation(self):
        name = self.mark.split("=", 1)[0]
        self.flags = self.flags[:2]
        for flags, count in (((), 2), (("--inherit-env", "listed"), 0)):
            code, out, err = self.run_job(*flags, "-s", "0", "--no-coordinator", "-w", "2", "--", "env")
            self.assertEqual((code, err), (0, ""))
            self.assertEqual(out.count(f"{name}="), count)

    def test_a_job_of_libpsrt(self):
        code, out, err = self.run_job("-s", "2", "-w", "2", "--", str(BIN / "hello"))
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.count("weight[42] = 42.00"), 2)

    def test_the_code_of_the_task_that_failed(self):
        code, _, err = self.run_job("-s", "0", "--no-coordinator", "-w", "4", "--", "sh", "-c",
                                    "[ $RANK = 2 ] && exit 3; sleep 100")
        self.assertEqual(code, 3, err)
        self.assertRegex(err, r"worker:2 \(pid \d+\) on n[01] exited with code 3")

    def test_sbatch_of_a_rendered_script(self):
        script = subprocess.run([BIN / "psrt-launch", "render", "slurm", "--set", "name=rendered", "--timeout", "1m", "-s",
                                 "1", "-w", "2", "--", BIN / "hello"], stdout=subprocess.PIPE, check=True).stdout
        path = self.cluster.dir + "/job.sh"
        pathlib.Path(path).write_bytes(script)
        out = self.cluster.call("sbatch", "--wait", f"--output={self.cluster.dir}/job.txt", path)
        text = pathlib.Path(self.cluster.dir + "/job.txt").read_text()
        self.assertEqual(text.count("weight[42] = 42.00"), 2, out + text)
        self.assertIn("Submitted batch job", out)

    def read_until(self, p, words):
        for line in p.stdout:
            words.discard(line.split()[-1])
            if not words:
                return
        self.fail(f"{words} did not come: {p.stderr.read()}")

    def test_scancel_ends_all(self):
        p = self.start("-s", "0", "--no-coordinator", "-w", "4", "--", "sh", "-c",
                       "trap '' TERM; echo up$RANK; while :; do sleep 1; done")
        self.read_until(p, {f"up{r}" for r in range(4)})
        self.cluster.call("scancel", "--user=root")
        p.communicate(timeout=SOON)
        self.assertNotEqual(p.returncode, 0)
        self.until(lambda: not processes(self.mark), "processes outlive scancel")

    def test_a_lost_node(self):
        p = self.start("-s", "0", "--no-coordinator", "-w", "4", "--", "sh", "-c", "echo up$RANK; exec sleep 1000")
        self.read_until(p, {f"up{r}" for r in range(4)})
        self.cluster.kill_node("n1")
        try:
            _, err = p.communicate(timeout=2 * SOON)
            self.assertNotEqual(p.returncode, 0)
            self.assertRegex(err, r"n1\b")
            self.assertIn("lost", err)
        finally:
            self.cluster.start_node("n1")
            self.cluster.call("scontrol", "update", "nodename=n1", "state=resume")
            self.cluster._until_idle()

    def test_no_allocation(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        r = subprocess.run([BIN / "psrt-launch", *self.flags, "--", "t"], env=env, stderr=subprocess.PIPE, text=True,
                           timeout=SOON)
        self.assertEqual(r.returncode, 2)
        self.assertIn("salloc", r.stderr)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    raise SystemExit(77 if result.skipped and not result.failures and not result.errors else not result.wasSuccessful())
