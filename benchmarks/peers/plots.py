#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plots.py DATA.json PREFIX: time over size, with every peer and the limit. A picture for each number of ranks, a panel
for each collective; one for push, pull and push_pull.

Runs in an environment of its own, with matplotlib.
"""
import json
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker  # noqa: E402

LINES = {("psrt", "psrt"): ("libpsrt, its memory", "C3", "o-"),
         ("psrt", "user"): ("libpsrt, ordinary memory", "C1", "o-"),
         ("openmpi", "user"): ("OpenMPI", "C0", "s--"),
         ("mpich", "user"): ("MPICH", "C2", "^--"),
         ("gloo", "user"): ("Gloo", "C4", "v--")}
KVSTORE = {"shm": ("libpsrt, shared memory", "C3", "o-"),
           "zmq off": ("libpsrt, TCP", "C1", "o-"),
           "zmq encrypted": ("libpsrt, TCP, encrypted", "C5", "o-"),
           "mxnet": ("MXNet dist (ps-lite), TCP", "C0", "s--")}


def size_text(size, _=None):
    for suffix in ("B", "KiB", "MiB"):
        if size < 1024:
            break
        size /= 1024
    return f"{size:g} {suffix}"


def finish(axes, title):
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(base=2, numticks=7))
    axes.xaxis.set_major_formatter(size_text)
    axes.set_title(title, fontsize=9)
    axes.set_ylabel("us, median", fontsize=8)
    axes.grid(True, linewidth=0.3)
    axes.tick_params(labelsize=7)


def line(axes, points, label, color, style):
    if points:
        axes.plot(*zip(*sorted(points)), style, color=color, label=label, markersize=3, linewidth=1)


def draw_collective(axes, rows, name):
    rows = [row for row in rows if row["collective"] == name]
    for (impl, buffers), how in LINES.items():
        line(axes, [(row["bytes"], row["p50_us"]) for row in rows
                    if (row["impl"], row["buffers"]) == (impl, buffers)], *how)
    line(axes, {row["bytes"]: row["limit_us"] for row in rows if row["limit_us"]}.items(),
         "limit: plain loops", "black", ":")
    finish(axes, name)


def draw_op(axes, rows, op):
    rows = [row for row in rows if row["op"] == op]
    for name, how in KVSTORE.items():
        line(axes, [(row["bytes"], row[name]["p50_us"]) for row in rows], *how)
    line(axes, [(row["bytes"], row["limit_us"]) for row in rows], "limit: one thread's memory", "black", ":")
    finish(axes, op)


def picture(draw, rows, names, title, path):
    """A panel for each name, the legend below all of them."""
    if not names:
        return
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure, panels = pyplot.subplots(lines, columns, squeeze=False,
                                     figsize=(4.2 * columns, 3.2 * lines + 0.4), layout="constrained")
    for axes, name in zip(panels.flat, names):
        draw(axes, rows, name)
    for axes in panels.flat[len(names):]:
        axes.set_visible(False)
    known = {}
    for axes in panels.flat[:len(names)]:
        handles, labels = axes.get_legend_handles_labels()
        known.update(zip(labels, handles))
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=min(3, len(known)), fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    print(f"wrote {path}", file=sys.stderr)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        data = json.load(file)
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "psrt"
    rows = data.get("collectives", [])
    for ranks in sorted({row["ranks"] for row in rows}):
        here = [row for row in rows if row["ranks"] == ranks]
        names = list(dict.fromkeys(row["collective"] for row in here if row["bytes"] > 64))
        picture(draw_collective, here, names, f"{ranks} ranks on one host", f"{sys.argv[2]}-{ranks}-ranks.svg")
    rows = data.get("kvstore", [])
    picture(draw_op, rows, list(dict.fromkeys(row["op"] for row in rows)), "one worker, one server, one host",
            f"{sys.argv[2]}-push-pull.svg")


if __name__ == "__main__":
    main()
