#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden vectors of the optimizers, golden.h, from their formulas in NumPy float64.

    make_golden.py FILE           write FILE
    make_golden.py --check FILE   compute again and compare with FILE; 77: NumPy is missing
"""
import re
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is missing (Debian package python3-numpy)")
    sys.exit(77)

ELEMENTS = 11
STEPS = 7
STATES = 3  # at most

# name, hyper-parameters. Each optimizer with and without weight decay, once with gradients clipped,
# and with odd settings: an eps that matters, a momentum of 0.
CASES = [
    ("sgd", dict(lr=0.05)),
    ("sgd", dict(lr=0.3, weight_decay=0.07)),
    ("sgd", dict(lr=0.3, weight_decay=0.07, clip_value=0.4)),
    ("momentum", dict(lr=0.02, momentum=0.9)),
    ("momentum", dict(lr=0.04, momentum=0.75, weight_decay=0.05)),
    ("momentum", dict(lr=0.1, momentum=0.0)),
    ("momentum", dict(lr=0.04, momentum=0.75, weight_decay=0.05, clip_value=0.2)),
    ("adam", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8)),
    ("adam", dict(lr=0.11, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.06)),
    ("adam", dict(lr=0.2, beta1=0.7, beta2=0.95, eps=0.02)),
    ("adam", dict(lr=0.11, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.06, clip_value=0.3)),
]


def irregular(count, seed):
    """Distinct numbers from -1 to 1, none of them near 0, each a float32: a linear congruential
    generator, so that no version of NumPy changes them."""
    state, out = seed, []
    while len(out) < count:
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        x = (state >> 40) / 2**23 - 1
        if abs(x) > 0.05:
            out.append(x)
    return np.array(out, np.float64)


def inputs():
    """Initial values, and gradients of sizes from 1e-6 to 50."""
    values = irregular(ELEMENTS, 1)
    sizes = np.float32(np.geomspace(1e-6, 50, ELEMENTS)).astype(np.float64)
    grads = irregular(STEPS * ELEMENTS, 2).reshape(STEPS, ELEMENTS) * sizes
    return values, np.float32(grads).astype(np.float64)


def sgd(v, g, state, t, lr, weight_decay=0.0):
    return v - lr * (g + weight_decay * v)


def momentum(v, g, state, t, lr, momentum, weight_decay=0.0):
    state[0] = momentum * state[0] + (g + weight_decay * v)
    return v - lr * state[0]


def adam(v, g, state, t, lr, beta1, beta2, eps, weight_decay=0.0):
    g = g + weight_decay * v
    state[0] = beta1 * state[0] + (1 - beta1) * g
    state[1] = beta2 * state[1] + (1 - beta2) * g**2
    m_hat = state[0] / (1 - beta1**t)
    v_hat = state[1] / (1 - beta2**t)
    return v - lr * m_hat / (np.sqrt(v_hat) + eps)


# Number of states that start at 0, or a function of the hyper-parameters that gives their starts.
FORMULAS = {"sgd": (sgd, 0), "momentum": (momentum, 1), "adam": (adam, 2)}


def run(name, params):
    """Values after every step, and the last state."""
    formula, starts = FORMULAS[name]
    starts = starts(**params) if callable(starts) else [0.0] * starts
    v, grads = inputs()
    state = np.outer(starts, np.ones(ELEMENTS))
    params = dict(params)
    clip = params.pop("clip_value", np.inf)
    history = []
    for t, g in enumerate(np.clip(grads, -clip, clip), 1):
        v = formula(v, g, state, t, **params)
        history.append(v)
    return np.array(history), state


def numbers(row):
    return "{ " + ", ".join(repr(float(x)) for x in row) + " }"


def rows(table, indent):
    return ",\n".join(" " * indent + numbers(row) for row in table)


def text():
    values, grads = inputs()
    out = [
        "/* SPDX-License-Identifier: Apache-2.0 */",
        "/* Made by make_golden.py: do not edit. */",
        "/* clang-format off */",
        f"#define GOLDEN_ELEMENTS {ELEMENTS}",
        f"#define GOLDEN_STEPS {STEPS}",
        f"static const double golden_initial[GOLDEN_ELEMENTS] = {numbers(values)};",
        "static const double golden_grads[GOLDEN_STEPS][GOLDEN_ELEMENTS] = {",
        rows(grads, 4),
        "};",
        "static const struct golden {",
        "    const char *optimizer;",
        "    int num_states;",
        "    double values[GOLDEN_STEPS][GOLDEN_ELEMENTS]; /* after each step */",
        f"    double state[{STATES}][GOLDEN_ELEMENTS];             /* after the last */",
        "} golden[] = {",
    ]
    for name, params in CASES:
        history, state = run(name, params)
        spec = name + ":" + ",".join(f"{k}={v!r}" for k, v in params.items())
        out += [f'    {{ "{spec}", {len(state)},', "      {", rows(history, 8) + " },"]
        out += ["      {", rows(state if len(state) else np.zeros((1, ELEMENTS)), 8) + " } },"]
    return "\n".join(out + ["};", "/* clang-format on */", ""])


NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")


def check(path):
    """The same text around the same numbers; those may differ in rounding."""
    committed, fresh = open(path, encoding="ascii").read(), text()
    if NUMBER.sub("#", committed) != NUMBER.sub("#", fresh):
        return f"{path} is not what make_golden.py writes: make it again"
    for a, b in zip(NUMBER.findall(committed), NUMBER.findall(fresh)):
        if abs(float(a) - float(b)) > 1e-14 * max(abs(float(a)), 1e-3):
            return f"{path} has {a} where make_golden.py computes {b}"
    print(f"{path}: {len(NUMBER.findall(fresh))} numbers agree")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        sys.exit(check(sys.argv[2]))
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], "w", encoding="ascii") as file:
        file.write(text())
