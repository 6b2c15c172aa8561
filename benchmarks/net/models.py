# SPDX-License-Identifier: Apache-2.0
"""Training steps of real models' shapes on 1, 2, ... hosts, each with a server and a worker: samples a second
and scaling efficiency, as Poseidon (Zhang et al. 2017) and BytePS (Jiang et al. 2020) show them.

What one machine carries is scaled: a link of `rate` stands for one of `stands_for` when the sizes are divided by
their quotient, and little changes when sizes and times are then both divided by `faster`: what is in flight (PSRT_WINDOW)
and slices keep their sizes, so they weigh more, unless `faster` is rate / stands_for and the sizes are divided by 1.
"""
import json
import pathlib
import tempfile

from job import Job

FOLDER = pathlib.Path(__file__).parents[1] / "models"
PASSES = 3  # products of a training step for one of a forward pass


def names():
    return sorted(path.stem for path in FOLDER.glob("*.tsv"))


def operations(name):
    """Multiply-adds of a sample's forward pass."""
    with open(FOLDER / f"{name}.tsv", encoding="utf-8") as f:
        return sum(int(line.split("\t")[2]) for line in f if not line.startswith("#"))


def processor_time():
    """Of all cores since the machine started: idle, and in all."""
    with open("/proc/stat", encoding="ascii") as f:
        times = [int(word) for word in f.readline().split()[1:9]]
    return times[3] + times[4], sum(times)


def host_counts(hosts):
    """1, 2, 4, ... and all."""
    counts = [1]
    while counts[-1] * 2 <= hosts:
        counts.append(counts[-1] * 2)
    return counts if counts[-1] == hosts else [*counts, hosts]


def run(lan, options, seconds):
    """Prints the table; the rows."""
    divide = options.stands_for / (lan.rate / 1e9) * options.faster
    print(f"models: sizes / {divide:g}, times / {options.faster:g}; a link stands for one of "
          f"{options.stands_for:g} Gbit/s, a worker for {options.tflops:g} TFLOP/s, batches of {options.batch}")
    print(f"{'model':<14}{'hosts':>6}{'compute ms':>12}{'step ms':>10}{'samples/s':>11}{'scaling':>9}"
          f"{'links allow':>12}{'cores':>7}", flush=True)
    rows = []
    for name in options.model:
        step_ms = 2 * PASSES * operations(name) * options.batch / options.tflops / 1e9 / options.faster
        alone = None
        for hosts in host_counts(lan.hosts):
            row = one(lan, options, name, hosts, divide, step_ms, seconds)
            alone = alone or row
            row["scaling"] = row["samples_per_s"] / hosts / alone["samples_per_s"]
            rows.append(row)
            print(f"{name:<14}{hosts:>6}{row['compute_ms']:>12.1f}{row['step_ms']:>10.1f}"
                  f"{row['samples_per_s']:>11.1f}{row['scaling']:>9.3f}{row['links_allow']:>12.3f}"
                  f"{row['cores_busy']:>7.2f}", flush=True)
    return rows


def one(lan, options, name, hosts, divide, step_ms, seconds):
    everywhere = list(range(hosts))
    idle, total = processor_time()
    job = Job(lan, everywhere, everywhere, options.bin, options.security, options.env)
    with tempfile.NamedTemporaryFile() as out:
        job.run([str(pathlib.Path(options.bin, "psrt-bench")), "model", "--tensors",
                 str(FOLDER / f"{name}.tsv"), "--divide", str(divide), "--step-ms", str(step_ms),
                 "--batch", str(options.batch), "--steps", str(options.steps), "--json", out.name], seconds)
        row = json.load(out)[0]
    idle, total = (now - then for now, then in zip(processor_time(), (idle, total)))
    # Each host sends the gradients of what others own, and to others the values of what it owns.
    wire_ms = 2 * (hosts - 1) / hosts * row["bytes"] * 8 / lan.rate * 1e3
    row.update(hosts=hosts, cores_busy=1 - idle / max(total, 1), rate_gbit=lan.rate / 1e9,
               delay_ms=lan.delay * 1e3, loss_percent=lan.loss,
               stands_for_gbit=options.stands_for, times_divided=options.faster,
               links_allow=step_ms / max(step_ms, wire_ms))
    # As the papers count: samples of the time that the divided one stands for.
    row["samples_per_s"] /= options.faster
    return row
