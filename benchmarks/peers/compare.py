#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""This library beside its peers, in turn, in one run. Started by `scripts/bench --peers`; README.md says what is
compared."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import collectives
import environment
import kvstore

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import record  # noqa: E402

COLLECTIVES = ("allreduce,reduce,broadcast,allgather,reduce_scatter,alltoall,gather,scatter,barrier,allgatherv,"
               "alltoallv,sendrecv,latency")


def plot(args, data, folder, prefix):
    try:
        python = environment.create(os.path.join(args.environment, "plots"), ["matplotlib"],
                                    "matplotlib")
    except subprocess.CalledProcessError as error:
        print(f"no plots: {error}", file=sys.stderr)
        return
    os.makedirs(folder, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        subprocess.run([python, os.path.join(HERE, "plots.py"), file.name,
                        os.path.join(folder, prefix)], check=True)


def size(text):
    for suffix, factor in (("KiB", 1 << 10), ("MiB", 1 << 20)):
        if text.endswith(suffix):
            return int(text[:-3]) * factor
    return int(text)


def parse():
    parser = argparse.ArgumentParser(prog="scripts/bench --peers")
    parser.add_argument("--bench", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--environment", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=("collectives", "kvstore"), help="one of the two parts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a cell, about")
    parser.add_argument("--ranks", default="2,4,8", help="of collectives, comma list")
    parser.add_argument("--collectives", default=COLLECTIVES, help=f"(default {COLLECTIVES})")
    parser.add_argument("--min", type=size, default="4KiB", help="first size of collectives")
    parser.add_argument("--max", type=size, default="256MiB", help="last size of collectives")
    parser.add_argument("--factor", type=int, default=4, help="from one size to the next")
    parser.add_argument("--kvstore-sizes", default=kvstore.SIZES, help="in bytes, comma list")
    parser.add_argument("--json", help="also write all figures to this file")
    parser.add_argument("--plots", help="folder for the plots (default: below the build folder)")
    parser.add_argument("--save", action="store_true", help="figures and plots into benchmarks/results")
    parser.add_argument("--add", metavar="FILE", help="what --json or --save wrote: figures go there, beside those that it has "
                        "and that are not measured again, so that a long comparison may be made in parts")
    args = parser.parse_args()
    if args.add and (args.json or args.save):
        parser.error("--add FILE is where the figures go, without --json and --save")
    return args


def begin(args):
    command = "scripts/bench --peers " + " ".join(sys.argv[5:])
    if not args.add:
        return record.begin(command)
    with open(args.add, encoding="utf-8") as file:
        data = json.load(file)
    data["command"] += "; " + command
    return data


def main():
    args = parse()
    data = begin(args)
    if args.only != "kvstore":
        rows = data["collectives"] = collectives.merge(data.get("collectives", []), collectives.measure(args))
        collectives.print_table(rows)
        collectives.print_marks(rows)
        data["marks"] = [{"mark": what, "measured": value, "reached": reached}
                         for what, value, reached in collectives.marks(rows)]
    if args.only != "collectives":
        try:
            data["kvstore"] = kvstore.summarize(kvstore.measure(args))
            kvstore.print_table(data["kvstore"])
        except (kvstore.Failed, subprocess.SubprocessError) as reason:
            print(f"left out: MXNet: {reason}", file=sys.stderr)
    finish(args, data)


def finish(args, data):
    name = record.name("peers", data)
    if args.add:
        record.write(args.add, data)
    if args.json:
        record.write(args.json, data)
    if args.save:
        record.save("peers", data)
    saved = args.save or (args.add and record.RESULTS.samefile(os.path.dirname(os.path.abspath(args.add))))
    folder = args.plots or (record.RESULTS if saved else os.path.join(args.environment, "plotted"))
    plot(args, data, folder, name if saved else "peers")


if __name__ == "__main__":
    main()
