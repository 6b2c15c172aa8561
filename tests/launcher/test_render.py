# SPDX-License-Identifier: Apache-2.0
"""psrt-launch render: what it writes is read back, and its commands are run as the other system would."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest

import yaml

from launchtest import LAUNCHER

# Values that a careless writer of JSON or YAML changes, and words that a shell would.
NASTY = ["on", "1e3", "null", "a: b", "- x", "#c", "line1\nline2", "it's", '"quoted"', "$HOME", "$(date)", "$$(x)",
         "$$", "a$", "`id`", "back\\slash", "{other}", "", " ", "*", "ü€", "tab\t"]
SHOW = ["python3", "-c", "import json,os,sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"]


def render(*args, ok=True, stdin=None, env=None):
    r = subprocess.run([LAUNCHER, "render", *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                       input=stdin, timeout=60, env=env)
    if ok:
        assert r.returncode == 0, r.stderr
        assert r.stderr == "", r.stderr
        return r.stdout
    assert r.returncode == 2, (r.returncode, r.stderr)
    assert r.stdout == "", r.stdout
    return r.stderr


def job_file(test, **job):
    f = tempfile.NamedTemporaryFile("w", suffix=".json", delete=False)
    json.dump(job, f)
    f.close()
    test.addCleanup(os.unlink, f.name)
    return f.name


def roles(image="img", **more):
    r = {"server": {"count": 2, "image": image}, "worker": {"count": 3, "image": image, "argv": SHOW + NASTY}}
    r.update(more)
    return r


class Marathon(unittest.TestCase):
    # Keys of an app, from Marathon's documentation.
    APP = {"id", "cmd", "args", "cpus", "mem", "disk", "gpus", "instances", "constraints", "container", "networks",
           "portDefinitions", "requirePorts", "env", "secrets", "labels", "healthChecks", "upgradeStrategy",
           "taskKillGracePeriodSeconds", "dependencies"}

    def group(self, *args, **kw):
        return json.loads(render("marathon", *args, **kw))

    def test_a_group_is_valid(self):
        g = self.group("--job-name", "net", "-s", "2", "-w", "3", "--", "./trainer", "--lr", "0.1")
        self.assertEqual(set(g), {"id", "apps"})
        self.assertEqual(g["id"], "/net")
        self.assertEqual(sorted(a["id"] for a in g["apps"]),
                         ["coordinator", "server-0", "server-1", "worker-0", "worker-1", "worker-2"])
        ports = []
        for a in g["apps"]:
            self.assertLessEqual(set(a), self.APP)
            self.assertRegex(a["id"], r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
            self.assertEqual(("cmd" in a) + ("args" in a), 1)
            self.assertEqual(a["instances"], 1)
            self.assertEqual(a["networks"], [{"mode": "host"}])
            self.assertNotIn("network", a["container"])
            self.assertEqual(a["container"]["type"], "MESOS")
            self.assertIs(a["requirePorts"], True)
            ports += [p["port"] for p in a["portDefinitions"]]
            for volume in a["container"]["volumes"]:
                if "secret" in volume:
                    self.assertIn(volume["secret"], a["secrets"])
            for h in a["healthChecks"]:
                self.assertLess(h["portIndex"], len(a["portDefinitions"]))
            self.assertTrue(all(isinstance(v, str) for v in a["env"].values()))
        self.assertEqual(len(ports), len(set(ports)))

    def test_addresses_are_those_of_the_apps(self):
        g = self.group("--job-name", "net", "--dns-domain", "mesos.corp", "--base-port", "4000", "-s", "2", "-w", "2",
                       "--no-coordinator", "--server-command", "same", "--", "./t", "--ps={ps_hosts}",
                       "--workers={worker_hosts}", "{job_name}", "{task_index}", "{port}", "{other}")
        at = {f"{a['id']}-net.mesos.corp:{a['portDefinitions'][0]['port']}": a for a in g["apps"]}
        self.assertEqual(len(at), 4)
        for a in g["apps"]:
            self.assertNotIn("secrets", a)
            words = self.words(a)
            ps = [h for h in at if h.startswith("server-")]
            workers = [h for h in at if h.startswith("worker-")]
            kind, index = a["id"].split("-")
            self.assertEqual(words, ["./t", "--ps=" + ",".join(ps), "--workers=" + ",".join(workers),
                                     {"server": "ps"}.get(kind, kind), index,
                                     str(a["portDefinitions"][0]["port"]), "{other}"])
            cluster = json.loads(a["env"]["TF_CONFIG"])
            self.assertEqual(cluster["cluster"]["ps"], ps)
            self.assertEqual(cluster["task"]["index"], int(index))

    def test_a_coordinator_can_be_found(self):
        g = self.group("--job-name", "net", "-w", "2", "--", "true")
        apps = {a["id"]: a for a in g["apps"]}
        port = apps["coordinator"]["portDefinitions"][0]["port"]
        for a in apps.values():
            self.assertEqual(a["env"]["PSRT_COORDINATOR"], f"tcp://coordinator-net.marathon.mesos:{port}")
            self.assertNotIn("PSRT_JOB_DIR", a["env"])
            if a["id"] != "coordinator":
                self.assertEqual(a["env"]["PSRT_PORT"], str(a["portDefinitions"][0]["port"]))

    def words(self, app):
        """What the task's shell would start."""
        if "args" in app:
            self.assertEqual(app["args"][:2] + app["args"][3:4], ["/bin/sh", "-c", "sh"])
            return app["args"][4:]
        out = subprocess.run(["/bin/sh", "-c", f"set -- {app['cmd']}; shift 4; printf '%s\\0' \"$@\""],
                             stdout=subprocess.PIPE, check=True).stdout.decode()
        return out.split("\0")[:-1]

    def command(self, app):
        return app["args"] if "args" in app else ["/bin/sh", "-c", app["cmd"]]

    def start(self, app, **env):
        return subprocess.Popen(self.command(app), env={**os.environ, **app["env"], **env}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def test_words_and_environment_arrive_exactly(self):
        for image in (None, "img"):
            role = {"count": 1, "argv": SHOW + NASTY, "env": {"dotted.name": "x", "NASTY": "\n".join(NASTY)}}
            if image:
                role["image"] = image
            f = job_file(self, name="j", coordinator=False, roles={"worker": role})
            app, = self.group("--config", f)["apps"]
            self.assertEqual("args" in app, bool(image))
            p = self.start(app)
            argv, environ = json.loads(p.stdout.readline())
            self.assertEqual(argv, NASTY)
            self.assertEqual(environ["NASTY"], "\n".join(NASTY))
            p.terminate()
            p.communicate(timeout=20)

    def one(self, *command):
        f = job_file(self, name="j", coordinator=False, roles={"worker": {"count": 1, "argv": list(command)}})
        app, = self.group("--config", f)["apps"]
        return app

    def test_done_is_held_and_failure_is_told(self):
        p = self.start(self.one("sh", "-c", "exit 3"))
        p.communicate(timeout=20)
        self.assertEqual(p.returncode, 3)
        p = self.start(self.one("echo", "ready"))
        self.assertIn("held", p.stderr.readline())
        self.assertIsNone(p.poll())
        p.terminate()
        p.communicate(timeout=20)
        self.assertEqual(p.returncode, -signal.SIGTERM)

    def test_sigterm_reaches_the_command(self):
        p = self.start(self.one("sh", "-c", "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.1; done"))
        self.assertEqual(p.stdout.readline(), "ready\n")
        p.terminate()
        self.assertEqual(p.communicate(timeout=20)[0], "saved\n")
        self.assertEqual(p.returncode, 5)

    def test_the_key_is_taken_from_the_secret(self):
        f = job_file(self, name="j", roles={"worker": {"argv": ["sh", "-c", "stat -c %a $PSRT_KEY_FILE; cat $PSRT_KEY_FILE"]}})
        app = next(a for a in self.group("--config", f)["apps"] if a["id"] == "worker-0")
        with tempfile.TemporaryDirectory() as sandbox:
            os.mkdir(sandbox + "/job-key")
            with open(sandbox + "/job-key/key", "w") as k:
                k.write("the key\n")
            p = self.start(app, MESOS_SANDBOX=sandbox)
            self.assertEqual([p.stdout.readline(), p.stdout.readline()], ["600\n", "the key\n"])
            p.terminate()
            p.communicate(timeout=20)

    def test_the_end_of_the_job_deletes_the_group(self):
        f = job_file(self, name="j", roles=roles())
        for a in self.group("--config", f, "--marathon-url", "http://m:8080")["apps"]:
            text = " ".join(a["args"])
            self.assertEqual("DELETE" in text, a["id"] == "coordinator")
            if a["id"] == "coordinator":
                self.assertIn("http://m:8080/v2/groups/j?force=true", text)

    def test_resources_constraints_volumes(self):
        f = job_file(self, name="j", roles={"worker": {
            "count": 2, "argv": ["t"], "image": "i", "cpus": 2.5, "mem": 4096, "gpus": 2,
            "constraints": [["hostname", "UNIQUE"], ["rack", "LIKE", "r[12]"]],
            "volumes": ["/data:/mnt/data:ro", "/out:/out"]}})
        for a in self.group("--config", f)["apps"]:
            if not a["id"].startswith("worker"):
                continue
            self.assertEqual([a["cpus"], a["mem"], a["gpus"]], [2.5, 4096, 2])
            self.assertEqual(a["constraints"], [["hostname", "UNIQUE"], ["rack", "LIKE", "r[12]"]])
            self.assertEqual(a["container"]["docker"], {"image": "i"})
            self.assertEqual([v for v in a["container"]["volumes"] if "hostPath" in v],
                             [{"containerPath": "/mnt/data", "hostPath": "/data", "mode": "RO"},
                              {"containerPath": "/out", "hostPath": "/out", "mode": "RW"}])

    def test_bad_names(self):
        self.assertIn("Upper", render("marathon", "--job-name", "Upper", "--", "t", ok=False))
        self.assertIn("63", render("marathon", "--job-name", "n" * 60, "--", "t", ok=False))
        self.assertIn("--base-port", render("marathon", "--base-port", "65534", "-w", "4", "--", "t", ok=False))


if __name__ == "__main__":
    unittest.main()
