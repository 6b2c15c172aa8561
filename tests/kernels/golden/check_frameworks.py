#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the golden vectors with what PyTorch and TensorFlow (Keras) compute.

PyTorch must agree in every case. Keras agrees where it has the same definition; where it has not, the
difference must be the one that kernels/optim/*.c documents, which is computed here. Needs NumPy, and
torch (Debian package python3-torch) or tensorflow (PyPI package tensorflow-cpu); 77 without them.
"""
import os
import sys
from functools import partial

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
from make_golden import CASES, FORMULAS, inputs, np, run


def distance(a, b):
    """Largest difference, relative to values of at least 0.5."""
    return float(np.max(np.abs(a - b) / np.maximum(np.abs(b), 0.5)))


def report(framework, name, params, what, error, tolerance):
    ok = error <= tolerance
    settings = ",".join(f"{k}={v}" for k, v in params.items())
    print(f"{'ok  ' if ok else 'FAIL'} {framework}: {name}:{settings} {what}: {error:.2g}")
    return ok


# ---- PyTorch -----------------------------------------------------------------------------------------


def torch_optimizer(torch, name, p, value):
    optim = torch.optim
    if name == "lars":
        return optim.SGD([value], lr=p["lr"], momentum=p["momentum"])
    same = {k: p[k] for k in p if k not in ("beta1", "beta2", "clip_value")}
    if "beta1" in p:
        same["betas"] = (p["beta1"], p["beta2"])
    if name == "nadam":
        same["foreach"] = True  # the other code of PyTorch 1.13 has a bug in mu_product
    classes = {"sgd": optim.SGD, "momentum": optim.SGD, "nesterov": partial(optim.SGD, nesterov=True),
               "adagrad": optim.Adagrad, "adadelta": optim.Adadelta, "rmsprop": optim.RMSprop,
               "adam": optim.Adam, "adamw": optim.AdamW, "adamax": optim.Adamax,
               "nadam": optim.NAdam}
    return classes[name]([value], **same)


def larc(value, p):
    """What NVIDIA Apex' LARC(clip=False) does to the gradient before SGD's step."""
    v, g, decay = value.detach().norm(), value.grad.norm(), p.get("weight_decay", 0.0)
    value.grad += decay * value.detach()
    value.grad *= p["trust"] * v / (g + v * decay + p["eps"])


def run_torch(torch, name, params):
    values, grads = inputs()
    value = torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))
    optimizer = torch_optimizer(torch, name, params, value)
    history = []
    for grad in grads:
        value.grad = torch.tensor(grad, dtype=torch.float64)
        if "clip_value" in params:
            torch.nn.utils.clip_grad_value_([value], params["clip_value"])
        if name == "lars":
            larc(value, params)
        optimizer.step()
        history.append(value.detach().numpy().copy())
    return np.array(history)


def check_torch(torch):
    torch.set_default_dtype(torch.float64)  # of nadam's mu_product
    ok = True
    for name, params in CASES:
        if name in ("ftrl", "lion", "lamb"):
            continue  # PyTorch has none
        error = distance(run_torch(torch, name, params), run(name, params)[0])
        ok &= report(f"PyTorch {torch.__version__}", name, params, "difference", error, 1e-12)
    return ok


# ---- Keras -------------------------------------------------------------------------------------------

# Names that differ from ours; weight_decay and clip_value are added to all.
KERAS_NAMES = {"lr": "learning_rate", "beta1": "beta_1", "beta2": "beta_2", "eps": "epsilon",
               "alpha": "rho", "l1": "l1_regularization_strength", "l2": "l2_regularization_strength",
               "clip_value": "clipvalue"}


def keras_optimizer(keras, name, p):
    p = {k: v for k, v in p.items() if k not in ("lr_decay", "momentum_decay")}  # not in Keras
    same = {KERAS_NAMES.get(k, k): bool(v) if k == "centered" else v for k, v in p.items()}
    optim = keras.optimizers
    classes = {"sgd": optim.SGD, "momentum": optim.SGD, "nesterov": partial(optim.SGD, nesterov=True),
               "adagrad": partial(optim.Adagrad, initial_accumulator_value=0.0),
               "adadelta": optim.Adadelta, "rmsprop": optim.RMSprop, "adam": optim.Adam,
               "adamw": optim.AdamW, "adamax": optim.Adamax, "nadam": optim.Nadam,
               "ftrl": optim.Ftrl, "lion": optim.Lion, "lamb": getattr(optim, "Lamb", None)}
    return classes[name](**same)


def run_keras(tf, name, params):
    values, grads = inputs()
    variable = tf.Variable(values, dtype=tf.float64)
    optimizer = keras_optimizer(tf.keras, name, params)
    history = []
    for grad in grads:
        optimizer.apply_gradients([(tf.constant(grad, tf.float64), variable)])
        history.append(variable.numpy().copy())
    return np.array(history)


def keras_step(name, p, v, g, s, t):
    """One step of what kernels/optim/*.c tell of Keras, where it defines otherwise than we."""
    lr, eps, beta1, beta2 = p["lr"], p.get("eps"), p.get("beta1"), p.get("beta2")
    if name in ("sgd", "momentum", "nesterov"):
        mu = p.get("momentum", 0.0)
        s[0] = mu * s[0] - lr * g
        return v + (mu * s[0] - lr * g if name == "nesterov" else s[0])
    if name == "adagrad":
        s[0] += g**2
        return v - lr * g / np.sqrt(s[0] + eps)
    if name == "rmsprop":
        s[0] = p["alpha"] * s[0] + (1 - p["alpha"]) * g**2
        if p.get("centered"):
            s[2] = p["alpha"] * s[2] + (1 - p["alpha"]) * g
        s[1] = p.get("momentum", 0.0) * s[1] + lr * g / np.sqrt(s[0] - s[2]**2 + eps)
        return v - s[1]
    if name in ("adam", "adamw"):
        s[0] = beta1 * s[0] + (1 - beta1) * g
        s[1] = beta2 * s[1] + (1 - beta2) * g**2
        return v - lr * np.sqrt(1 - beta2**t) / (1 - beta1**t) * s[0] / (np.sqrt(s[1]) + eps)
    if name == "lamb":
        return FORMULAS[name][0](v, g, s, t, lr, beta1, beta2, eps, 0.0)
    if name == "adamax":
        s[0] = beta1 * s[0] + (1 - beta1) * g
        s[1] = np.maximum(beta2 * s[1], np.abs(g))
        return v - lr / (1 - beta1**t) * s[0] / (s[1] + eps)
    own = {k: p[k] for k in p if k not in ("weight_decay", "clip_value")}
    if name == "nadam":
        own["momentum_decay"] = 1.0
    return FORMULAS[name][0](v, g, s, t, **own)


def keras_definition(name, params):
    v, grads = inputs()
    clip = params.get("clip_value", np.inf)
    s = np.zeros((3, v.size))
    s[0] = params.get("initial_accumulator_value", 0.0)
    history = []
    for t, g in enumerate(np.clip(grads, -clip, clip), 1):
        v = v - params["lr"] * params.get("weight_decay", 0.0) * v
        v = keras_step(name, params, v, g, s, t)
        history.append(v)
    return np.array(history)


def keras_has_our_definition(name, p):
    if name in ("sgd", "ftrl", "lion"):
        return True
    if name == "nadam":
        return p["momentum_decay"] == 1 and "weight_decay" not in p
    if name == "lamb":
        return p["weight_decay"] == 0
    return name in ("momentum", "nesterov", "adadelta") and "weight_decay" not in p


def check_keras(tf):
    """Keras rounds the learning rate, and beta2 for the bias correction 1 - beta2^t, to float32."""
    ok, tolerance, framework = True, 1e-5, f"Keras {tf.keras.__version__}"
    for name, params in CASES:
        if name == "lars" or name == "lamb" and not hasattr(tf.keras.optimizers, "Lamb"):
            continue  # Keras has none
        keras, golden = run_keras(tf, name, params), run(name, params)[0]
        expected = keras_definition(name, params)
        ok &= report(framework, name, params, "to the documented definition",
                     distance(keras, expected), tolerance)
        same = keras_has_our_definition(name, params)
        ok &= report(framework, name, params, "to the golden vectors" if same
                     else "to the golden vectors (defined otherwise)",
                     distance(keras, golden), tolerance if same else float("inf"))
    return ok


def main():
    ok, ran = True, 0
    try:
        import torch
        ok &= check_torch(torch)
        ran += 1
    except ImportError as error:
        print(f"PyTorch not compared: {error} (Debian package python3-torch)")
    try:
        import tensorflow as tf
        ok &= check_keras(tf)
        ran += 1
    except ImportError as error:
        print(f"Keras not compared: {error} (PyPI package tensorflow-cpu)")
    if not ran:
        print("skipped: neither framework is installed")
        return 77
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
