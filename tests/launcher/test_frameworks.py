# SPDX-License-Identifier: Apache-2.0
"""Programs of TensorFlow and PyTorch train on Fashion-MNIST under psrt-launch, which tells them who
they are in their own words and ends what never ends by itself: here, and on three hosts over ssh.
Argument: which."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

import launchtest
import sshrig

PROGRAMS = pathlib.Path(__file__).with_name("frameworks")
TENSORFLOW = pathlib.Path(os.environ["PSRT_TEST_VENVS"]) / "tensorflow" / "bin" / "python"
PYTORCH = pathlib.Path("/usr/bin/python3")
SKIP = 77
launchtest.DEADLINE = 180  # TensorFlow needs many seconds for its start alone
LEARNT = 0.7  # of ten classes; guessing gives 0.1


class Frameworks(launchtest.LaunchTest):

    def setUp(self):
        super().setUp()
        self.env.update({
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_ENABLE_ONEDNN_OPTS": "0",
            "CUDA_VISIBLE_DEVICES": "",
            # What are hosts here share the cores of one machine.
            "OMP_NUM_THREADS": "1",
            "TF_NUM_INTRAOP_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1"
        })

    def files_left(self):
        # TensorFlow's own, of processes that were killed.
        return [n for n in super().files_left() if not n.startswith("__autograph_generated_file")]

    def train(self, *args):
        """The accuracies that were printed; nothing of the job is left."""
        code, out, err = self.launch(*args)
        self.assertEqual(code, 0, out + err)
        self.assert_nothing_left()
        results = {
            name: float(value)
            for name, value in re.findall(r"^\[(\S+)\] .*accuracy ([\d.]+)", out, re.M)
        }
        for value in results.values():
            self.assertGreater(value, LEARNT, out)
        return results, out, err


class OverSsh(Frameworks):
    """The same on network namespaces with an sshd each."""
    hosts = ("alpha", "beta", "gamma")

    @classmethod
    def setUpClass(cls):
        try:
            cls.rig = sshrig.SshRig(cls.hosts, net=89)
        except sshrig.netns.Unavailable as e:
            raise unittest.SkipTest(str(e)) from e
        cls.addClassCleanup(cls.rig.close)
        cls.rig.wait_until_up()

    def setUp(self):
        super().setUp()
        self.env.update(self.rig.environment())

    def start(self, *args, **kwargs):
        # Left alone gloo listens on the address of the host's name, and all hosts here have one name.
        return super().start("-H",
                             ",".join(self.hosts),
                             "-x",
                             "GLOO_SOCKET_IFNAME=eth0",
                             *args,
                             before=self.rig.command([]),
                             **kwargs)

    def assert_nothing_left(self, at_once=False):
        super().assert_nothing_left(at_once)
        self.wait_for(lambda: not any(self.rig.processes(h) for h in self.hosts),
                      "processes are left on the hosts")


class TensorFlow(Frameworks):

    def test_parameter_server_strategy(self):
        # Only the chief ends, and so decides; workers and ps serve for ever.
        argv = [str(TENSORFLOW), str(PROGRAMS / "strategy.py")]
        roles = {"chief": 1, "worker": 2, "ps": 2}
        job = {
            "coordinator": False,
            "grace": "1s",
            "roles": {
                name: {
                    "count": count,
                    "argv": argv
                } for name, count in roles.items()
            }
        }
        file = self.root / "job.json"
        file.write_text(json.dumps(job), encoding="utf-8")
        results, out, _ = self.train("--config", str(file))
        self.assertEqual(list(results), ["chief:0"])
        self.assertIn("steps 400", out)
        self.assertIn("/job:ps/replica:0/task:0 /job:ps/replica:0/task:1", out)

    def test_addresses_in_flags(self):
        # Both workers end, the ps join for ever.
        results, _, _ = self.train("--no-coordinator", "-w", "2", "-s", "2", "--server-command",
                                   "same", "--", str(TENSORFLOW), str(PROGRAMS / "replica.py"),
                                   "--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}",
                                   "--job_name={job_name}", "--task_index={task_index}")
        self.assertEqual(sorted(results), ["worker:0", "worker:1"])


class TensorFlowOverSsh(OverSsh, TensorFlow):
    pass


class PyTorch(Frameworks):

    def test_data_parallel(self):
        results, out, _ = self.train("--no-coordinator", "-w", "3", "-s", "0", "--", str(PYTORCH),
                                     str(PROGRAMS / "ddp.py"))
        self.assertEqual(sorted(results), ["worker:0", "worker:1", "worker:2"])
        self.assertEqual(len(set(results.values())), 1, out)


class PyTorchOverSsh(OverSsh, PyTorch):
    pass


def missing(which):
    """Why these cannot run here; None: they can."""
    if which is TensorFlow and not TENSORFLOW.exists():
        return f"{TENSORFLOW} is not there: run scripts/venv tensorflow"
    if which is PyTorch and subprocess.run([PYTORCH, "-c", "import torch, numpy"],
                                           check=False,
                                           capture_output=True).returncode:
        return "python3-torch is not installed: run scripts/setup frameworks"
    data = pathlib.Path("/usr/share/datasets/fashion-mnist")
    return None if data.is_dir() else "dataset-fashion-mnist is not installed: run scripts/setup"


def main():
    which = {"tensorflow": TensorFlow, "pytorch": PyTorch}[sys.argv[1]]
    remote = {TensorFlow: TensorFlowOverSsh, PyTorch: PyTorchOverSsh}[which]
    reason = missing(which)
    if reason:
        print(f"[SKIP] {reason}", flush=True)
        return SKIP
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite([load(which), load(remote)]))
    for _, reason in result.skipped:
        print(f"[SKIP] over ssh: {reason}", flush=True)
    return not result.wasSuccessful()


if __name__ == "__main__":
    sys.exit(main())
