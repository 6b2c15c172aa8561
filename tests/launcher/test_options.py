# SPDX-License-Identifier: Apache-2.0
"""Flags, the plan, and what tasks find in their environment."""
import ctypes
import json
import os
import platform
import re
import resource

from launchtest import LaunchTest, main

SHOW_ENV = 'env | sed "s/^/@$PSRT_ROLE:$PSRT_RANK /"'


def no_memory_policy():
    """Why processes cannot say from which NUMA node they want memory; None: they can."""
    if not os.path.exists("/proc/self/numa_maps"):
        return "this kernel knows no NUMA nodes"
    number = {"x86_64": 238, "aarch64": 237}.get(platform.machine())  # set_mempolicy
    libc = ctypes.CDLL(None, use_errno=True)
    if number and libc.syscall(number, 0, None, 0):  # to what it is
        return f"set_mempolicy: {os.strerror(ctypes.get_errno())}"
    return None


class OptionsTest(LaunchTest):

    def assert_usage(self, expected, *args):
        code, out, err = self.launch(*args)
        self.assertEqual((code, out), (2, ""), err)
        self.assertIn(expected, err)
        self.assert_nothing_left(at_once=True)


class Options(OptionsTest):

    def test_unknown_flag_names_the_nearest(self):
        self.assert_usage("unknown option --timout; did you mean --timeout?", "--timout", "3", "--",
                          "x")
        self.assert_usage("unknown option --workrs; did you mean --workers?", "--workrs=3", "--",
                          "x")
        self.assert_usage("unknown option -z", "-z", "--", "x")
        for flag in ("-n", "-np", "--np", "--ntasks=4"):
            self.assert_usage("; -w N is the number of workers", flag, "4", "--", "x")

    def test_unknown_verb_names_the_nearest(self):
        self.assert_usage("kil is neither a verb nor a program; did you mean kill?", "kil")
        self.assert_usage("rendr is neither a verb nor a program; did you mean render?", "rendr", "k8s", "-w", "1")

    def test_hosts_are_looked_at_without_a_command(self):
        code, out, err = self.launch("preflight", "-H", "nohost.invalid")
        self.assertEqual((code, err), (69, ""))
        self.assertRegex(out, r"\Anohost\.invalid: .+\n\Z")

    def list_with(self, name, text, mode=0o755):
        script = self.root / name
        script.write_text(text)
        script.chmod(mode)
        return str(script)

    def test_a_script_that_lists_hosts(self):
        script = self.list_with("list", '#!/bin/sh\necho run >>"$0.runs"; echo n1; echo n2:2\n')
        elastic = ("--min-workers", "1", "--max-workers", "5", "-s", "0", "--no-coordinator")
        for name, cwd in ((script, "/"), ("./list", self.root), ("list", self.root)):
            code, out, err = self.launch("plan", "--host-discovery-script", name, *elastic, "--", "true", cwd=cwd)
            self.assertEqual(code, 0, err)
            self.assertEqual(err, "psrt-launch: the hosts hold 3 of 5 worker tasks; the others wait for hosts\n")
            self.assertEqual([line.split()[:3] for line in out.splitlines()[1:6]],
                             [["n1", "worker", "0"], ["n2", "worker", "1"], ["n2", "worker", "2"],
                              ["-", "worker", "3"], ["-", "worker", "4"]])
        self.assertEqual((self.root / "list.runs").read_text(), "run\n" * 3)
        code, out, err = self.launch("plan", "--json", "--host-discovery-script", script, "--slots-per-host", "3",
                                     "--max-workers", "4", "-s", "0", "--no-coordinator", "--", "true")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([t["host"] for t in json.loads(out)["tasks"]], ["n1", "n1", "n1", "n2"])

    def test_what_does_not_go_with_such_a_script(self):
        script = self.list_with("list", '#!/bin/sh\necho run >>"$0.runs"; echo n1\n')
        here = ("--host-discovery-script", script)
        elastic = ("--min-workers", "1", "-w", "2")
        self.assert_usage("add --min-workers N --max-workers M", *here, "-w", "2", "--", "x")
        self.assert_usage("add --min-workers N --max-workers M", *here, "--min-workers", "1", "--", "x")
        self.assert_usage("lists the hosts; drop -H, --hostfile", *here, *elastic, "-H", "n2", "--", "x")
        for backend in ("slurm", "local"):
            self.assert_usage(f"reached with ssh; drop backend {backend}", *here, *elastic, "--backend", backend, "--",
                              "x")
        self.assert_usage("that has hosts of its own; drop it", "render", "k8s", *here, *elastic, "--image", "i", "--",
                          "x")
        self.assert_usage("--slots-per-host: only beside", "--slots-per-host", "2", "--", "x")
        self.assert_usage("--host-discovery-interval: only beside", "--host-discovery-interval", "2s", "--", "x")
        self.assert_usage("--host-discovery-interval 0: not a time", *here, "--host-discovery-interval", "0", *elastic,
                          "--", "x")
        self.assert_usage("--slots-per-host 0: not a number", *here, "--slots-per-host", "0", *elastic, "--", "x")
        missing = ("--host-discovery-script", f"{script}.missing", *elastic)
        self.assert_usage(f"host discovery: {script}.missing: No such file", *missing, "--", "x")
        self.assertFalse((self.root / "list.runs").exists())
        plain = self.list_with("plain", "#!/bin/sh\n", 0o644)
        self.assert_usage(f"host discovery: {plain} is not executable: chmod +x {plain}", "--host-discovery-script",
                          plain, *elastic, "--", "x")

    def test_such_a_script_that_fails_at_first(self):
        for text, expected in (("echo n1; exit 3", "list ended with code 3"), ("echo '# none'", "list: no host"),
                               ("echo n1; echo n2 slots", 'list:2: "slots": not KEY=VALUE')):
            script = self.list_with("list", f"#!/bin/sh\n{text}\n")
            code, out, err = self.launch("--host-discovery-script", script, "--max-workers", "2", "--", "true")
            self.assertEqual((code, out), (69, ""))
            self.assertRegex(err, f"psrt-launch: host discovery: .*/{expected}")
            self.assert_nothing_left()

    def test_how_ssh_is_called(self):
        fake = self.root / "ssh"
        fake.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" >{self.root}/called.$$\nexit 255\n")
        fake.chmod(0o755)
        hosts = self.root / "hosts"
        hosts.write_text("h1:2\nu@h2:1 port=2222\n")
        code, out, err = self.launch("--hostfile", str(hosts), "--connect-timeout", "4s", "-w", "3", "-s", "0",
                                     "--no-coordinator", "--", "true", env={"PSRT_LAUNCH_SSH": str(fake)})
        self.assertEqual((code, out), (69, ""))
        self.assertIn("2 of 2 hosts cannot be used: ", err)
        called = sorted((f.read_text().split("\0") for f in self.root.glob("called.*")), key=lambda c: "h2" in " ".join(c))
        self.assertEqual(len(called), 2)
        for words in called:
            self.assertIn("-oBatchMode=yes", words)
            self.assertIn("-oConnectTimeout=4", words)
        self.assertEqual([words[words.index("--") + 1] for words in called], ["h1", "h2"])
        self.assertFalse({"-p2222", "-lu"} & set(called[0]))
        self.assertLessEqual({"-p2222", "-lu"}, set(called[1]))

    def test_what_has_no_effect_is_said(self):
        code, out, err = self.launch("--no-coordinator", "-s", "0", "--set", "roles.worker.image=i", "--", "echo", "x")
        self.assertEqual((code, out), (0, "[worker:0] x\n"))
        self.assertIn("role worker: image and volumes have no effect", err)

    def test_missing_arguments(self):
        self.assert_usage("no command given", "-w", "2")
        self.assert_usage("no command given", "-w", "2", "--")
        self.assert_usage("no command given")
        self.assert_usage("option --workers needs an argument", "--workers")
        self.assert_usage("option -s needs an argument", "-s")
        self.assert_usage("option --quiet takes no argument", "--quiet=1", "--", "x")

    def test_numbers_are_strict(self):
        for bad in ("0", "-1", "abc", "", " 2", "2 ", "2x", "1e3", "65536", "9" * 30):
            self.assert_usage("not a number from 1 to 65535", f"--workers={bad}", "--", "x")
        for bad in ("-1", "abc", "", "65536"):
            self.assert_usage("not a number from 0 to 65535", f"--servers={bad}", "--", "x")
        for bad in ("", "abc", "-1", "5 s", "5parsecs"):
            self.assert_usage("not a time", f"--timeout={bad}", "--", "x")
            self.assert_usage("not a time", f"--grace={bad}", "--", "x")
            self.assert_usage("not a time", f"--start-timeout={bad}", "--", "x")
        self.assert_usage("not a time", "--timeout=0", "--", "x")

    def test_values(self):
        self.assert_usage("--security none: not one of encrypted, authenticated, off", "--security", "none", "--",
                          "x")
        self.assert_usage("backend tcp: there are local, ssh and slurm\n", "--backend", "tcp", "--", "x")
        for name in ("marathon", "k8s"):
            self.assert_usage(f"; psrt-launch render {name} writes", "--backend", name, "--", "x")
        self.assert_usage("--bind x: not one of cores, numa, none", "--bind", "x", "--", "x")
        self.assert_usage("--inherit-env x: not one of auto, all, listed, none", "--inherit-env", "x", "--", "x")
        self.assert_usage("-x =3: not NAME", "-x", "=3", "--", "x")
        self.assert_usage("not set in the environment", "-x", "NO_SUCH_VARIABLE", "--", "x")
        self.assert_usage("set by psrt-launch itself", "-x", "PSRT_RANK=7", "--", "x")
        self.assert_usage("empty command", "--server-command=", "--", "x")

    def test_log_limit(self):
        for bad in ("", "100", "63k", "65535", "1.5G", "-1", "much", "100 MiB", "9" * 30):
            self.assert_usage(f"--log-limit {bad}: not a size such as 100MiB, of 64KiB at least, or 0", "--log-limit",
                              bad, "--", "x")
        for good in ("0", "64KiB", "65536", "100MiB", "2g"):
            self.assertEqual(self.launch("plan", "--log-limit", good, "--", "x")[0], 0)

    def test_whose_output_is_shown(self):
        for flag in ("--worker-logs", "--tee", "--quiet-ranks"):
            for bad in ("", "a", "1,", "2-1", "*1", "0:3", "9" * 10):
                self.assert_usage(f"{flag} {bad}: not such as 0,2-4 or *", flag, bad, "--", "x")
        for flag, shown in (("--worker-logs", "--worker-logs"), ("--tee", "--worker-logs"),
                            ("--quiet-ranks", "--quiet-ranks")):
            self.assert_usage(f"{shown} 0,1-9: there is no worker 9, the last one is 2", flag, "0,1-9", "-w", "3", "--",
                              "x")
            code, _, err = self.launch("plan", flag, "2", "--min-workers", "1", "--max-workers", "3", "--", "x")
            self.assertEqual((code, err), (0, ""))
        for first in ("--worker-logs", "--tee"):
            self.assert_usage("--worker-logs (--tee) 0 says already whose output is shown; drop --quiet-ranks 1", first,
                              "0", "--quiet-ranks", "1", "-w", "2", "--", "x")

    def test_help_and_version(self):
        code, out, err = self.launch("--help")
        self.assertEqual((code, err), (0, ""))
        for word in ("SYNOPSIS", "--server-command same|CMD", "OMP_NUM_THREADS", "-x, --env",
                     "PSRT_LAUNCH_PSRTD", "124"):
            self.assertIn(word, out)
        code, out, err = self.launch("--version")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"^psrt-launch \d+\.\d+\.\d+\n$")

    def test_psrtd_missing(self):
        bare = {"PSRT_LAUNCH_PSRTD": str(self.root / "nothing")}
        code, out, err = self.launch("--", "true", env=bare)
        self.assertEqual((code, out), (69, ""))
        self.assertIn("PSRT_LAUNCH_PSRTD", err)
        self.assert_nothing_left(at_once=True)

    def test_dry_run(self):
        code, out, err = self.launch("--dry-run", "-w", "2", "-s", "1", "-x", "WORD=it's", "-x",
                                     "API_TOKEN=geheim", "--", "./train", "--lr", "0 1")
        self.assertEqual((code, err), (0, ""))
        table, _, rest = out.partition("\n\n")
        rows = [line.split(maxsplit=5) for line in table.splitlines()]
        self.assertEqual(rows[0], ["HOST", "ROLE", "INDEX", "PORT", "GPU", "COMMAND"])
        self.assertEqual([row[:5] for row in rows[1:]],
                         [["localhost", role, index, "any", "-"]
                          for role, index in (("coordinator", "0"), ("server", "0"), ("worker", "0"),
                                              ("worker", "1"))])
        self.assertEqual([row[5] for row in rows[3:]], ["./train --lr '0 1'"] * 2)
        names = re.findall(r"^\S.*$", rest, re.M)
        self.assertEqual(names[:-1], ["coordinator", "server:0", "worker:0", "worker:1"])
        self.assertRegex(names[-1], r"^besides, of this environment \(all\): \d+ variables$")
        self.assertIn("PSRT_RANK=1", out)
        self.assertIn(r"WORD='it'\''s'", out)
        self.assertIn("API_TOKEN=(hidden)", out)
        self.assertNotIn("geheim", out)
        self.assert_nothing_left(at_once=True)


