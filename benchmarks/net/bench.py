#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Push, pull and allreduce between hosts on a switch with limited links (lan.py), beside the best that the links allow;
with --model, training steps of a real model's shapes."""
import argparse
import json
import pathlib
import signal
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import record  # noqa: E402

import models
from job import Failed, Job
from lan import Lan, Unavailable

ROW_SECONDS = 300  # a job that takes longer hangs


def main():
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    data = record.begin("scripts/bench --net " + " ".join(sys.argv[3:]))
    data["tcp"] = congestion_control()
    try:
        data["rows"] = [row for delay in options.delay for row in on_lan(delay, options)]
    except (Unavailable, Failed) as e:
        sys.exit(f"scripts/bench --net: {e}")
    except KeyboardInterrupt:
        sys.exit(130)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump(data["rows"], f, indent=1)
            f.write("\n")
    if options.save:
        record.save("net", data)


def on_lan(delay, options):
    lan = Lan(options.hosts, options.rate * 1e9, delay / 1e3, options.loss,
              pathlib.Path(options.bin, "psrt-net-relay"))
    try:
        return measure(lan, options)
    finally:
        lan.close()


def parse():
    parser = argparse.ArgumentParser(prog="scripts/bench --net", description=__doc__)
    parser.add_argument("--bin", default="build-release/bin", help="folder of the programs (%(default)s)")
    parser.add_argument("--hosts", type=positive(int), default=4, metavar="N",
                        help="hosts, each with one server or one worker (%(default)s)")
    parser.add_argument("--servers", type=positive(int), metavar="S", help="(half of the hosts)")
    parser.add_argument("--rate", type=positive(float), default=1.0, metavar="GBIT",
                        help="of each link in each direction, Gbit/s (%(default)s)")
    parser.add_argument("--delay", type=delays, default="0", metavar="LIST",
                        help="ms, of every packet, so that a round trip has twice that; one run for each (%(default)s)")
    parser.add_argument("--loss", type=not_negative, default=0.0, metavar="PERCENT", help="of packets")
    parser.add_argument("--bytes", default="64MiB", metavar="SIZE", help="of a push or pull (%(default)s)")
    parser.add_argument("--ops", default="push,pull,allreduce", metavar="LIST",
                        help="the last one between all hosts, without servers (%(default)s)")
    parser.add_argument("--ranks", type=positive(int), default=1, metavar="N",
                        help="of an allreduce on each host (%(default)s)")
    parser.add_argument("--security", choices=["off", "authenticated", "encrypted"], default="off")
    parser.add_argument("--seconds", type=positive(float), default=0.01, metavar="S",
                        help="of a row, at least; five operations one by one and five rounds are the least")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE",
                        help="for all tasks, for example PSRT_WINDOW=1MiB; may be repeated")
    parser.add_argument("--json", metavar="FILE", help="write the rows to FILE, as an array of objects")
    parser.add_argument("--save", action="store_true",
                        help="write them with date, commit and machine to benchmarks/results")
    model = parser.add_argument_group("models", "instead, training steps on 1, 2, ... N hosts, each with a "
                                      "server and a worker, of models from benchmarks/models")
    model.add_argument("--model", type=known_models, metavar="LIST", help=f"of {','.join(models.names())}, or all")
    model.add_argument("--as", type=positive(float), default=10.0, metavar="GBIT", dest="stands_for",
                       help="what a link stands for: sizes are divided by this / --rate (%(default)s)")
    model.add_argument("--faster", type=positive(float), default=1.0, metavar="X",
                       help="sizes and times are divided by it in addition (%(default)s)")
    model.add_argument("--tflops", type=positive(float), default=4.2, metavar="X",
                       help="of a worker; VGG-19's 35.5 images/s of a 2016 GPU are %(default)s")
    model.add_argument("--batch", type=positive(int), default=32, metavar="N", help="of a worker (%(default)s)")
    model.add_argument("--steps", type=positive(int), default=8, metavar="N", help="measured (%(default)s)")
    options = parser.parse_args()
    for setting in options.env:
        if "=" not in setting:
            parser.error(f"--env {setting}: not NAME=VALUE")
    options.env = dict(setting.split("=", 1) for setting in options.env)
    if options.model:
        return options
    options.servers = options.servers or max(options.hosts // 2, 1)
    if options.servers >= options.hosts:
        parser.error(f"--servers {options.servers}: no host of --hosts {options.hosts} is left for a worker")
    return options


def known_models(text):
    wanted = models.names() if text == "all" else text.split(",")
    for name in wanted:
        if name not in models.names():
            raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(models.names())}")
    return wanted


