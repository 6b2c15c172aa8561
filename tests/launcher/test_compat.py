# SPDX-License-Identifier: Apache-2.0
"""Lines that were written for tfrun and psd_run."""
import json
import os
import pathlib
import re
import shlex
import signal

from launchtest import LaunchTest, main

SHOW = 'echo $TFMESOS_JOB_NAME:$TFMESOS_TASK_INDEX'


class Compat(LaunchTest):

    def setUp(self):
        super().setUp()
        for name in ("MESOS_MASTER", "DOCKER_IMAGE"):
            self.env.pop(name, None)
        self.work = self.root / "work"
        self.work.mkdir()

    def file(self, name, content):
        path = self.root / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def refused(self, expected, *args, **kwargs):
        code, out, err = self.launch(*args, cwd=self.work, **kwargs)
        self.assertEqual((code, out), (2, ""), err)
        self.assertIn(expected, err)
        self.assert_nothing_left(at_once=True)


class Tfrun(Compat):

    def tfrun(self, *args, **kwargs):
        code, out, err = self.launch("tfrun", *args, **kwargs)
        self.assertEqual(code, 0, err)
        self.assert_nothing_left()
        return out, err

    def test_a_line_of_tfrun(self):
        # The words are joined and a shell has them; ps run the same and never end by themselves.
        out, err = self.tfrun("-w", "2", "-s", "1", "--worker-logs", "*", "--", "echo",
                            "{job_name}:{task_index}", "ps={ps_hosts}", "w={worker_hosts}", "'a",
                            " b'", "${{TFMESOS_DISTRIBUTED}}", "{{x}};", "touch",
                            f"{self.work}/{{job_name}};", "[ {job_name} = worker ] ||",
                            "exec sleep 1000; until", f"[ -e {self.work}/ps ];", "do sleep 0.01;",
                            "done")
        self.assertEqual(err, "")  # to stop the ps is nothing to speak of
        lines = sorted(out.splitlines())
        self.assertEqual([line.split("]")[0] for line in lines], ["[ps:0", "[worker:0", "[worker:1"])
        one = r"127\.0\.0\.1:\d+"
        for line in lines:
            name = line[1:line.index("]")]
            self.assertRegex(
                line, rf"^\[{name}\] {name} ps={one} w={one},{one} a  b 1 \{{x\}}$")

    def test_environment(self):
        out, _ = self.tfrun("-w1", "-s", "1", "--", "env; [ {job_name} = worker ] || sleep 1000")
        env = dict(re.findall(r"^\[worker:0\] (\w+)=(.*)$", out, re.M))
        self.assertRegex(env["TFMESOS_PS_HOSTS"], r"^127\.0\.0\.1:\d+$")
        self.assertRegex(env["TFMESOS_WORKER_HOSTS"], r"^127\.0\.0\.1:\d+$")
        self.assertEqual((env["TFMESOS_JOB_NAME"], env["TFMESOS_TASK_INDEX"]), ("worker", "0"))
        self.assertEqual((env["TFMESOS_DISTRIBUTED"], env["PYTHONUNBUFFERED"]), ("1", "1"))

    def test_worker_logs(self):
        wait = "[ {job_name} = worker ] || sleep 1000"
        for flags, shown in (((), ["worker:0"]), (("--worker-logs", "1,2"), ["worker:1", "worker:2"]),
                             (("--worker-logs=*",), ["worker:0", "worker:1", "worker:2"])):
            out, _ = self.tfrun("-w", "3", "-s", "1", *flags, "--", f"{wait}; {SHOW}")
            self.assertEqual(sorted(re.findall(r"^\[(worker:\d)\]", out, re.M)), shown)

    def test_initializer_and_finalizer(self):
        mark = self.root / "marks"
        extra = self.file("extra.json", json.dumps({
            "initializer": f"echo {{first}} >>{mark}",
            "finalizer": f"echo 'last '$((1+1)) >>{mark}"
        }))
        code, _, err = self.launch("tfrun", "-w", "1", "-s", "0", "-e", extra, "--",
                                   f"echo middle >>{mark}; exit 5")
        self.assertEqual(code, 5, err)
        self.assertEqual(mark.read_text(encoding="utf-8"), "{first}\nmiddle\nlast 2\n")

    def test_initializer_that_fails(self):
        mark = self.root / "marks"
        extra = self.file("extra.json", json.dumps({"initializer": "exit 7"}))
        code, _, err = self.launch("tfrun", "-w", "1", "-s", "0", "-e", extra, "--",
                                   f"echo ran >>{mark}")
        self.assertEqual(code, 7, err)
        self.assertFalse(mark.exists())

    def test_finalizer_when_the_job_is_stopped(self):
        mark = self.root / "marks"
        extra = self.file("extra.json", json.dumps({"finalizer": f"echo last >>{mark}"}))
        proc = self.start("tfrun", "-w", "1", "-s", "0", "-e", extra, "--",
                          "echo ready; exec sleep 1000")
        self.read_until(proc, "ready")
        proc.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(proc)[0], 143)
        self.assertEqual(mark.read_text(encoding="utf-8"), "last\n")
        self.assert_nothing_left()

    def test_all_flags(self):
        code, out, err = self.launch("tfrun", "-w", "1", "-s", "1", "-n", "it", "-C", "mesos",
                                     "-f", "-Cw", "0.5", "-Gw", "0", "-Mw", "100.5", "-Cs", "1",
                                     "--server-gpus", "0", "-Ms", "10", "-V", "/a:/b:c", "-r",
                                     "prod", "-v", "--dry-run", "--", "cmd",
                                     env={"DOCKER_IMAGE": "im"})
        self.assertEqual(code, 0, err)
        for line in err.splitlines():  # no containers here
            self.assertRegex(line, "^psrt-launch: role (ps|worker): image and volumes have no effect")
        self.assertIn("/bin/sh -c cmd", out)

    def test_refused(self):
        base = ("tfrun", "-w", "1", "-s", "1")
        self.refused("Mesos master zk://x", *base, "-m", "zk://x", "--", "x")
        self.refused("without MESOS_MASTER in", *base, "--", "x", env={"MESOS_MASTER": "m:5050"})
        self.refused("needs -w N and -s N", "tfrun", "-w", "1", "--", "x")
        self.refused("no command given", *base)
        self.refused("-w x: not a number", "tfrun", "-w", "x", "-s", "1", "--", "x")
        self.refused("-Cw x: not a number", *base, "-Cw", "x", "--", "x")
        self.refused("-C rkt: not one of", *base, "-C", "rkt", "--", "x")
        self.refused("-V x: not SRC:DST", *base, "-V", "x", "--", "x")
        self.refused("--worker-logs x: not such as", *base, "--worker-logs", "x", "--", "x")
        self.refused("is not one of tfrun's", *base, "--nope", "--", "x")
        for bad in ("{", "}", "{print $1}", "{task_index:02d}", "{}", "{0}"):
            self.refused("is no placeholder", *base, "--", "awk", bad)

    def test_extra_config_is_read_strictly(self):
        base = ("tfrun", "-w", "1", "-s", "1", "-e")
        self.refused("did you mean initializer?", *base,
                     self.file("e", '{"initialiser": "x"}'), "--", "x")
        self.refused("finalizer", *base, self.file("e", '{"finalizer": 3}'), "--", "x")
        self.refused("e:1:", *base, self.file("e", ""), "--", "x")
        self.refused("No such file", *base, str(self.root / "none"), "--", "x")


