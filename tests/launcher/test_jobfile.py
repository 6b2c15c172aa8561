# SPDX-License-Identifier: Apache-2.0
"""Job files: what the schema and psrt-launch accept and refuse, and what flags override."""
import json
import os
import pathlib
import re

import jsonschema

from launchtest import LaunchTest, main

SCHEMA = json.loads(
    (pathlib.Path(__file__).parents[2] / "launcher" / "job.schema.json").read_text())
PROGRAM = {"argv": ["./train"]}


def job(worker=None, **top):
    return {"roles": {"worker": {**PROGRAM, **(worker or {})}}, **top}


GOOD = {
    "smallest": job(),
    "everything": {
        "$schema": "job.schema.json",
        "name": "mnist",
        "coordinator": True,
        "env": {
            "A": "a=b\n\"c\"",
            "WITH.DOT": ""
        },
        "hosts": [
            "h1:4", "me@h2", "[fe80::1%eth0]:2", {
                "name": "h3",
                "user": "me",
                "port": 2222,
                "slots": 8,
                "cpus": 7.5,
                "mem": "16g",
                "gpus": 2,
                "attributes": {
                    "rack": "r1"
                }
            }
        ],
        "inherit_env": "listed",
        "log_dir": "logs",
        "log_limit": "100MiB",
        "timeout": "2h",
        "start_timeout": 90.5,
        "launch_timeout": "20s",
        "elastic_timeout": "10m",
        "grace": 0,
        "security": "off",
        "transport": "shm,zmq",
        "bind": "cores",
        "quiet": True,
        "no_prefix": False,
        "label_host": True,
        "timestamps": False,
        "detach": False,
        "worker_logs": "0,2",
        "roles": {
            "ps": {
                "count": 2
            },
            "chief": {
                "command": "exec ./train \"$X\" | tee log",
                "shell": True,
                "success": "all"
            },
            "worker": {
                "min": 1,
                "count": 2,
                "argv": ["./train", "", "--lr", "0 1", "{task_index}", "{}"],
                "shell": False,
                "cpus": 0.5,
                "mem": 512,
                "gpus": 1,
                "ports": 2,
                "env": {
                    "B": "1"
                },
                "image": "psrt:1",
                "directory": "/tmp",
                "virtualenv": "venv",
                "volumes": [{
                    "source": "/data",
                    "target": "/data",
                    "read_only": True
                }],
                "constraints": [["rack", "GROUP_BY"], ["hostname", "UNLIKE", "h[89]"],
                                ["hostname", "max_per", "2"]],
                "restart": {
                    "when": "on-failure",
                    "limit": 3,
                    "backoff": "500ms",
                    "backoff_max": 60,
                    "healthy": "5m",
                    "codes": [1, 137]
                },
                "grace": "10s"
            },
            "evaluator-2_b": {
                "kind": "other",
                "argv": ["./eval"],
                "restart": "always",
                "success": "none"
            }
        }
    },
    "present value": job(env={"PATH": None}),
    "no server": {
        "coordinator": False,
        "roles": {
            "worker": PROGRAM
        }
    },
}

