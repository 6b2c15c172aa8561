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
        g = self.group("--set", "name=net", "-s", "2", "-w", "3", "--", "./trainer", "--lr", "0.1")
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
        g = self.group("--set", "name=net", "--dns-domain", "mesos.corp", "--base-port", "4000", "-s", "2", "-w", "2",
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
        g = self.group("--set", "name=net", "-w", "2", "--", "true")
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
        out = subprocess.run(["/bin/sh", "-c", f"set -- {app['cmd'].removeprefix('exec ')}; shift 4; printf '%s\\0' \"$@\""],
                             stdout=subprocess.PIPE, check=True).stdout.decode()
        return out.split("\0")[:-1]

    def command(self, app):
        return app["args"] if "args" in app else ["/bin/sh", "-c", app["cmd"]]

    def start(self, app, **env):
        return subprocess.Popen(self.command(app), env={**os.environ, **app["env"], **env}, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, start_new_session=True)

    def end(self, p):
        """As Mesos does: SIGTERM to every process of the task. What it still writes."""
        os.killpg(p.pid, signal.SIGTERM)
        return p.communicate(timeout=20)[0]

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
            self.end(p)

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
        self.end(p)
        self.assertEqual(p.returncode, -signal.SIGTERM)

    def test_sigterm_reaches_the_command(self):
        p = self.start(self.one("sh", "-c", "trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.1; done"))
        self.assertEqual(p.stdout.readline(), "ready\n")
        self.assertEqual(self.end(p), "saved\n")
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
            self.end(p)

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
            "volumes": [{"source": "/data", "target": "/mnt/data", "read_only": True},
                        {"source": "/out", "target": "/out"}]}})
        for a in self.group("--config", f)["apps"]:
            if not a["id"].startswith("worker"):
                continue
            self.assertEqual([a["cpus"], a["mem"], a["gpus"]], [2.5, 4096, 2])
            self.assertEqual(a["constraints"], [["hostname", "UNIQUE"], ["rack", "LIKE", "r[12]"]])
            self.assertEqual(a["container"]["docker"], {"image": "i"})
            self.assertEqual([v for v in a["container"]["volumes"] if "hostPath" in v],
                             [{"containerPath": "/mnt/data", "hostPath": "/data", "mode": "RO"},
                              {"containerPath": "/out", "hostPath": "/out", "mode": "RW"}])

    def test_flags_behind_the_command_are_its_own(self):
        app, = self.group("--no-coordinator", "-s", "0", "--image", "mine", "train", "--image", "3", "--jobset")["apps"]
        self.assertEqual(self.words(app), ["train", "--image", "3", "--jobset"])
        self.assertEqual(app["container"]["docker"], {"image": "mine"})

    def test_help(self):
        for words in (["--help"], ["-h"], ["k8s", "--help"]):
            text = render(*words).partition("OPTIONS OF RENDER\n")[2]
            for flag in ("--image", "--base-port", "--secret", "--dns-domain", "--marathon-url", "--namespace",
                         "--jobset"):
                self.assertRegex(text, rf"(?m)^ +{flag}\b")
        self.assertIn("render: write marathon, k8s or slurm behind it", render(ok=False))

    def test_bad_names(self):
        self.assertIn("Upper", render("marathon", "--set", "name=Upper", "--", "t", ok=False))
        self.assertIn("63", render("marathon", "--set", "name=" + "n" * 60, "--", "t", ok=False))
        self.assertIn("--base-port", render("marathon", "--base-port", "65534", "-w", "4", "--", "t", ok=False))


def expand(text, variables):
    """As Kubernetes expands $(NAME) in arguments and environment; $$ is a plain $."""
    return re.sub(r"\$(\$)|\$\(([^)]*)\)",
                  lambda m: "$" if m.group(1) else variables.get(m.group(2), m.group(0)), text)