def positive(kind):
    def number(text):
        value = kind(text)
        if not value > 0:
            raise ValueError
        return value
    number.__name__ = "number above 0"
    return number


def not_negative(text):
    value = float(text)
    if not value >= 0:
        raise ValueError
    return value


def delays(text):
    return [not_negative(item) for item in text.split(",")]


def measure(lan, options):
    print(f"{lan.hosts} hosts, links of {options.rate:g} Gbit/s, {lan.delay * 1e3:g} ms and {options.loss:g} % "
          f"loss each way, TCP {congestion_control()}, level {options.security}", flush=True)
    if options.model:
        return models.run(lan, options, ROW_SECONDS)
    print(f"{'op':<10}{'bytes':>11}{'W':>4}{'S':>4}{'best ms':>10}{'ms':>10}{'share':>8}", flush=True)
    ops = options.ops.split(",")
    of_servers = ",".join(op for op in ops if op != "allreduce")
    rows = push_and_pull(lan, options, of_servers) if of_servers else []
    return rows + [allreduce(lan, options)] if "allreduce" in ops else rows


def congestion_control():
    return pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()


def push_and_pull(lan, options, ops):
    """Servers on the first hosts, workers on the others."""
    servers = list(range(options.servers))
    workers = list(range(options.servers, options.hosts))
    bench = str(pathlib.Path(options.bin, "psrt-bench"))
    job = Job(lan, servers, workers, options.bin, options.security, options.env)
    lines = job.run([bench, "ps", "--worker", "zmq", "--sizes", options.bytes, "--ops", ops,
                     "--buffers", "psrt", "--seconds", str(options.seconds)], ROW_SECONDS)
    return [show_total(lan, json.loads(line.split("\t")[1])) for line in lines]


def show_total(lan, measured):
    """`total_gbps` is that of all workers until the last one ends; each moves `bytes` in that time."""
    size, workers, servers = (measured[key] for key in ("bytes", "workers", "servers"))
    best = size * 8 * max(1, workers / servers) / lan.rate
    took = size * workers / (measured["total_gbps"] * 1e9)
    return show(lan, measured["op"], size, workers, servers, best, took)


def allreduce(lan, options):
    """`--ranks` ranks on every host; all meet between calls in a file that all hosts see."""
    bench = str(pathlib.Path(options.bin, "psrt-bench"))
    ranks = list(range(lan.hosts)) * options.ranks
    job = Job(lan, [], ranks, options.bin, options.security, options.env)
    with tempfile.NamedTemporaryFile() as area:
        lines = job.run([bench, "coll", "--collective", "allreduce", "--min", options.bytes, "--max",
                         options.bytes, "--buffers", "psrt", "--transport", "zmq", "--seconds",
                         str(options.seconds), "--area", area.name], ROW_SECONDS)
    measured = json.loads(lines[-1].split("\t")[1])
    if measured["wrong"]:
        raise Failed(f"allreduce: {measured['wrong']} wrong elements")
    best = 2 * (lan.hosts - 1) / lan.hosts * measured["bytes"] * 8 / lan.rate
    return show(lan, "allreduce", measured["bytes"], len(ranks), 0, best, measured["p50_us"] / 1e6)


def show(lan, op, size, workers, servers, best, took):
    row = {"op": op, "bytes": size, "workers": workers, "servers": servers,
           "rate_gbit": lan.rate / 1e9, "hosts": lan.hosts, "delay_ms": lan.delay * 1e3, "loss_percent": lan.loss,
           "best_ms": best * 1e3, "ms": took * 1e3, "share": best / took}
    print(f"{op:<10}{size:>11}{workers:>4}{servers:>4}{best * 1e3:>10.1f}{took * 1e3:>10.1f}"
          f"{best / took:>8.3f}", flush=True)
    return row


if __name__ == "__main__":
    main()