# What is wrong, and what must be said about it.
BAD = {
    "null": (None, "null is not an object"),
    "list": ([], "[] is not an object"),
    "misspelt key": (job(tineout=3), "tineout: unknown key; did you mean timeout?"),
    "misspelt role key": (job({"cuont": 3}), "roles.worker.cuont: unknown key; did you mean count?"),
    "ps_hosts": ({
        "roles": {
            "worker": PROGRAM
        },
        "ps_hosts": "a:1"
    }, "ps_hosts: unknown key"),
    "text for a count": (job({"count": "3"}), '"3" is not a whole number from 0 to 65535'),
    "fraction": (job({"count": 1.5}), "roles.worker.count: 1.5 is not a whole number"),
    "negative": (job({"count": -1}), "roles.worker.count: -1 is not"),
    "too many": (job({"count": 65536}), "65536 is not a whole number from 0 to 65535"),
    "huge": (job({"count": 10**18}), "is not a whole number"),
    "no port": (job({"ports": 0}), "roles.worker.ports: 0 is not a whole number from 1 to 64"),
    "no cpu": (job({"cpus": 0}), "roles.worker.cpus: 0 is not a number above 0"),
    "memory": (job({"mem": "lots"}), 'roles.worker.mem: "lots" is not'),
    "time": (job(grace="5 s"), 'grace: "5 s" is not a time'),
    "negative time": (job(timeout=-1), "timeout: -1 is not a time"),
    "flag": (job(quiet=1), "quiet: 1 is not true or false"),
    "inherit_env": (job(inherit_env="some"), 'inherit_env: "some" is not one of auto, all, listed, none'),
    "bind": (job(bind="socket"), 'bind: "socket" is not one of none, cores, numa'),
    "security": (job(security="none"), 'security: "none" is not one of encrypted'),
    "no places": (job({"min": 1, "count": 2}, host_discovery_script="./list", slots_per_host=0),
                  "slots_per_host: 0 is not a"),
    "log limit": (job(log_limit="100 MiB"), 'log_limit: "100 MiB" is not a size such as "100MiB"'),
    "log limit as a number": (job(log_limit=100), "log_limit: 100 is not a size"),
    "shown": (job(worker_logs="a"), 'worker_logs: "a" is not a list of workers such as "0,2-4", or "*"'),
    "not shown": (job(quiet_ranks=1), 'quiet_ranks: 1 is not a list of workers such as "0,2-4", or "*"'),
    "role name": ({
        "roles": {
            "Worker": PROGRAM
        }
    }, "roles.Worker: a role's name"),
    "long role name": ({
        "roles": {
            "w" * 32: PROGRAM
        }
    }, "a role's name"),
    "role is a number": ({
        "roles": {
            "worker": 4
        }
    }, "roles.worker: 4 is not an object"),
    "kind": (job({"kind": "boss"}), '"boss" is not one of coordinator, server, worker, other'),
    "empty argv": (job({"argv": []}), "roles.worker.argv: [] is not a list of texts"),
    "no program": (job({"argv": [""]}), "names the program"),
    "number in argv": (job({"argv": ["x", 3]}), "roles.worker.argv[1]: 3 is not a text"),
    "text for argv": (job({"argv": "./train --lr"}), "is not a list of texts"),
    "command without shell": ({
        "roles": {
            "worker": {
                "command": "./train"
            }
        }
    }, 'roles.worker: command is a text for /bin/sh: say "shell": true'),
    "shell without command": (job({"shell": True}), '"shell": true goes with command'),
    "argv and command": (job({
        "command": "x",
        "shell": True
    }), "two ways to say one thing"),
    "env value": (job(env={"A": 1}), "env.A: 1 is not a text"),
    "env name": (job(env={"A=B": "1"}), "env.A=B: not a name"),
    "own variable": (job({"env": {
        "PSRT_RANK": "1"
    }}), "roles.worker.env.PSRT_RANK: set by psrt-launch itself"),
    "exit code": (job({"restart": {
        "codes": [256]
    }}), "roles.worker.restart.codes[0]: 256 is not an exit code"),
    "restart": (job({"restart": "sometimes"}), "is not one of never, on-failure, always"),
    "restart key": (job({"restart": {
        "limt": 3
    }}), "roles.worker.restart.limt: unknown key; did you mean limit?"),
    "volume": (job({"volumes": [{
        "source": "/a"
    }]}), "roles.worker.volumes[0]: a volume needs source and target"),
    "operator": (job({"constraints": [["hostname", "NEAR"]]}),
                 "roles.worker.constraints[0]: NEAR: unknown operator"),
    "unique value": (job({"constraints": [["hostname", "UNIQUE", "1"]]}), "UNIQUE takes no value"),
    "like without": (job({"constraints": [["hostname", "LIKE"]]}), "LIKE needs a value"),
    "group by": (job({"constraints": [["rack", "GROUP_BY", "x"]]}), "GROUP_BY x: not a number"),
    "four words": (job({"constraints": [["a", "IS", "b", "c"]]}), "[field, operator, value]"),
    "no hosts": (job(hosts=[]), "hosts: [] is not a list of hosts"),
    "no slots": (job(hosts=["h:0"]), 'hosts[0]: slots "0": not a number'),
    "empty host": (job(hosts=[":2"]), 'hosts[0]: "" is no name of a host'),
    "option as host": (job(hosts=["-oProxyCommand=x"]), "hosts[0]:"),
    "bare IPv6": (job(hosts=["fe80::1"]), "stands in brackets"),
    "host key": (job(hosts=[{
        "name": "h",
        "slot": 2
    }]), "hosts[0].slot: unknown key; did you mean slots?"),
    "nameless host": (job(hosts=[{
        "slots": 2
    }]), "hosts[0]: a host needs a name"),
}