class Environment(OptionsTest):

    def environments(self, *flags, command=SHOW_ENV, **kwargs):
        code, out, err = self.shell(command, "--no-prefix", *flags, **kwargs)
        self.assertEqual(code, 0, err)
        found = {}
        for task, name, value in re.findall(r"^@(\S+) (\w+)=(.*)$", out, re.M):
            found.setdefault(task, {})[name] = value
        return found

    def test_identity(self):
        fake = {"FAKE_SERVER": SHOW_ENV, "FAKE_COORDINATOR": SHOW_ENV}
        env = self.environments(env=fake)
        self.assertEqual(sorted(env), ["coordinator:0", "server:0", "worker:0", "worker:1"])
        for task, e in env.items():
            self.assertEqual((e["PSRT_WORKERS"], e["PSRT_SERVERS"]), ("2", "1"))
            self.assertRegex(e["PSRT_COORDINATOR"], r"^tcp://127\.0\.0\.1:[1-9]\d*$")
            self.assertTrue(e["PSRT_JOB_DIR"].startswith(str(self.tmp)))
            self.assertEqual(e["PYTHONUNBUFFERED"], "1")
            self.assertNotIn("PSRT_LAUNCH_PSRTD", e)
            self.assertEqual("PSRT_LISTEN_FD" in e, task in ("coordinator:0", "server:0"))
        self.assertEqual(len({e["PSRT_COORDINATOR"] for e in env.values()}), 1)
        for rank in ("0", "1"):
            e = env[f"worker:{rank}"]
            self.assertEqual((e["RANK"], e["LOCAL_RANK"], e["WORLD_SIZE"]), (rank, rank, "2"))

    def test_nothing_of_an_enclosing_job(self):
        outer = {
            "PSRT_KEY_FILE": "/outer/key",
            "PSRT_LISTEN_FD": "9",
            "PSRT_RANK": "77",
            "PSRT_JOB_DIR": "/outer"
        }
        for e in self.environments(env=outer).values():
            self.assertNotIn("PSRT_KEY_FILE", e)
            self.assertNotIn("PSRT_LISTEN_FD", e)
            self.assertNotEqual(e["PSRT_RANK"], "77")
            self.assertNotEqual(e["PSRT_JOB_DIR"], "/outer")

    def test_exports(self):
        e = self.environments("-x",
                              "ONE=1",
                              "-x",
                              "TWO",
                              "-x",
                              "ONE=a=b",
                              "--env=EMPTY=",
                              env={"TWO": "zwei"})["worker:1"]
        self.assertEqual((e["ONE"], e["TWO"], e["EMPTY"]), ("a=b", "zwei", ""))

    def test_exports_by_prefix(self):
        present = {"AB_ONE": "1", "AB_TWO": "a\nb", "PSRT_LOG_LEVEL": "warn", "PSRT_RANK": "7"}
        code, out, err = self.launch("plan", "-x", "AB_*", "-x", "PSRT_*", "--", "x", env=present)
        self.assertEqual((code, err), (0, ""))
        for text in ("AB_ONE=1\n", "AB_TWO='a\nb'\n", "PSRT_LOG_LEVEL=warn\n"):
            self.assertEqual(out.count(text), 3, out)  # coordinator, server, worker
        self.assertNotIn("PSRT_RANK=7", out)
        self.assert_usage("-x NOTHING_*: no variable", "-x", "NOTHING_*", "--", "x")

    def test_env_file(self):
        path = self.root / "env"
        path.write_bytes(b"# mine\n\nWORD=it's \"x\" = y \r\nAB_*\nTWO\n")
        code, out, err = self.launch("plan", "--env-file", str(path), "--", "x",
                                     env={"AB_ONE": "1", "TWO": "2"})
        self.assertEqual((code, err), (0, ""))
        for text in ("WORD='it'\\''s \"x\" = y '\n", "AB_ONE=1\n", "TWO=2\n"):
            self.assertEqual(out.count(text), 3, out)
        path.write_text("A=1\n\nPSRT_RANK=1\n")
        self.assert_usage("env:3: PSRT_RANK: set by psrt-launch itself", "--env-file", str(path), "--", "x")
        self.assert_usage("missing: No such file", "--env-file", str(self.root / "missing"), "--", "x")

    def test_passed_on(self):
        e = self.environments("--start-timeout", "7s", "--security", "off", "--transport",
                              "shm,zmq")["worker:0"]
        self.assertEqual((e["PSRT_START_TIMEOUT"], e["PSRT_SECURITY"], e["PSRT_TRANSPORT"]),
                         ("7s", "off", "shm,zmq"))

    def test_threads(self):
        # Two workers on the cores of this process; at least one each.
        share = max(1, len(os.sched_getaffinity(0)) // 2)
        e = self.environments()["worker:0"]
        self.assertEqual(e["OMP_NUM_THREADS"], e["OPENBLAS_NUM_THREADS"])
        self.assertGreaterEqual(int(e["OMP_NUM_THREADS"]), 1)
        self.assertLessEqual(int(e["OMP_NUM_THREADS"]), share)  # less under a CPU quota
        one = self.environments(
            preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))["worker:0"]
        self.assertEqual(one["OMP_NUM_THREADS"], "1")
        mine = self.environments("-x", "OPENBLAS_NUM_THREADS=5", env={"OMP_NUM_THREADS": "3"})
        self.assertEqual(mine["worker:0"]["OMP_NUM_THREADS"], "3")
        self.assertEqual(mine["worker:0"]["OPENBLAS_NUM_THREADS"], "5")

    def test_bind(self):
        script = "echo @$PSRT_RANK $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)"
        bound, free = {}, {}
        for found, flags in ((bound, ("--bind", "cores")), (free, ())):
            code, out, err = self.shell(script, "--no-prefix", *flags)
            self.assertEqual(code, 0, err)
            for rank, text in re.findall(r"^@(\d) (\S+)$", out, re.M):
                ends = [part.split("-") for part in text.split(",")]
                found[rank] = {c for e in ends for c in range(int(e[0]), int(e[-1]) + 1)}
        all_cpus = os.sched_getaffinity(0)
        self.assertEqual(free, {"0": all_cpus, "1": all_cpus})
        self.assertEqual(sorted(bound), ["0", "1"])
        self.assertEqual(bound["0"] | bound["1"], all_cpus)
        if bound["0"] != all_cpus:  # more than one core
            self.assertFalse(bound["0"] & bound["1"])
        _, out, _ = self.launch("plan", "--bind", "cores", "-w", "2", "--", "x")
        self.assertIn("worker:1\n    bound to part 1 of 2 of the cores\n", out)

    def test_bind_numa(self):
        script = "echo @$PSRT_RANK $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status)"
        code, out, err = self.shell(script, "--no-prefix", "--bind", "numa")
        self.assertEqual(code, 0, err)
        notes = dict(re.findall(r"worker:(\d) on \S+ is bound to NUMA node \d+, processors (\S+)$", err, re.M))
        self.assertEqual(sorted(notes), ["0", "1"])
        self.assertEqual(dict(re.findall(r"^@(\d) (\S+)$", out, re.M)), notes)
        _, out, _ = self.launch("plan", "--bind", "numa", "-w", "2", "--", "x")
        self.assertRegex(out, r"worker:1\n    bound to part 1 of 2 of the NUMA nodes: NUMA node \d+, processors "
                         + re.escape(notes["1"]) + r"\n")
        _, out, _ = self.launch("plan", "--json", "--bind", "numa", "-w", "2", "--", "x")
        self.assertEqual([task["bind"] for task in json.loads(out)["tasks"] if task["role"] == "worker"],
                         [{"to": "numa", "part": part, "parts": 2} for part in (0, 1)])

    def test_bind_numa_is_for_memory_too(self):
        """A policy shows, and is the bound one, also where there is one node."""
        why = no_memory_policy()
        if why:
            print(f"[SKIP] memory of --bind numa: {why}", flush=True)
            self.skipTest(why)
        script = "echo @$PSRT_ROLE:$PSRT_RANK $(cut -d' ' -f2 /proc/self/numa_maps | sort -u)"
        for bind in ("numa", "cores"):
            code, out, err = self.launch("-w", "2", "-s", "1", "--grace", "300ms", "--no-prefix", "--server-command", "same",
                                         "--bind", bind, "--", "/bin/sh", "-c", script)
            self.assertEqual(code, 0, err)
            nodes = dict(re.findall(r"(worker:\d) on \S+ is bound to NUMA node (\d+),", err))
            want = {f"worker:{rank}": "default" for rank in range(2)} | {"server:0": "default"}
            want |= {worker: f"prefer:{node}" for worker, node in nodes.items()}
            self.assertEqual(len(nodes), 2 if bind == "numa" else 0)
            self.assertEqual(dict(re.findall(r"^@(\S+) (.+)$", out, re.M)), want)

    def test_servers_run_the_workers_command(self):
        env = self.environments("--server-command", "same")
        self.assertEqual(sorted(env), ["server:0", "worker:0", "worker:1"])

    def test_servers_run_a_command_line(self):
        env = self.environments("--server-command", "X=y; export X; " + SHOW_ENV)
        self.assertEqual(env["server:0"]["X"], "y")

    def test_what_tasks_inherit(self):
        # No descriptor of the launcher, no changed limit, no blocked or ignored signal.
        check = ("ls -l /proc/self/fd | grep -v /proc/ | wc -l; ulimit -n; "
                 "grep -E 'Sig(Blk|Ign)' /proc/self/status")
        code, out, err = self.launch(
            "-s",
            "0",
            "--grace",
            "200ms",
            "--no-prefix",
            "--",
            "/bin/sh",
            "-c",
            f"ulimit -n; {check}",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (123, 4096)))
        self.assertEqual(code, 0, err)
        lines = out.split("\n")
        self.assertEqual(lines[0], "123")
        self.assertEqual(lines[1], "4")  # "total", stdin, stdout, stderr
        self.assertIn("SigBlk:\t0000000000000000", out)
        self.assertIn("SigIgn:\t0000000000000000", out)

    def test_ranks_stay(self):
        # The n-th place of the job is rank n, whatever the order in which tasks come up.
        script = 'sleep 0.0$((RANK * 7 % 5)); echo "$RANK is $LOCAL_RANK of $WORLD_SIZE"'
        for _ in range(20):
            code, out, err = self.launch("-w", "4", "-s", "0", "--grace", "0", "--", "/bin/sh",
                                         "-c", script)
            self.assertEqual(code, 0, err)
            self.assertEqual(sorted(out.splitlines()),
                             [f"[worker:{r}] {r} is {r} of 4" for r in range(4)])


if __name__ == "__main__":
    main()
