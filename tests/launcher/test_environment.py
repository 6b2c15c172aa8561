# SPDX-License-Identifier: Apache-2.0
"""What reaches a real program: its words, its environment to the byte, the addresses of others."""
import json
import os
import pathlib
import re
import stat
import sys

from launchtest import LaunchTest, main

# Writes arguments and environment, each ended by a NUL, beside one another.
SHOW = """
import os, sys
name = "-".join(["task", os.environ["PSRT_ROLE"], os.environ["PSRT_RANK"]])
with open(os.path.join(sys.argv[1], name + ".argv"), "wb") as f:
    f.write(b"".join(os.fsencode(a) + b"\\0" for a in sys.argv[2:]))
with open("/proc/self/environ", "rb") as e, open(os.path.join(sys.argv[1], name + ".env"), "wb") as f:
    f.write(e.read())
"""


class Contract(LaunchTest):

    def show(self, *flags, words=(), **kwargs):
        """Runs 2 workers and 2 servers; arguments and variables of each by its name."""
        code, _, err = self.launch("-w", "2", "-s", "2", "--server-command", "same", "--grace",
                                   "300ms", *flags, "--", sys.executable, "-Sc", SHOW,
                                   str(self.root), *words, **kwargs)
        self.assertEqual(code, 0, err)
        found = {}
        for role in ("worker", "server"):
            for index in range(2):
                name = self.root / f"task-{role}-{index}"
                argv = name.with_suffix(".argv").read_bytes().split(b"\0")[:-1]
                env = name.with_suffix(".env").read_bytes().split(b"\0")[:-1]
                found[f"{role}:{index}"] = argv, dict(e.split(b"=", 1) for e in env)
        return found

    def test_addresses(self):
        tasks = self.show(words=("{ps_hosts}", "{worker_hosts}", "{host}:{port}"))
        ps, workers = (tasks["worker:0"][0][i].decode().split(",") for i in (0, 1))
        self.assertEqual((len(ps), len(workers)), (2, 2))
        self.assertEqual(len(set(ps + workers)), 4)
        for address in ps + workers:
            self.assertRegex(address, r"^127\.0\.0\.1:[1-9]\d+$")
        for name, (argv, env) in tasks.items():
            role, index = name.split(":")
            kind = {"server": "ps", "worker": "worker"}[role]
            mine = {"ps": ps, "worker": workers}[kind][int(index)]
            self.assertEqual([a.decode() for a in argv],
                             [",".join(ps), ",".join(workers), mine])
            self.assertEqual(
                json.loads(env[b"TF_CONFIG"]), {
                    "cluster": {
                        "ps": ps,
                        "worker": workers
                    },
                    "task": {
                        "type": kind,
                        "index": int(index)
                    }
                })
            self.assertEqual(env[b"TFMESOS_PS_HOSTS"].decode(), ",".join(ps))
            self.assertEqual(b"MASTER_PORT" in env, role == "worker")
            if role == "worker":
                master = f"{env[b'MASTER_ADDR'].decode()}:{env[b'MASTER_PORT'].decode()}"
                self.assertEqual(master, workers[0])

    def test_a_task_may_bind_its_port(self):
        listen = ("import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); "
                  "print(s.getsockname()[1] == int(sys.argv[1]))")
        code, out, err = self.launch("-w", "8", "-s", "0", "--no-prefix", "--grace", "300ms", "--",
                                     sys.executable, "-Sc", listen, "{port}")
        self.assertEqual((code, out), (0, "True\n" * 8), err)

    def test_words_are_exact(self):
        words = [
            b"", b" ", b"a b", b"it's", b'"', b"$HOME", b"`x`", b"\\", b"new\nline", b"*", b"-x",
            b"--", b"{x}", b"{", b"${A}", b'{"a":{"b":1}}', b"{print $1}", b"\xff\xfe", b"%s%n",
            b"x" * 100000
        ]
        for argv, _ in self.show(words=words).values():
            self.assertEqual(argv, words)

    def test_environment_is_exact(self):
        # 600 KB and more, which no command line takes; names that a shell would drop.
        env = {f"LONG_{i}": "xyz\u20ac" * 20000 for i in range(6)}
        env.update({
            "dotted.name": "v",
            "QUOTES": "'\"\\`$(false)$HOME",
            "LINES": "a\n\nb\n",
            "EMPTY": "",
            "EQUAL": "a=b=",
            "BRACES": "{rank}"
        })
        env["BYTES"] = os.fsdecode(bytes(range(1, 256)))
        for _, got in self.show(env=env).values():
            for name, value in env.items():
                self.assertEqual(got[os.fsencode(name)], os.fsencode(value))

    def test_values_of_the_user(self):
        tasks = self.show("-x", "A.b=a\n'{job_name}' \"{task_index}\" {x}", "-x",
                          "TF_CONFIG={}", "-x", "WHERE={host}:{port}")
        for name, (_, env) in tasks.items():
            role, index = name.split(":")
            kind = {"server": "ps"}.get(role, role)
            self.assertEqual(env[b"A.b"].decode(), f"a\n'{kind}' \"{index}\" {{x}}")
            self.assertEqual(env[b"TF_CONFIG"], b"{}")
            self.assertRegex(env[b"WHERE"], rb"^127\.0\.0\.1:\d+$")

    def test_nothing_of_an_enclosing_job(self):
        outer = {"RANK": "77", "MASTER_PORT": "1", "TF_CONFIG": "{}", "TFMESOS_JOB_NAME": "x"}
        for name, (_, env) in self.show(env=outer).items():
            self.assertNotEqual(env.get(b"RANK"), b"77")
            self.assertNotEqual(env.get(b"MASTER_PORT"), b"1")
            self.assertNotEqual(env[b"TF_CONFIG"], b"{}")
            self.assertNotEqual(env[b"TFMESOS_JOB_NAME"], b"x")

    def test_the_command_is_looked_for_in_the_path_of_the_task(self):
        tool = self.root / "only-here"
        tool.write_text("#!/bin/sh\necho found\n", encoding="utf-8")
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
        code, out, err = self.launch("-s", "0", "--no-prefix", "--grace", "300ms", "-x",
                                     f"PATH={self.root}:/usr/bin:/bin", "--", "only-here")
        self.assertEqual((code, out), (0, "found\n"), err)

    def test_plan(self):
        code, out, err = self.launch("plan", "--json", "-w", "2", "-s", "1", "--", "train",
                                     "{rank}", "--workers={worker_hosts}")
        self.assertEqual(code, 0, err)
        workers = [t for t in json.loads(out)["tasks"] if t["role"] == "worker"]
        self.assertEqual([t["argv"] for t in workers],
                         [["train", r, "--workers=127.0.0.1:?,127.0.0.1:?"] for r in "01"])