# What only psrt-launch sees.
BAD_TOGETHER = {
    "decreasing": (job({
        "min": 3,
        "count": 2
    }), "roles.worker: min 3 is more than count 2"),
    "hosts and a script": (job({"min": 1, "count": 2}, hosts=["h1"], host_discovery_script="./list"),
                           "lists the hosts; drop -H"),
    "a script and nothing elastic": (job({"count": 2}, host_discovery_script="./list"), "min to a role"),
    "log limit too low": (job(log_limit="63k"), "of 64KiB at least"),
    "no such worker": (job({"count": 2}, quiet_ranks="0-2"),
                       "--quiet-ranks 0-2: there is no worker 2, the last one is 1"),
    "shown and not": (job(worker_logs="0", quiet_ranks="0"), "drop --quiet-ranks 0"),
    "twice": (job(hosts=["h1:2", "h1"]), "hosts[1]: host h1 is there twice"),
    "regular expression": (job({"constraints": [["hostname", "LIKE", "("]]}),
                           "not a regular expression"),
    "lookahead": (job({"constraints": [["hostname", "LIKE", "(?i)x"]]}), "not a regular expression"),
    "two of servers": ({
        "roles": {
            "ps": {},
            "server": {},
            "worker": PROGRAM
        }
    }, "roles ps and server are both of kind server"),
    "nothing to run": ({
        "roles": {
            "worker": {}
        }
    }, "role worker has nothing to run"),
    "server without coordinator": ({
        "coordinator": False,
        "roles": {
            "ps": {},
            "worker": PROGRAM
        }
    }, "role ps has nothing to run"),
    "no task": ({}, "the job has no task"),
    "unset": (job(env={"NO_SUCH_VARIABLE": None}), "env.NO_SUCH_VARIABLE: null passes"),
}


