# SPDX-License-Identifier: Apache-2.0
"""Runs the examples alone and under psrt-launch."""
import array
import os
import re
import subprocess
import tempfile

BIN = os.environ["PSRT_TEST_BIN"]
DEADLINE = 400  # seconds; only shows that nothing hangs


def program(name):
    return os.path.join(BIN, name)


def run(command, **variables):
    """Exit code, stdout, stderr; BLAS has one thread, as under the launcher."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRT_")}
    with tempfile.TemporaryDirectory() as state:  # records of psrt-launch
        env.update(variables, OPENBLAS_NUM_THREADS="1", XDG_STATE_HOME=state)
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=DEADLINE, check=False)
    return done.returncode, done.stdout, done.stderr


def launched(workers, servers, *command, options=()):
    return [program("psrt-launch"), "--quiet", "-w", str(workers), "-s", str(servers), *options,
            "--", *command]


def mnist(*args):
    return [program("mnist_replica"), *(str(arg) for arg in args)]


def accuracy(out, prefix=""):
    """From the last line of worker 0, which has a fixed form."""
    last = out.splitlines()[-1]
    found = re.fullmatch(re.escape(prefix) + r"test accuracy: ([01]\.\d{4})", last)
    if not found:
        raise AssertionError(f"not an accuracy: {last!r}")
    return float(found.group(1))


def weights(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    assert len(values) == 784 * 1024 + 1024 + 1024 * 10 + 10
    return values
