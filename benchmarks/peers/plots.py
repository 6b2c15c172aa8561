#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""plots.py ROWS.json PREFIX: time over size, a picture for each number of ranks, a panel for each collective.

Runs in an environment of its own, with matplotlib.
"""
import json
import sys

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

LINES = {("psrt", "psrt"): ("libpsrt, its memory", "C3", "o-"),
         ("psrt", "user"): ("libpsrt, ordinary memory", "C1", "o-"),
         ("openmpi", "user"): ("OpenMPI", "C0", "s--"),
         ("mpich", "user"): ("MPICH", "C2", "^--"),
         ("gloo", "user"): ("Gloo", "C4", "v--")}


def draw(axes, rows, collective):
    for (impl, buffers), (label, color, style) in LINES.items():
        points = sorted((row["bytes"], row["p50_us"]) for row in rows
                        if (row["impl"], row["buffers"]) == (impl, buffers))
        if points:
            axes.plot(*zip(*points), style, color=color, label=label, markersize=3, linewidth=1)
    limit = sorted({row["bytes"]: row["limit_us"] for row in rows if row["limit_us"]}.items())
    if limit:
        axes.plot(*zip(*limit), ":", color="black", label="limit: plain loops", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(collective, fontsize=9)
    axes.set_xlabel("bytes", fontsize=8)
    axes.set_ylabel("us, median", fontsize=8)
    axes.grid(True, linewidth=0.3)
    axes.tick_params(labelsize=7)


def picture(rows, ranks, path):
    names = list(dict.fromkeys(row["collective"] for row in rows if row["bytes"] > 64))
    if not names:
        return
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure, panels = pyplot.subplots(lines, columns, squeeze=False,
                                     figsize=(4.2 * columns, 3.4 * lines), layout="constrained")
    for axes, name in zip(panels.flat, names):
        draw(axes, [row for row in rows if row["collective"] == name], name)
    for axes in panels.flat[len(names):]:
        axes.set_visible(False)
    panels.flat[0].legend(fontsize=7)
    figure.suptitle(f"{ranks} ranks on one host", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    print(f"wrote {path}", file=sys.stderr)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = json.load(file)
    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "psrt"
    for ranks in sorted({row["ranks"] for row in rows}):
        picture([row for row in rows if row["ranks"] == ranks], ranks,
                f"{sys.argv[2]}-{ranks}-ranks.svg")


if __name__ == "__main__":
    main()