class JobFile(LaunchTest):

    def file(self, document, name="job.json"):
        path = self.root / name
        if isinstance(document, bytes):
            path.write_bytes(document)
        else:
            path.write_text(json.dumps(document))
        return str(path)

    def plan(self, document, *flags):
        return self.launch("plan", "--config", self.file(document), *flags)

    def assert_refused(self, expected, document, *flags):
        code, out, err = self.plan(document, *flags)
        self.assertEqual((code, out), (2, ""), err)
        self.assertIn(expected, err)

    def test_good(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)
        for name, document in GOOD.items():
            with self.subTest(name):
                jsonschema.Draft202012Validator(SCHEMA).validate(document)
                code, out, err = self.plan(document)
                self.assertEqual((code, err), (0, ""))

    def test_bad(self):
        for name, (document, expected) in BAD.items():
            with self.subTest(name):
                with self.assertRaises(jsonschema.ValidationError):
                    jsonschema.Draft202012Validator(SCHEMA).validate(document)
                self.assert_refused(expected, document)
        for name, (document, expected) in BAD_TOGETHER.items():
            with self.subTest(name):
                self.assert_refused(expected, document)

    def test_a_script_that_lists_hosts(self):
        script = self.root / "list"
        script.write_text("#!/bin/sh\necho n1; echo n2\n")
        script.chmod(0o755)
        document = job({"min": 1, "count": 4}, host_discovery_script=str(script), host_discovery_interval="2s",
                       slots_per_host=2, coordinator=False)
        jsonschema.Draft202012Validator(SCHEMA).validate(document)
        code, out, err = self.plan(document, "--json")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([t["host"] for t in json.loads(out)["tasks"]], ["n1", "n1", "n2", "n2"])

    def test_schema_has_the_keys(self):
        # An unknown key that is near none is answered with the list of those that there are.
        role = SCHEMA["$defs"]["role"]["properties"]
        places = [
            (SCHEMA["properties"], {"zzzzzzzzzzzz": 0}),
            (role, job({"zzzzzzzzzzzz": 0})),
            (role["restart"]["oneOf"][1]["properties"], job({"restart": {"zzzzzzzzzzzz": 0}})),
            (role["volumes"]["items"]["properties"], job({"volumes": [{"zzzzzzzzzzzz": 0}]})),
            (SCHEMA["$defs"]["host"]["oneOf"][1]["properties"], job(hosts=[{"zzzzzzzzzzzz": 0}])),
        ]
        for properties, document in places:
            _, _, err = self.plan(document)
            there = re.search(r"unknown key; there are (.*)", err).group(1).split(", ")
            self.assertEqual(there, list(properties))

    def test_syntax(self):
        path = self.file(b'{\n  "roles": {\n    "worker": {"argv": ["x"],}\n  }\n}')
        code, _, err = self.launch("plan", "-c", path)
        self.assertEqual(code, 2)
        self.assertIn(f"{path}:3:", err)
        self.assert_refused("job.json:1:", b"")
        self.assert_refused("duplicate object key", b'{"name": "a", "name": "b"}')
        self.assert_refused("job.json:1:", b'{"name": "a\\u0000b"}')
        self.assert_refused("job.json:1:", b'{"name": "a"} x')
        self.assert_refused("job.json:1:", b'{"name": "\xff"}')
        code, _, err = self.launch("plan", "-c", str(self.root / "nothing.json"))
        self.assertEqual(code, 2)
        self.assertIn("nothing.json: No such file", err)

    def test_bom_newline_and_size(self):
        text = json.dumps(job(env={"BIG": "x" * (1 << 20)})).encode()
        code, out, err = self.plan(b"\xef\xbb\xbf" + text + b"\r\n\n")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("x" * 1000, out)

    def test_flags_override_whose_output_is_shown(self):
        document = {"worker_logs": "9", "coordinator": False, "roles": {"worker": {"count": 2, "argv": ["echo"]}}}
        self.assert_refused("there is no worker 9", document)
        code, out, err = self.launch("-c", self.file(document), "--grace", "0", "--quiet-ranks", "1")
        self.assertEqual((code, out), (0, "[worker:0] \n"), err)

    def test_flags_override(self):
        document = {
            "env": {
                "ONE": "file"
            },
            "roles": {
                "ps": {
                    "count": 3
                },
                "worker": {
                    "argv": ["a"],
                    "count": 4,
                    "env": {
                        "TWO": "file"
                    }
                }
            }
        }
        code, out, err = self.plan(document, "-w", "2", "-s", "1", "-x", "TWO=flag", "--set",
                                   "env.ONE=1", "--role", "evaluator=1", "--command",
                                   "evaluator=run it", "--", "b", "c d")
        self.assertEqual((code, err), (0, ""))
        for count, text in ((1, "\nps:0\n"), (0, "ps:1\n"), (1, "worker:1\n"), (0, "worker:2\n"),
                            (2, "b 'c d'"), (5, "ONE=1\n"), (5, "TWO=flag\n"),
                            (1, "/bin/sh -c 'run it'")):
            self.assertEqual(out.count(text), count, (text, out))

    def test_set(self):
        for assignment, expected in (("roles.worker.cpus", "not KEY=VALUE"),
                                     ("roles.worker.cpus=x", "--set: roles.worker.cpus: \"x\" is not"),
                                     ("roles.worker.cout=1", "did you mean count?"),
                                     ("roles.worker.count=2x", "whole number"),
                                     ("quiet=perhaps", "true or false")):
            self.assert_refused(expected, job(), "--set", assignment)
        code, out, err = self.plan(job(), "--set", 'roles.worker.argv=["x", "y z"]', "--set",
                                   "roles.worker.count=2", "--set", "quiet=true", "--set",
                                   "roles.worker.constraints=[]", "--set", "start_timeout=9")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.count("x 'y z'"), 2)
        self.assertEqual(out.count("PSRT_START_TIMEOUT=9\n"), 3)

    def test_plan(self):
        document = job({
            "count": 3,
            "gpus": 2,
            "ports": 2,
            "env": {
                "NAME": "v",
                "API_KEY": "geheim"
            }
        },
                       hosts=["node1:1", {
                           "name": "node2",
                           "slots": 2,
                           "gpus": 4
                       }])
        code, out, err = self.plan(document, "--json")
        self.assertEqual((code, err), (0, ""))
        tasks = json.loads(out)["tasks"]
        self.assertEqual([(t["task"], t["host"], t["index"], t["gpus"], t["ports"]) for t in tasks],
                         [("coordinator", "node1", 0, [], [0]), ("worker:0", "node1", 0, [0, 1], [0, 0]),
                          ("worker:1", "node2", 1, [0, 1], [0, 0]),
                          ("worker:2", "node2", 2, [2, 3], [0, 0])])
        self.assertEqual(tasks[3]["argv"], ["./train"])
        env = tasks[3]["environment"]
        self.assertEqual([env[n] for n in ("RANK", "LOCAL_RANK", "NAME", "API_KEY")],
                         ["2", "1", "v", "(hidden)"])
        _, table, _ = self.plan(document)
        self.assertRegex(table, r"(?m)^node2 +worker +2 +any,any +2,3 +\./train$")
        self.assertNotIn("geheim", table + out)
        self.assert_refused("worker:3 fits on no host: node1: all 1 slots taken; node2: all 2", document,
                            "-w", "4")

    def test_elastic_plan(self):
        document = job({"min": 2, "count": 9}, hosts=["h1:2", "h2:1"])
        code, out, err = self.plan(document, "--json")
        self.assertEqual((code, err), (0, "psrt-launch: the hosts hold 3 of 9 worker tasks\n"))
        tasks = json.loads(out)["tasks"]
        self.assertEqual([t["task"] for t in tasks], ["coordinator", "worker:0", "worker:1", "worker:2"])
        self.assertEqual({t["environment"]["PSRT_WORKERS"] for t in tasks}, {"3"})
        self.assert_refused("worker:3 fits on no host", document, "--set", "roles.worker.min=4")
        code, _, err = self.plan(document, "-w", "5")  # elastic as before
        self.assertEqual((code, err), (0, "psrt-launch: the hosts hold 3 of 5 worker tasks\n"))

    def test_example_of_the_page(self):
        page = (pathlib.Path(__file__).parents[2] / "docs" / "launcher.md").read_text()
        example = json.loads(re.search(r"^    (\{.*?^    \})$", page, re.M | re.S).group(1))
        jsonschema.Draft202012Validator(SCHEMA).validate(example)
        code, out, err = self.launch("plan", "-c", self.file(example), env={"API_TOKEN": "geheim"})
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(out.count("./train --lr 0.1\n"), 8)

    def test_gpus_of_this_machine(self):
        document = job({"gpus": 2, "count": 2})
        for visible, expected in (("5,GPU-8f,0,1,7", ["5,GPU-8f", "0,1"]), ("4,5,6", None), ("", None)):
            code, out, err = self.launch("plan", "--json", "-c", self.file(document),
                                         env={"CUDA_VISIBLE_DEVICES": visible})
            if expected:
                found = [t["environment"]["CUDA_VISIBLE_DEVICES"] for t in json.loads(out)["tasks"]]
                self.assertEqual(found, ["", *expected])
            else:
                self.assertEqual(code, 2)
                self.assertRegex(err, r"worker:\d fits on no host: localhost: . of . GPUs free, 2 wanted")

    def test_runs(self):
        script = 'echo "$PSRT_ROLE:$PSRT_RANK $WORD $(pwd) $#"'
        document = {
            "env": {
                "WORD": "a\nb'c"
            },
            "grace": "300ms",
            "no_prefix": True,
            "roles": {
                "ps": {
                    "count": 2
                },
                "worker": {
                    "count": 2,
                    "argv": ["/bin/sh", "-c", script, "sh", "", "x y"],
                    "directory": str(self.tmp)
                },
                "evaluator": {
                    "command": script,
                    "shell": True
                }
            }
        }
        code, out, err = self.launch("-c", self.file(document))
        self.assertEqual(code, 0, err)
        for line in (f"worker:0 a\nb'c {self.tmp} 2\n", f"worker:1 a\nb'c {self.tmp} 2\n",
                     f" a\nb'c {os.getcwd()} 0\n"):
            self.assertIn(line, out)
        self.assert_nothing_left(at_once=True)

    def test_directory_that_is_not_there(self):
        document = job({"directory": "/no/such"})
        code, _, err = self.launch("-c", self.file(document))
        self.assertEqual(code, 126, err)
        self.assertIn("worker:0 could not be run in directory /no/such: No such file", err)
        self.assert_nothing_left(at_once=True)


    def test_virtualenv_that_is_not_there(self):
        (self.root / "there" / "bin").mkdir(parents=True)
        for where, directory, expected in ((self.root / "there", None, 0), ("there", str(self.root), 0),
                                           ("there", "/", 126), (self.root / "none", None, 126)):
            worker = {"argv": ["sh", "-c", "echo ran"], "virtualenv": str(where)}
            if directory:
                worker["directory"] = directory
            code, out, err = self.launch("-c", self.file(job(worker, coordinator=False)))
            self.assertEqual((code, out), (expected, "" if expected else "[worker:0] ran\n"), err)
            if expected:
                self.assertIn(f"worker:0 could not be run in virtual environment {where}: No such file", err)
        self.assert_nothing_left(at_once=True)


