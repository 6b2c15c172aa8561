# SPDX-License-Identifier: Apache-2.0
"""What psrt-launch renders for Kubernetes, against the published schemas (kubernetes-validate)."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from test_render import job_file, render, roles

VENV = pathlib.Path(os.environ["PSRT_TEST_VENVS"]) / "schemas"
VERSION = "1.33"


class Schemas(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        if not (VENV / "bin/python").exists():
            print(f"[SKIP] {VENV} is not there: run scripts/venv schemas", flush=True)
            raise unittest.SkipTest("no validator")

    def check(self, text, ok=True):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            f.write(text)
            f.flush()
            r = subprocess.run([VENV / "bin/kubernetes-validate", "-k", VERSION, "--strict", f.name],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        self.assertEqual(r.returncode == 0, ok, r.stdout)
        return r.stdout

    def job(self, *flags, **job):
        return render("k8s", *flags, "--config", job_file(self, **job))

    def test_jobs(self):
        out = self.check(self.job(name="net", roles=roles()))
        self.assertEqual(out.count("passed"), 5, out)
        self.check(self.job("--namespace", "ml", "--timeout", "1h", name="net", coordinator=False, roles={
            "ps": {"count": 2, "image": "tf", "argv": ["ps"]},
            "chief": {"count": 1, "image": "tf", "argv": ["c"]},
            "worker": {"count": 3, "image": "tf", "argv": ["w"], "cpus": 0.5, "mem": 100, "gpus": 1, "directory": "/w",
                       "volumes": [{"source": "/a", "target": "/b", "read_only": True}],
                       "restart": {"when": "on-failure", "limit": 2, "codes": [1]}}}))

    def test_the_validator_sees_a_mistake(self):
        text = self.job(name="net", roles=roles())
        self.check(text.replace("completionMode", "completionmode"), ok=False)

    # The schema of JobSet is not among them: its Jobs and Secret are checked as such.
    def test_jobset(self):
        import yaml
        text = self.job("--jobset", name="net", roles=roles())
        jobset = next(d for d in yaml.safe_load_all(text) if d["kind"] == "JobSet")
        for r in jobset["spec"]["replicatedJobs"]:
            self.check(yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": r["name"]},
                                       "spec": r["template"]["spec"]}))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    raise SystemExit(77 if result.skipped and not result.failures and not result.errors else not result.wasSuccessful())