class Kubernetes(unittest.TestCase):

    def documents(self, *args, **kw):
        docs = list(yaml.safe_load_all(render("k8s", *args, **kw)))
        return {(d["kind"], d["metadata"]["name"]): d for d in docs}

    def rendered(self, *flags, **job):
        return self.documents("--config", job_file(self, **job), *flags)

    def pod(self, docs, name):
        return docs["Job", name]["spec"]["template"]["spec"]

    def test_what_schemas_do_not_see(self):
        docs = self.rendered(name="net", roles=roles())
        self.assertEqual(set(docs), {("Service", "net"), ("Secret", "net-key"), ("Job", "net-coordinator"),
                                     ("Job", "net-server"), ("Job", "net-worker")})
        service = docs["Service", "net"]["spec"]
        self.assertEqual(service["clusterIP"], "None")
        self.assertIs(service["publishNotReadyAddresses"], True)
        for (kind, name), d in docs.items():
            if kind != "Job":
                continue
            template = d["spec"]["template"]
            self.assertLessEqual(service["selector"].items(), template["metadata"]["labels"].items())
            self.assertEqual(template["spec"]["subdomain"], "net")
            self.assertEqual(d["spec"]["completionMode"], "Indexed")
            self.assertEqual(d["spec"]["completions"], d["spec"]["parallelism"])
            container, = template["spec"]["containers"]
            volumes = {v["name"]: v for v in template["spec"]["volumes"]}
            for m in container["volumeMounts"]:
                self.assertIn(m["name"], volumes)
            secrets = [v["secret"] for v in volumes.values() if "secret" in v]
            self.assertEqual([s["secretName"] for s in secrets], ["net-key"])
            self.assertEqual(secrets[0]["defaultMode"], 0o400)
            env = {e["name"]: e.get("value") for e in container["env"]}
            self.assertEqual(env["PSRT_KEY_FILE"], "/psrt/key")
            self.assertIn("/psrt", [m["mountPath"] for m in container["volumeMounts"]])
            ports = [str(p["containerPort"]) for p in container["ports"]]
            if name != "net-coordinator":
                self.assertEqual(env["PSRT_PORT"], ports[0])
            self.assertEqual(env["PSRT_COORDINATOR"], "tcp://net-coordinator-0.net:2222")
        key = docs["Secret", "net-key"]["stringData"]["key"]
        self.assertRegex(key, r"\Apsrt-job-key 1\nnonce=[0-9a-f]{32}\nsecret=[0-9a-f]{64}\n\Z")
        self.assertNotEqual(key, self.rendered(name="net", roles=roles())["Secret", "net-key"]["stringData"]["key"])

    def test_a_secret_that_exists(self):
        docs = self.rendered("--secret", "mine", name="net", roles=roles())
        self.assertNotIn("Secret", [kind for kind, _ in docs])
        self.assertEqual([v["secret"]["secretName"] for v in self.pod(docs, "net-worker")["volumes"]], ["mine"])

    def run_task(self, pod, index):
        """Runs the container of a pod as the index'th; its argv and environment."""
        container, = pod["containers"]
        env = {"PATH": os.environ["PATH"]}
        for e in container["env"]:
            env[e["name"]] = str(index) if "valueFrom" in e else expand(e["value"], env)
        args = [expand(a, env) for a in container["args"]]
        out = subprocess.run(args, env=env, stdout=subprocess.PIPE, check=True, text=True, timeout=60).stdout
        return json.loads(out)

    def test_words_and_environment_arrive_exactly(self):
        worker = {"count": 3, "image": "i", "env": {"dotted.name": "x", "NASTY": "|".join(NASTY)},
                  "argv": SHOW + NASTY + ["{task_index}", "{rank}", "{host}", "{port}", "{worker_hosts}"]}
        docs = self.rendered(name="j", coordinator=False, roles={"worker": worker})
        hosts = [f"j-worker-{i}.j:2222" for i in range(3)]
        for i in range(3):
            argv, env = self.run_task(self.pod(docs, "j-worker"), i)
            self.assertEqual(argv, NASTY + [str(i), str(i), f"j-worker-{i}.j", "2222", ",".join(hosts)])
            self.assertEqual(env["NASTY"], "|".join(NASTY))
            self.assertEqual([env[n] for n in ("RANK", "NODE_RANK", "GROUP_RANK", "LOCAL_RANK")],
                             [str(i), str(i), str(i), "0"])
            self.assertEqual(json.loads(env["TF_CONFIG"]),
                             {"cluster": {"worker": hosts}, "task": {"type": "worker", "index": i}})

    def test_ranks_behind_a_chief(self):
        docs = self.rendered(name="j", coordinator=False, roles={
            "chief": {"count": 1, "image": "i", "argv": SHOW}, "worker": {"count": 2, "image": "i", "argv": SHOW}})
        _, env = self.run_task(self.pod(docs, "j-chief"), 0)
        self.assertEqual([env["RANK"], env["WORLD_SIZE"]], ["0", "3"])
        for i in range(2):
            _, env = self.run_task(self.pod(docs, "j-worker"), i)
            self.assertEqual([env["RANK"], env["NODE_RANK"], env["WORLD_SIZE"]], [str(i + 1), str(i + 1), "3"])
            self.assertEqual(json.loads(env["TF_CONFIG"])["task"], {"type": "worker", "index": i})
        f = job_file(self, name="j", coordinator=False, roles={
            "chief": {"count": 1, "image": "i", "argv": ["t"]},
            "worker": {"count": 2, "image": "i", "argv": ["t", "{rank}"]}})
        self.assertIn("{task_index}", render("k8s", "--config", f, ok=False))

    def test_resources_retries_deadline(self):
        docs = self.rendered("--timeout", "1h", name="j", coordinator=False, roles={"worker": {
            "count": 2, "argv": ["t"], "image": "i", "cpus": 1.5, "mem": 2048, "gpus": 1, "directory": "/w",
            "volumes": [{"source": "/data", "target": "/mnt", "read_only": True}],
            "restart": {"when": "on-failure", "limit": 3, "codes": [75, 137]}}})
        spec = docs["Job", "j-worker"]["spec"]
        container, = spec["template"]["spec"]["containers"]
        amounts = {"cpu": "1500m", "memory": "2048Mi", "nvidia.com/gpu": "1"}
        self.assertEqual(container["resources"], {"requests": amounts, "limits": amounts})
        self.assertEqual(container["workingDir"], "/w")
        self.assertEqual(spec["activeDeadlineSeconds"], 3600)
        self.assertEqual([spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]], [3, 0])
        ignored, fatal = spec["podFailurePolicy"]["rules"]
        self.assertEqual(ignored["action"], "Ignore")
        self.assertEqual(fatal["onExitCodes"], {"operator": "NotIn", "values": [75, 137]})
        self.assertEqual([v["hostPath"] for v in spec["template"]["spec"]["volumes"]], [{"path": "/data"}])

    def foreign(self):
        return {"ps": {"count": 2, "image": "tf", "argv": ["ps"]}, "worker": {"count": 2, "image": "tf", "argv": ["w"]}}

    def test_servers_end_with_the_workers(self):
        docs = self.rendered(name="j", coordinator=False, roles=self.foreign())
        self.assertEqual(docs["RoleBinding", "j-end"]["subjects"], [{"kind": "ServiceAccount", "name": "j-end"}])
        self.assertEqual(docs["RoleBinding", "j-end"]["roleRef"]["name"], docs["Role", "j-end"]["metadata"]["name"])
        self.assertEqual(docs["Role", "j-end"]["rules"],
                         [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "delete"]}])
        pod = self.pod(docs, "j-end")
        self.assertEqual(pod["serviceAccountName"], "j-end")
        for end, expect, code in (("Complete", ["j-ps"], 0), ("Failed", ["j-worker", "j-ps"], 1)):
            with tempfile.TemporaryDirectory() as d:
                self.assertEqual(self.run_end(pod, d, end), (expect, code))

    def run_end(self, pod, d, end):
        """The Job that ends the others, against an API whose worker Job ends at the third question."""
        with open(d + "/curl", "w") as f:
            f.write(f"""#!/bin/sh
cat >/dev/null
for a; do url=$a; done
case "$*" in
*DELETE*) url=${{url%\\?*}}; echo "${{url##*/}}" >>{d}/deleted ;;
*) echo x >>{d}/asked
   [ $(wc -l <{d}/asked) -lt 3 ] || echo '{{"status": {{"conditions": [{{ "type": "{end}", "status": "True" }}]}}}}' ;;
esac
""")
        with open(d + "/sleep", "w") as f:
            f.write("#!/bin/sh\n")
        for name in ("curl", "sleep"):
            os.chmod(f"{d}/{name}", 0o755)
        container, = pod["containers"]
        env = {e["name"]: e.get("value", "ns") for e in container["env"]}
        env["PATH"] = d + ":" + os.environ["PATH"]
        r = subprocess.run(container["command"], env=env, stderr=subprocess.DEVNULL, timeout=60)
        with open(d + "/deleted") as f:
            return f.read().split(), r.returncode

    def test_jobset(self):
        docs = self.rendered("--jobset", "--namespace", "ml", name="j", coordinator=False, roles=self.foreign())
        spec = docs["JobSet", "j"]["spec"]
        self.assertEqual(set(docs), {("JobSet", "j")})
        self.assertEqual(docs["JobSet", "j"]["metadata"]["namespace"], "ml")
        self.assertEqual(spec["successPolicy"], {"operator": "All", "targetReplicatedJobs": ["worker"]})
        self.assertEqual({r["name"]: r["replicas"] for r in spec["replicatedJobs"]}, {"ps": 1, "worker": 1})
        for r in spec["replicatedJobs"]:
            env = {e["name"]: e.get("value") for e in
                   r["template"]["spec"]["template"]["spec"]["containers"][0]["env"]}
            self.assertIn(f"{spec['network']['subdomain']}", env["TFMESOS_PS_HOSTS"])
            self.assertEqual(env["TFMESOS_PS_HOSTS"], "j-ps-0-0.j:2222,j-ps-0-1.j:2222")

    def test_what_cannot_be(self):
        f = job_file(self, name="j", roles={"worker": {"count": 1, "argv": ["t"]}})
        self.assertIn("image", render("k8s", "--config", f, ok=False))
        f = job_file(self, name="j", roles={"worker": {"image": "i", "argv": ["t", "{node_rank}"]}})
        self.assertIn("{rank}", render("k8s", "--config", f, ok=False))
        f = job_file(self, name="j" * 60, roles=roles())
        self.assertIn("63", render("k8s", "--config", f, ok=False))
        self.assertIn("did you mean --image?", render("k8s", "--imgae", "x", "--", "t", ok=False))
        self.assertIn("did you mean k8s", render("k8", "-w", "1", "--", "t", ok=False))
        self.assertIn("--base-port", render("k8s", "--base-port", "0", "--", "t", ok=False))