class HostFile(LaunchTest):

    def plan(self, *flags):
        return self.launch("plan", *flags, "--", "x")

    def hostfile(self, text):
        path = self.root / "hosts.txt"
        path.write_bytes(text)
        return self.plan("--hostfile", str(path))

    def test_accepted(self):
        code, _, err = self.hostfile(b"\xef\xbb\xbf# mine\r\n\r\nh1:2\r\n\th2\tslots=4  # four\n \n"
                                     b"me@h3 port=2222 gpus=2 cpus=1.5 mem=4g\n[fe80::1]:2")
        self.assertEqual((code, err), (0, ""))

    def test_refused(self):
        for text, expected in ((b"h1\nh2 lots=8\n", "hosts.txt:2: lots: unknown key; did you mean slots?"),
                               (b"\n\nh1 slots=0\n", "hosts.txt:3: slots \"0\": not a number from 1"),
                               (b"h1:x\n", "hosts.txt:1: slots \"x\""),
                               (b"h1:-1\n", "hosts.txt:1: slots \"-1\""),
                               (b":2\n", "hosts.txt:1: \"\" is no name of a host"),
                               (b"h1\nh1:2\n", "hosts.txt:2: host h1 is there twice"),
                               (b"h1 4\n", "hosts.txt:1: \"4\": not KEY=VALUE"),
                               (b"h1 port=70000\n", "hosts.txt:1: port: \"70000\""),
                               (b"-F/etc/passwd\n", "hosts.txt:1: \"-F/etc/passwd\" is no name"),
                               (b"h\0i\n", "hosts.txt:1: a NUL byte"),
                               (b"# nothing\n\n", "hosts.txt: no host"), (b"", "hosts.txt: no host")):
            code, out, err = self.hostfile(text)
            self.assertEqual((code, out), (2, ""), err)
            self.assertIn(expected, err)
        code, _, err = self.plan("--hostfile", str(self.root / "missing"))
        self.assertEqual(code, 2)
        self.assertIn("missing: No such file", err)

    def test_list(self):
        for text, expected in (("h1:x", "slots \"x\""), ("h1:-1", "slots \"-1\""), (":2", "is no name"),
                               ("", "is no name"), ("h1,,h2", "is no name"), ("h1,h1", "twice")):
            code, _, err = self.plan("-H", text)
            self.assertEqual(code, 2, text)
            self.assertIn(expected, err)
        code, out, err = self.launch("--set", "backend=local", "-H", "h1:2", "--", "echo", "ran")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("host h1 is not this machine", err)
        code, _, err = self.plan("-H", "h1:2, u@h2:1 , h3 ")
        self.assertEqual((code, err), (0, ""))


if __name__ == "__main__":
    main()