class PsdRun(Compat):

    def config(self, **keys):
        keys = {
            "worker_nodes": ["localhost"],
            "server_nodes": ["localhost"],
            "pem_file": "/some.pem",
            **keys
        }
        return self.file("config.json", json.dumps({k: v for k, v in keys.items() if v is not None}))

    def test_a_line_of_psd_run(self):
        env = {"FAKE_SERVER": "echo serving; exec sleep 1000"}
        code, out, err = self.launch("-c", self.config(), "--grace", "300ms", "-o", "logs", "echo it \"$0\" '*'",
                                     cwd=self.work, env=env)
        self.assertEqual(code, 0, err)
        self.assertRegex(
            out, r"(?m)^\[worker:0\] it /bin/sh \* --distributed "
            r"--master_address tcp://127\.0\.0\.1:\d+ --client_id 0$")
        log = (self.work / "poseidon_run.log").read_text(encoding="utf-8")
        self.assertRegex(log, r"(?m)^worker:0 started on \S+, pid \d+$")
        self.assertRegex(log, r"(?m)^worker:0 .* exited with code 0")
        logs = list((self.work / "logs").iterdir())
        self.assertEqual(len(logs), 1)
        self.assertRegex(logs[0].name, r"^poseidon_log_\d{8}_\d{6}$")
        names = {p.name for p in logs[0].iterdir()}
        self.assertLessEqual({"worker-0.0.stdout", "server-0.0.stdout"}, names)
        self.assertEqual((logs[0] / "server-0.0.stdout").read_text(encoding="utf-8"), "serving\n")
        self.assert_nothing_left()

    def test_the_log_says_why(self):
        code, _, err = self.launch("-c", self.config(), "exit 4; :", cwd=self.work)
        self.assertEqual(code, 4, err)
        log = (self.work / "poseidon_run.log").read_text(encoding="utf-8")
        self.assertIn("worker:0", log)
        self.assertIn("exited with code 4", log)
        self.assertEqual(len(list(self.work.glob("poseidon_log_*"))), 1)

    def test_long_options(self):
        code, _, err = self.launch(f"--cluster_config={self.config()}", "--grace", "0", "--out", "logs", "true",
                                   cwd=self.work)
        self.assertEqual(code, 0, err)
        self.assertEqual(len(list((self.work / "logs").glob("poseidon_log_*"))), 1)

    def test_virtualenv(self):
        venv = self.root / "venv" / "bin"
        venv.mkdir(parents=True)
        tool = venv / "python"
        tool.write_text("#!/bin/sh\necho mine $VIRTUAL_ENV\n", encoding="utf-8")
        tool.chmod(0o755)
        code, out, err = self.launch("-c", self.config(virtualenv=str(venv.parent)), "--grace",
                                     "300ms", "python", cwd=self.work)
        self.assertEqual(code, 0, err)
        self.assertIn(f"[worker:0] mine {venv.parent}\n", out)

    def test_nodes(self):
        config = self.config(worker_nodes=["b", "a"], server_nodes=["c", "a"], master_node="d",
                             username="me")
        code, out, err = self.launch("plan", "--json", "-c", config, "cmd", cwd=self.work)
        self.assertEqual(code, 0, err)
        where = {t["task"]: t["host"] for t in json.loads(out)["tasks"]}
        self.assertEqual({k: v for k, v in where.items() if k != "coordinator"},
                         {"worker:0": "b", "worker:1": "a", "server:0": where["server:0"],
                          "server:1": where["server:1"]})
        self.assertEqual({where["server:0"], where["server:1"]}, {"a", "c"})
        self.assertEqual(where["coordinator"], "d")
        self.assertEqual(list(self.work.iterdir()), [])

    def test_configuration_is_read_strictly(self):
        cases = {
            '{"worker_nodes": ["a"], "ps_nodes": ["a"]}': "ps_nodes",
            '{"worker_nodes": "a", "server_nodes": []}': "worker_nodes",
            '{"worker_nodes": ["a", 1], "server_nodes": ["a"]}': "worker_nodes[1]",
            '{"worker_nodes": [], "server_nodes": ["a"]}': "worker_nodes: [] is not",
            '{"server_nodes": ["a"]}': "worker_nodes has no host",
            '{"worker_nodes": ["a", "a"], "server_nodes": ["a"]}': "a is twice in worker_nodes",
            '{"worker_nodes": ["a"], "server_nodes": ["a", "b", "a"]}': "a is twice in server_nodes",
            '{"worker_nodes": ["a"], "worker_nodes": ["b"]}': "duplicate",
            '{"worker_nodes": ["a b"], "server_nodes": ["a"]}': "a b",
            '{"worker_nodes": ["a"], "server_nodes": ["a"], "username": 1.5}': "username",
            '{"worker_nodes": ["a"], "server_nodes": ["a"], "username": null}': "username",
            '{"worker_nodes": ["a\\u0000b"]}': "config.json:1:",
            '{"worker_nodes": ["' + "a" * (1 << 20) + '"]}': "no name of a host",
            "": "config.json:1:",
            "null": "config.json",
            "[]": "config.json",
            '{"worker_nodes": ["a"]} x': "config.json:1:",
        }
        for text, expected in cases.items():
            with self.subTest(text[:60]):
                self.refused(expected, "-c", self.file("config.json", text), "cmd")
        self.refused("one word", "-c", self.config(), "two", "words")
        self.refused("one word", "-c", self.config())
        self.refused("only beside a configuration of psd_run", "-o", "logs", "--", "x")


