#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the golden vectors with what PyTorch and TensorFlow (Keras) compute.

PyTorch must agree in every case. Keras agrees where it has the same definition; where it has not, the
difference must be the one that kernels/optim/*.c documents, which is computed here. Needs NumPy, and
torch (Debian package python3-torch) or tensorflow (PyPI package tensorflow-cpu); 77 without them.
"""
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
from make_golden import CASES, inputs, np, run


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
    decay = p.get("weight_decay", 0)
    if name == "adam":
        betas = (p["beta1"], p["beta2"])
        return torch.optim.Adam([value], lr=p["lr"], betas=betas, eps=p["eps"], weight_decay=decay)
    return torch.optim.SGD([value], lr=p["lr"], momentum=p.get("momentum", 0), weight_decay=decay)


def run_torch(torch, name, params):
    values, grads = inputs()
    value = torch.nn.Parameter(torch.tensor(values, dtype=torch.float64))
    optimizer = torch_optimizer(torch, name, params, value)
    history = []
    for grad in grads:
        value.grad = torch.tensor(grad, dtype=torch.float64)
        if "clip_value" in params:
            torch.nn.utils.clip_grad_value_([value], params["clip_value"])
        optimizer.step()
        history.append(value.detach().numpy().copy())
    return np.array(history)


def check_torch(torch):
    ok = True
    for name, params in CASES:
        error = distance(run_torch(torch, name, params), run(name, params)[0])
        ok &= report(f"PyTorch {torch.__version__}", name, params, "difference", error, 1e-12)
    return ok


# ---- Keras -------------------------------------------------------------------------------------------


def keras_optimizer(keras, name, p):
    decay = p.get("weight_decay")
    if name == "adam":
        return keras.optimizers.Adam(learning_rate=p["lr"], beta_1=p["beta1"], beta_2=p["beta2"],
                                     epsilon=p["eps"], weight_decay=decay)
    return keras.optimizers.SGD(learning_rate=p["lr"], momentum=p.get("momentum", 0.0),
                                weight_decay=decay)


def run_keras(tf, name, params):
    values, grads = inputs()
    variable = tf.Variable(values, dtype=tf.float64)
    optimizer = keras_optimizer(tf.keras, name, params)
    history = []
    for grad in grads:
        optimizer.apply_gradients([(tf.constant(grad, tf.float64), variable)])
        history.append(variable.numpy().copy())
    return np.array(history)


def keras_definition(name, params):
    """Where Keras defines otherwise: decoupled weight decay, and Adam's eps beside sqrt(m2)."""
    v, grads = inputs()
    lr, decay = params["lr"], params.get("weight_decay", 0.0)
    velocity = m1 = m2 = np.zeros_like(v)
    history = []
    for t, g in enumerate(grads, 1):
        v = v - lr * decay * v
        if name == "adam":
            b1, b2 = params["beta1"], params["beta2"]
            m1 = b1 * m1 + (1 - b1) * g
            m2 = b2 * m2 + (1 - b2) * g**2
            lr_t = lr * np.sqrt(1 - b2**t) / (1 - b1**t)
            v = v - lr_t * m1 / (np.sqrt(m2) + params["eps"])
        else:
            velocity = params.get("momentum", 0.0) * velocity - lr * g
            v = v + velocity
        history.append(v)
    return np.array(history)


def check_keras(tf):
    """Keras rounds the learning rate, and beta2 for the bias correction 1 - beta2^t, to float32."""
    ok, tolerance, framework = True, 1e-5, f"Keras {tf.keras.__version__}"
    for name, params in CASES:
        keras, golden = run_keras(tf, name, params), run(name, params)[0]
        expected = keras_definition(name, params)
        ok &= report(framework, name, params, "to the documented definition",
                     distance(keras, expected), tolerance)
        same = name == "sgd" or (name == "momentum" and "weight_decay" not in params)
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