class Slurm(unittest.TestCase):

    def options(self, script):
        return dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.M))

    def test_room(self):
        out = render("slurm", "-s", "2", "-w", "3", "--", "t")
        self.assertEqual(self.options(out), {"job-name": "psrt-job", "ntasks": "5", "cpus-per-task": "1",
                                             "signal": "B:TERM@60"})
        out = render("slurm", "--set", "name=net", "--set", "roles.worker.cpus=2.5", "--set", "roles.worker.mem=1000",
                     "--set", "roles.worker.gpus=1", "--timeout", "90m", "-s", "0", "-w", "4", "--", "t")
        self.assertEqual(self.options(out), {
            "job-name": "net", "ntasks": "4", "cpus-per-task": "3", "mem-per-cpu": "334M", "gpus-per-task": "1",
            "time": "92", "signal": "B:TERM@60"})

    def test_flags_of_others(self):
        self.assertIn("--image is for marathon and k8s", render("slurm", "--image", "i", "--", "t", ok=False))

    def test_it_starts_the_same_description(self):
        words = ["-w", "2", "-s", "0", "--no-coordinator", "--", "t"] + NASTY
        with tempfile.TemporaryDirectory() as d:
            with open(d + "/psrt-launch", "w") as f:
                f.write('#!/bin/sh\nprintf "%s\\0" "$@"\n')
            os.chmod(d + "/psrt-launch", 0o755)
            r = subprocess.run(["bash"], input=render("slurm", *words).encode(), stdout=subprocess.PIPE, check=True,
                               env={**os.environ, "PATH": d + ":" + os.environ["PATH"]})
        self.assertEqual(r.stdout.decode().split("\0")[:-1], ["run", "--backend", "slurm"] + words)


if __name__ == "__main__":
    unittest.main()
