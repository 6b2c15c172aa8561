#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The worker of an MXNet job: times a distributed KVStore, one JSON object a line.

Runs in the environment that compare.py makes (MXNet 1.9.1), not in that of this project.
"""
import argparse
import json
import statistics
import time

import mxnet as mx

OPS = ["push", "pull", "push_pull"]
ROUNDS = 3
CALIBRATE = 3
COUNT_MAX = 20000


def depth_of(size):
    """Operations in flight as psrt-bench has them."""
    return 1 if size >= 64 << 20 else max(2, min(64, (1 << 20) // size))


class Cell:
    """One operation on one key; MXNet's engine orders what uses the same array."""

    def __init__(self, store, op, key, size):
        self.store, self.op, self.key = store, op, key
        shape = (size // 4,)
        store.init(key, mx.nd.zeros(shape))
        self.grad = mx.nd.ones(shape)
        self.outs = [mx.nd.zeros(shape) for _ in range(depth_of(size))]
        mx.nd.waitall()

    def issue(self, i):
        if self.op != "pull":
            self.store.push(self.key, self.grad)
        if self.op != "push":
            self.store.pull(self.key, out=self.outs[i % len(self.outs)])

    def single(self):
        start = time.perf_counter()
        self.issue(0)
        mx.nd.waitall()
        return time.perf_counter() - start

    def pipelined(self, count):
        start = time.perf_counter()
        for i in range(count):
            self.issue(i)
        mx.nd.waitall()
        return count / (time.perf_counter() - start)


def check(cell, pushes):
    """Every push was added once. Not for push_pull after its first one: MXNet pulls through the array that was
    pushed last, so that the next push sends what was pulled."""
    out = mx.nd.zeros(cell.grad.shape)
    cell.store.pull(cell.key, out=out)
    out = out.asnumpy()
    if out.min() != pushes or out.max() != pushes:
        raise SystemExit(f"{cell.op}: values from {out.min()} to {out.max()}, not {pushes}")


def measure(cell, size, seconds):
    if cell.op == "push_pull":
        cell.single()
        check(cell, 1)
    first = min(cell.single() for _ in range(CALIBRATE))
    share = seconds / ROUNDS / 2
    singles = int(max(3, min(COUNT_MAX, share / first)))
    rate = cell.pipelined(2 * len(cell.outs))
    count = int(max(2, min(COUNT_MAX, share * rate)))
    latency, rates = [], []
    for _ in range(ROUNDS):
        latency += [cell.single() for _ in range(singles)]
        rates.append(cell.pipelined(count))
    pushes = CALIBRATE + 2 * len(cell.outs) + ROUNDS * (singles + count)
    if cell.op != "push_pull":
        check(cell, pushes if cell.op == "push" else 0)
    rate = statistics.median(rates)
    return {"op": cell.op, "bytes": size, "p50_us": statistics.median(latency) * 1e6,
            "ops_per_s": rate, "gbps": rate * size / 1e9}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes")
    parser.add_argument("seconds", type=float)
    args = parser.parse_args()
    store = mx.kvstore.create("dist_async")
    # weight -= -1 * gradient, on the server: the sum that psrt-bench's tables make.
    store.set_optimizer(mx.optimizer.SGD(learning_rate=-1.0))
    key = 0
    for size in map(int, args.sizes.split(",")):
        for op in OPS:
            print(json.dumps(measure(Cell(store, op, key, size), size, args.seconds)), flush=True)
            key += 1


if __name__ == "__main__":
    main()
