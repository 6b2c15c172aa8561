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
    ("nesterov", dict(lr=0.02, momentum=0.9)),
    ("nesterov", dict(lr=0.04, momentum=0.75, weight_decay=0.05)),
    ("nesterov", dict(lr=0.04, momentum=0.75, weight_decay=0.05, clip_value=0.2)),
    ("adagrad", dict(lr=0.2, eps=1e-10)),
    ("adagrad", dict(lr=0.3, eps=1e-10, weight_decay=0.05, lr_decay=0.2, clip_value=0.3)),
    ("adagrad", dict(lr=0.3, eps=0.01, initial_accumulator_value=0.1)),
    ("adadelta", dict(lr=1.0, rho=0.9, eps=1e-6)),
    ("adadelta", dict(lr=3.0, rho=0.95, eps=1e-7, weight_decay=0.07, clip_value=0.3)),
    ("adadelta", dict(lr=0.7, rho=0.5, eps=0.02)),
    ("rmsprop", dict(lr=0.02, alpha=0.99, eps=1e-8)),
    ("rmsprop", dict(lr=0.03, alpha=0.9, eps=0.02, weight_decay=0.06, clip_value=0.3)),
    ("rmsprop", dict(lr=0.02, alpha=0.9, eps=1e-8, momentum=0.8, weight_decay=0.06)),
    ("rmsprop", dict(lr=0.03, alpha=0.8, eps=1e-6, centered=1)),
    ("rmsprop", dict(lr=0.02, alpha=0.9, eps=1e-4, momentum=0.6, centered=1, weight_decay=0.04)),
    ("adam", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8)),
    ("adam", dict(lr=0.11, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.06)),
    ("adam", dict(lr=0.2, beta1=0.7, beta2=0.95, eps=0.02)),
    ("adam", dict(lr=0.11, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.06, clip_value=0.3)),
    ("adamw", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0)),
    ("adamw", dict(lr=0.11, beta1=0.8, beta2=0.99, eps=0.02, weight_decay=0.2, clip_value=0.3)),
    ("adamax", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8)),
    ("adamax", dict(lr=0.11, beta1=0.8, beta2=0.6, eps=0.02, weight_decay=0.06, clip_value=0.3)),
    ("nadam", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-8, momentum_decay=0.004)),
    ("nadam", dict(lr=0.11, beta1=0.8, beta2=0.99, eps=0.02, momentum_decay=1.0)),
    ("nadam", dict(lr=0.07, beta1=0.9, beta2=0.999, eps=1e-8, momentum_decay=35.0,
                   weight_decay=0.06, clip_value=0.3)),
    ("nadam", dict(lr=0.07, beta1=0.95, beta2=0.999, eps=1e-8, momentum_decay=0.0)),
    ("ftrl", dict(lr=0.2, learning_rate_power=-0.5, initial_accumulator_value=0.1)),
    ("ftrl", dict(lr=0.3, learning_rate_power=-0.5, initial_accumulator_value=0.3, l1=0.05, l2=0.02,
                  beta=0.4, clip_value=0.5)),
    ("ftrl", dict(lr=0.1, learning_rate_power=0.0, initial_accumulator_value=0.1, l2=0.3)),
    ("ftrl", dict(lr=0.4, learning_rate_power=-1.0, initial_accumulator_value=0.2, l1=0.01)),
    ("lion", dict(lr=0.01, beta1=0.9, beta2=0.99)),
    ("lion", dict(lr=0.03, beta1=0.6, beta2=0.8, weight_decay=0.2, clip_value=0.3)),
    ("lars", dict(lr=0.3, momentum=0.9, trust=0.02, eps=1e-8)),
    ("lars", dict(lr=0.7, momentum=0.6, weight_decay=0.05, trust=0.1, eps=0.03, clip_value=0.3)),
    ("lars", dict(lr=0.2, momentum=0.0, weight_decay=0.1, trust=0.5, eps=0.0)),
    ("lamb", dict(lr=0.05, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.0)),
    ("lamb", dict(lr=0.11, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=0.2)),
    ("lamb", dict(lr=0.07, beta1=0.7, beta2=0.95, eps=0.02, weight_decay=0.01, clip_value=0.3)),
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


def nesterov(v, g, state, t, lr, momentum, weight_decay=0.0):
    g = g + weight_decay * v
    state[0] = momentum * state[0] + g
    return v - lr * (g + momentum * state[0])


def adagrad(v, g, state, t, lr, eps, lr_decay=0.0, weight_decay=0.0, initial_accumulator_value=0.0):
    g = g + weight_decay * v
    state[0] = state[0] + g**2
    return v - lr / (1 + (t - 1) * lr_decay) * g / (np.sqrt(state[0]) + eps)


