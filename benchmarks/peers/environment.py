# SPDX-License-Identifier: Apache-2.0
"""Virtual environments for what comes from PyPI, one for each set of packages."""
import os
import subprocess
import sys


def create(folder, packages, module):
    """The environment's interpreter; `module` is imported once, to see that it is whole."""
    python = os.path.join(folder, "bin", "python")
    done = os.path.join(folder, "complete")
    if not os.path.exists(done):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                        *packages], check=True)
        subprocess.run([python, "-c", f"import {module}"], check=True)
        with open(done, "w", encoding="utf-8"):
            pass
    return python
