# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's ParameterServerStrategy with a loop of its own; who does what says TF_CONFIG.

Workers and ps serve until they are stopped: only the chief knows when training is over."""
import os

import tensorflow as tf

import fashion

STEPS = 400


def serve(cluster):
    tf.distribute.Server(cluster.cluster_spec(),
                         job_name=cluster.task_type,
                         task_index=cluster.task_id,
                         protocol="grpc").join()


def records(what, size, header):
    file = tf.data.FixedLengthRecordDataset(fashion.path("train", what), size, header,
                                            compression_type="GZIP")
    return file.map(lambda record: tf.io.decode_raw(record, tf.uint8))


def batches(context):
    data = tf.data.Dataset.zip(
        (records("images-idx3", fashion.PIXELS, 16), records("labels-idx1", 1, 8)))
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    data = data.map(lambda image, label: (tf.cast(image, tf.float32) / 255, tf.cast(label[0], tf.int64)))
    return data.shuffle(2000, seed=1).repeat().batch(fashion.BATCH, drop_remainder=True)


def train(cluster):
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weights = [tf.Variable(value) for value in fashion.initial()]
        done = tf.Variable(0, dtype=tf.int64)

    def update(images, labels):
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.matmul(images, weights[0]) + weights[1])
            logits = tf.matmul(hidden, weights[2]) + weights[3]
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights)):
            weight.assign_sub(fashion.RATE * gradient)
        done.assign_add(1)

    @tf.function
    def step(iterator):
        strategy.run(update, args=next(iterator))

    @tf.function
    def dataset():
        return strategy.distribute_datasets_from_function(batches)

    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    for _ in range(STEPS):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    result = fashion.accuracy([w.numpy() for w in weights], *fashion.load("t10k"))
    devices = sorted({w.device.split("/device")[0] for w in weights})
    print(f"steps {done.numpy()} accuracy {result:.3f} on {' '.join(devices)}", flush=True)


def main():
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("worker", "ps"):
        serve(cluster)
    train(cluster)
    os._exit(0)  # the coordinator's threads take seconds to end, or do not


if __name__ == "__main__":
    main()