def adadelta(v, g, state, t, lr, rho, eps, weight_decay=0.0):
    g = g + weight_decay * v
    state[0] = rho * state[0] + (1 - rho) * g**2
    delta = np.sqrt(state[1] + eps) / np.sqrt(state[0] + eps) * g
    state[1] = rho * state[1] + (1 - rho) * delta**2
    return v - lr * delta


def rmsprop(v, g, state, t, lr, alpha, eps, momentum=0.0, centered=0, weight_decay=0.0):
    g = g + weight_decay * v
    state[0] = alpha * state[0] + (1 - alpha) * g**2
    if centered:
        state[2] = alpha * state[2] + (1 - alpha) * g
    step = g / (np.sqrt(state[0] - state[2]**2) + eps)
    if momentum:
        step = state[1] = momentum * state[1] + step
    return v - lr * step


def adamw(v, g, state, t, weight_decay, lr, **params):
    return adam(v, g, state, t, lr, **params) - lr * weight_decay * v


def adamax(v, g, state, t, lr, beta1, beta2, eps, weight_decay=0.0):
    g = g + weight_decay * v
    state[0] = beta1 * state[0] + (1 - beta1) * g
    state[1] = np.maximum(beta2 * state[1], np.abs(g) + eps)
    return v - lr / (1 - beta1**t) * state[0] / state[1]


def nadam(v, g, state, t, lr, beta1, beta2, eps, momentum_decay, weight_decay=0.0):
    g = g + weight_decay * v
    mu = beta1 * (1 - 0.5 * 0.96**(np.arange(1, t + 2) * momentum_decay))
    state[0] = beta1 * state[0] + (1 - beta1) * g
    state[1] = beta2 * state[1] + (1 - beta2) * g**2
    ahead = (1 - mu[-2]) * g / (1 - np.prod(mu[:-1])) + mu[-1] * state[0] / (1 - np.prod(mu))
    return v - lr * ahead / (np.sqrt(state[1] / (1 - beta2**t)) + eps)


def ftrl(v, g, state, t, lr, learning_rate_power, initial_accumulator_value, l1=0.0, l2=0.0, beta=0.0):
    before, state[0] = np.longdouble(state[0]), state[0] + g**2
    after = before + np.longdouble(g)**2  # long: the difference of the roots cancels
    growth = after**-learning_rate_power - before**-learning_rate_power
    state[1] = state[1] + g - growth / lr * v
    z, curvature = state[1], state[0]**-learning_rate_power / lr + 2 * (l2 + beta / (2 * lr))
    return np.where(np.abs(z) > l1, (np.sign(z) * l1 - z) / curvature, 0.0)


def lion(v, g, state, t, lr, beta1, beta2, weight_decay=0.0):
    sign = np.sign(beta1 * state[0] + (1 - beta1) * g)
    state[0] = beta2 * state[0] + (1 - beta2) * g
    return v - lr * (sign + weight_decay * v)


def norm(x):
    return np.sqrt(np.sum(x * x))


def lars(v, g, state, t, lr, momentum, trust, eps, weight_decay=0.0):
    ratio = trust * norm(v) / (norm(g) + weight_decay * norm(v) + eps)
    state[0] = momentum * state[0] + ratio * (g + weight_decay * v)
    return v - lr * state[0]


def lamb(v, g, state, t, lr, beta1, beta2, eps, weight_decay):
    state[0] = beta1 * state[0] + (1 - beta1) * g
    state[1] = beta2 * state[1] + (1 - beta2) * g**2
    m_hat, v_hat = state[0] / (1 - beta1**t), state[1] / (1 - beta2**t)
    update = m_hat / (np.sqrt(v_hat) + eps) + weight_decay * v
    return v - lr * norm(v) / norm(update) * update


# With the number of states that start at 0, or a function that gives their starts.
FORMULAS = {
    "sgd": (sgd, 0),
    "momentum": (momentum, 1),
    "nesterov": (nesterov, 1),
    "adagrad": (adagrad, lambda initial_accumulator_value=0.0, **_: [initial_accumulator_value]),
    "adadelta": (adadelta, 2),
    "rmsprop": (rmsprop, 3),
    "adam": (adam, 2),
    "adamw": (adamw, 2),
    "adamax": (adamax, 2),
    "nadam": (nadam, 2),
    "ftrl": (ftrl, lambda initial_accumulator_value, **_: [initial_accumulator_value, 0.0]),
    "lion": (lion, 1),
    "lars": (lars, 1),
    "lamb": (lamb, 2),
}


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