class Page(Compat):
    """docs/coming-from.md: what it says is a line of psrt-launch is one."""
    page = pathlib.Path(__file__).parents[2] / "docs" / "coming-from.md"

    def test_every_line(self):
        nodes = {"worker_nodes": ["a"], "server_nodes": ["b"]}
        (self.work / "config.json").write_text(json.dumps(nodes), encoding="utf-8")
        lines = re.findall(r"^    psrt-launch (.*)$", self.page.read_text(encoding="utf-8"), re.M)
        self.assertGreaterEqual(len(lines), 9)
        for line in lines:
            words = shlex.split(line)
            if words[0] == "tfrun":
                words.insert(1, "--dry-run")
            elif words[0] != "render":
                words.insert(0, "plan")
            with self.subTest(line):
                code, out, err = self.launch(*words, cwd=self.work)
                self.assertEqual((code, err), (0, ""))
                self.assertTrue(out)


class TensorBoard(Compat):

    def tool(self, script):
        folder = self.root / "bin"
        folder.mkdir(exist_ok=True)
        tool = folder / "tensorboard"
        tool.write_text("#!/bin/sh\n" + script, encoding="utf-8")
        tool.chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def test_runs_beside_the_training_and_is_stopped(self):
        env = self.tool('echo "$@"; touch "$2/started"; exec sleep 1000')
        wait = f"until [ -e {self.work}/started ]; do sleep 0.01; done"
        code, out, err = self.launch("-s", "0", "--no-coordinator", "--grace", "1h",
                                     "--tensorboard", str(self.work), "--", "sh", "-c", wait, env=env)
        self.assertEqual(code, 0, err)
        port = re.search(r"TensorBoard is at http://127\.0\.0\.1:(\d+)/", err)[1]
        self.assertIn(f"[tensorboard:0] --logdir {self.work} --host 127.0.0.1 --port {port}\n", out)
        self.assert_nothing_left()

    def test_never_decides(self):
        env = self.tool("exit 2")
        code, _, err = self.launch("-s", "0", "--no-coordinator", "--tensorboard", "d", "--", "sh",
                                   "-c", "sleep 1", env=env)
        self.assertEqual(code, 0, err)
        self.assertIn("tensorboard:0", err)
        self.assertIn("goes on without it", err)

    def test_not_installed(self):
        code, out, err = self.launch("-s", "0", "--no-coordinator", "--tensorboard", "d", "--",
                                     "/bin/echo", "ran", env={"PATH": str(self.work)})
        self.assertEqual((code, out), (0, "[worker:0] ran\n"))
        self.assertIn("tensorboard is not in PATH; the job runs without it", err)


if __name__ == "__main__":
    main()