DOCS = pathlib.Path(__file__).parents[2] / "docs" / "launcher.md"
SECRETS = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NVIDIA_API_KEY", "HF_TOKEN", "HOROVOD_SECRET_KEY", "PSRT_PASSWORD")


def documented():
    """Names and beginnings of names: the first indented block of the section."""
    text = DOCS.read_text(encoding="utf-8").split("### Environment\n", 1)[1]
    return re.search(r"(^    .*\n)+", text, re.M)[0].split()


class Inherited(LaunchTest):

    def plan(self, env, *flags):
        self.env = {"PATH": os.environ["PATH"], "PSRT_LAUNCH_PSRTD": self.env["PSRT_LAUNCH_PSRTD"], **env}
        code, out, err = self.launch("plan", "--json", "-s", "0", "--no-coordinator", *flags, "--", "t")
        self.assertEqual((code, err), (0, ""))
        return json.loads(out)

    def test_what_is_documented_is_listed(self):
        words = documented()
        self.assertGreater(len(words), 50)
        names = {w.replace("*", "x") for w in words} | {"PATH"}
        others = {*SECRETS, "xPATH", "PATHx", "LANGx", "xOMP_x", "OM", "HOME", "CUDA_VISIBLE_DEVICES", "RANK"}
        # A launcher that is built with a sanitizer reads its options itself.
        env = {name: "" if name.endswith("SAN_OPTIONS") else "v" for name in names | others if name != "PATH"}
        self.assertEqual(set(self.plan(env, "-H", "elsewhere")["inherited"]), names)

    def test_proxies_with_a_password_stay(self):
        env = {"http_proxy": "http://me:secret@gate:3128", "HTTPS_PROXY": "http://gate:3128", "no_proxy": "a,b"}
        self.assertEqual(set(self.plan(env, "-H", "elsewhere")["inherited"]), {"PATH", "HTTPS_PROXY", "no_proxy"})

    def test_defaults(self):
        env = {"OMP_X": "v", "DATA": "v", "HOME": "/h", **{name: "v" for name in SECRETS}}
        every = {"PATH", "OMP_X", "DATA", *SECRETS}
        for flags, want in (((), every), (("-H", "localhost"), every), (("--inherit-env", "auto"), every),
                            (("-H", "elsewhere"), {"PATH", "OMP_X"}), (("--inherit-env", "listed"), {"PATH", "OMP_X"}),
                            (("-H", "elsewhere", "--inherit-env", "all"), every),
                            (("-H", "elsewhere", "--inherit-env", "none"), set()), (("--inherit-env", "none"), set())):
            self.assertEqual(set(self.plan(env, *flags)["inherited"]), want, flags)

    def test_a_plan_shows_names_alone(self):
        _, out, _ = self.launch("plan", "-H", "elsewhere", "-s", "0", "--no-coordinator", "-x", "GITHUB_TOKEN", "--", "t",
                                env={"OMP_X": "sesame1", "GITHUB_TOKEN": "sesame2", "DATA": "sesame3"})
        self.assertRegex(out, r"\n    GITHUB_TOKEN=\(hidden\)\n")
        self.assertRegex(out.splitlines()[-1], r"^besides, of this environment \(listed\): .*\bOMP_X\b")
        self.assertNotIn("sesame", out)
        self.assertNotIn("DATA", out)

    def found(self, *flags, **env):
        code, out, err = self.launch("-s", "0", "--no-coordinator", "--no-prefix", *flags, "--", "env", env=env)
        self.assertEqual(code, 0, err)
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def test_on_this_machine(self):
        env = {"SECRET": "s", "NCCL_X": "n", "OMP_NUM_THREADS": "77", "HOME": "/nowhere"}
        got = self.found(**env)
        self.assertLessEqual(env.items(), got.items())
        got = self.found("--inherit-env", "listed", "-x", "DATA", DATA="d", **env)
        self.assertNotIn("SECRET", got)
        self.assertEqual([got[k] for k in ("NCCL_X", "OMP_NUM_THREADS", "HOME", "DATA")], ["n", "77", "/nowhere", "d"])

    def test_none(self):
        """What the launcher would leave to a variable that stays behind, it sets."""
        got = self.found("--inherit-env", "none", "-x", "NCCL_*", NCCL_X="n", OMP_NUM_THREADS="77", HOME="/nowhere",
                         PYTHONUNBUFFERED="")
        self.assertEqual((got["NCCL_X"], got["HOME"], got["PATH"]), ("n", "/nowhere", self.env["PATH"]))
        self.assertNotEqual(got["OMP_NUM_THREADS"], "77")
        self.assertEqual(got["PYTHONUNBUFFERED"], "1")
        self.assertNotIn("LAUNCHTEST_MARK", got)


if __name__ == "__main__":
    main()
