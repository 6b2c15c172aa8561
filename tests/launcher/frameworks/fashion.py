# SPDX-License-Identifier: Apache-2.0
"""Fashion-MNIST as arrays: what the programs of this folder train on."""
import gzip
import os
import struct

import numpy as np

FOLDER = os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist")
PIXELS, CLASSES, HIDDEN = 784, 10, 64
BATCH, RATE = 64, 0.1


def path(part, what):
    """part: "train" or "t10k"; what: "images-idx3" or "labels-idx1"."""
    return os.path.join(FOLDER, f"{part}-{what}-ubyte.gz")


def _idx(part, what):
    with gzip.open(path(part, what), "rb") as file:
        dimensions = struct.unpack(">HBB", file.read(4))[2]
        shape = struct.unpack(f">{dimensions}I", file.read(4 * dimensions))
        return np.frombuffer(file.read(), np.uint8).reshape(shape)


def load(part):
    """Images as rows of floats in [0, 1], labels as int64."""
    images = _idx(part, "images-idx3").reshape(-1, PIXELS).astype(np.float32) / 255
    return images, _idx(part, "labels-idx1").astype(np.int64)


def batches(images, labels, worker, workers, seed=0):
    """Batches without end for one of several workers, each of which has its own part of the data."""
    mine = np.arange(worker, len(labels), workers)
    generator = np.random.default_rng([seed, worker])
    while True:
        for chosen in np.split(generator.permutation(mine), range(BATCH, len(mine), BATCH))[:-1]:
            yield images[chosen], labels[chosen]


def initial():
    """The same weights for everybody: hidden layer, its bias, output layer, its bias."""
    generator = np.random.default_rng(1)

    def layer(inputs, outputs):
        return generator.normal(0, (2 / inputs)**0.5, (inputs, outputs)).astype(np.float32)

    return [
        layer(PIXELS, HIDDEN),
        np.zeros(HIDDEN, np.float32),
        layer(HIDDEN, CLASSES),
        np.zeros(CLASSES, np.float32)
    ]


def accuracy(weights, images, labels):
    hidden = np.maximum(images @ weights[0] + weights[1], 0)
    return float(np.mean(np.argmax(hidden @ weights[2] + weights[3], axis=1) == labels))
