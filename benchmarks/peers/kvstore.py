# SPDX-License-Identifier: Apache-2.0
"""Push, pull and push_pull beside MXNet's distributed KVStore (ps-lite): everybody has a turn in each round."""
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile

import environment

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = ["mxnet==1.9.1", "numpy==1.23.5"]  # it uses np.bool, which later ones do not have
OPS = ["push", "pull", "push_pull"]
OURS = {"shm": ["--transports", "shm"],
        "zmq off": ["--transports", "zmq", "--security", "off"],
        "zmq encrypted": ["--transports", "zmq", "--security", "encrypted"]}
SIZES = "4,1024,65536,1048576,16777216,67108864"
JOB_TIMEOUT = 300


class Failed(Exception):
    """A job of MXNet."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command, role, port):
    env = dict(os.environ, DMLC_ROLE=role, DMLC_PS_ROOT_URI="127.0.0.1", DMLC_PS_ROOT_PORT=str(port),
               DMLC_NUM_WORKER="1", DMLC_NUM_SERVER="1", DMLC_NODE_HOST="127.0.0.1")
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True,
                            start_new_session=True)


def stop(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def mxnet_rows(python, sizes, seconds):
    """One scheduler, one server, one worker, as its users start them by hand."""
    port = free_port()
    helper = [python, "-c", "import mxnet"]
    worker = [python, os.path.join(HERE, "mxnet_worker.py"), sizes, str(seconds)]
    processes = [start(command, role, port) for command, role in
                 ((helper, "scheduler"), (helper, "server"), (worker, "worker"))]
    try:
        out, _ = processes[2].communicate(timeout=JOB_TIMEOUT)
        if processes[2].returncode:
            raise Failed(f"MXNet's worker ended with {processes[2].returncode}")
    finally:
        for process in processes:
            stop(process)
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def our_rows(bench, flags, sizes, seconds):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        subprocess.run([bench, "ps", "--sizes", sizes, "--buffers", "psrt", "--seconds", str(seconds),
                        "--json", path, *flags], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def measure(args):
    """{(who, op, bytes): rows of the rounds}; in each round everybody has a turn."""
    python = environment.create(os.path.join(args.environment, "mxnet"), PACKAGES, "mxnet")
    found = {}
    for number in range(args.rounds):
        print(f"kvstore: round {number + 1} of {args.rounds}", file=sys.stderr, flush=True)
        turns = {name: our_rows(args.bench, flags, args.kvstore_sizes, args.seconds)
                 for name, flags in OURS.items()}
        turns["mxnet"] = mxnet_rows(python, args.kvstore_sizes, args.seconds)
        for name, rows in turns.items():
            for row in rows:
                found.setdefault((name, row["op"], row["bytes"]), []).append(row)
    return found


def summarize(found):
    """Medians; a ratio above 1 says that we are faster."""
    def median(name, op, size, key):
        return statistics.median(row[key] for row in found[name, op, size])

    result = []
    for size in sorted({size for _, _, size in found}):
        for op in OPS:
            row = {"op": op, "bytes": size, "limit_us": median("shm", op, size, "limit_us")}
            for name in [*OURS, "mxnet"]:
                row[name] = {key: median(name, op, size, key) for key in ("gbps", "p50_us", "ops_per_s")}
            for name in OURS:
                row[name]["ratio"] = median(name, op, size, "ratio")
                row[name]["faster"] = row[name]["ops_per_s"] / row["mxnet"]["ops_per_s"]
                row[name]["sooner"] = row["mxnet"]["p50_us"] / row[name]["p50_us"]
            result.append(row)
    return result


def print_table(result):
    print("ops/s: ours divided by MXNet's, several in flight; p50: MXNet's divided by ours, one at a time")
    print(f"{'op':9} {'bytes':>9} {'mxnet GB/s':>11} {'p50 us':>10} | "
          + " | ".join(f"{name + ' GB/s':>19} {'ops/s':>7} {'p50':>7}" for name in OURS))
    for row in result:
        theirs = row["mxnet"]
        print(f"{row['op']:9} {row['bytes']:9} {theirs['gbps']:11.4f} {theirs['p50_us']:10.1f} | "
              + " | ".join(f"{row[name]['gbps']:19.4f} {row[name]['faster']:6.1f}x "
                           f"{row[name]['sooner']:6.1f}x" for name in OURS))
