# SPDX-License-Identifier: Apache-2.0
"""Runs a program in an environment that has no PSRT_* variable but those given."""
import os
import subprocess

PROGRAM = os.environ["PSRT_TEST_PROGRAM"]
ROOT = os.environ["PSRT_TEST_ROOT"]
DEADLINE = 60  # seconds; only shows that nothing hangs


def clean_env(**variables):
    env = {name: value for name, value in os.environ.items() if not name.startswith("PSRT_")}
    return {**env, **variables}


def run(*args, before=None, **variables):
    """Exit code, stdout, stderr; `before` is called in the new process."""
    done = subprocess.run([PROGRAM, *args], env=clean_env(**variables), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE, check=False,
                          preexec_fn=before)
    return done.returncode, done.stdout, done.stderr
