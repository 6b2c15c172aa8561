# SPDX-License-Identifier: Apache-2.0
"""Between-graph replication as TensorFlow 1 programs do it: addresses in flags, a ps that joins."""
import argparse

import tensorflow.compat.v1 as tf

import fashion

STEPS = 400


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--job_name", required=True, choices=("ps", "worker"))
    parser.add_argument("--task_index", type=int, required=True)
    return parser.parse_args()


def build(cluster, task):
    setter = tf.train.replica_device_setter(worker_device=f"/job:worker/task:{task}",
                                            cluster=cluster)
    with tf.device(setter):
        weights = [
            tf.get_variable(f"w{i}", initializer=value)
            for i, value in enumerate(fashion.initial())
        ]
        step = tf.train.get_or_create_global_step()
        images = tf.placeholder(tf.float32, (None, fashion.PIXELS))
        labels = tf.placeholder(tf.int64, (None,))
        hidden = tf.nn.relu(tf.matmul(images, weights[0]) + weights[1])
        logits = tf.matmul(hidden, weights[2]) + weights[3]
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        update = tf.train.GradientDescentOptimizer(fashion.RATE).minimize(loss, global_step=step)
    return weights, images, labels, update


class Final(tf.train.SessionRunHook):
    """The weights after the last step, read while the session is still open."""

    def __init__(self, variables):
        self.variables = variables
        self.weights = None

    def end(self, session):
        self.weights = session.run(self.variables)


def work(server, cluster, args):
    train_set = fashion.load("train")
    feed = fashion.batches(*train_set, args.task_index, cluster.num_tasks("worker"))
    weights, images, labels, update = build(cluster, args.task_index)
    # Without the filter a worker waits for ever for those that have already left.
    config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{args.task_index}"])
    final = Final(weights)
    with tf.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=args.task_index == 0,
            hooks=[tf.train.StopAtStepHook(last_step=STEPS), final],
            config=config,
            log_step_count_steps=None) as session:
        while not session.should_stop():
            batch = next(feed)
            session.run(update, {images: batch[0], labels: batch[1]})
    result = fashion.accuracy(final.weights, *fashion.load("t10k"))
    print(f"worker {args.task_index} accuracy {result:.3f}", flush=True)


def main():
    tf.disable_eager_execution()
    args = parse()
    cluster = tf.train.ClusterSpec({
        "ps": args.ps_hosts.split(","),
        "worker": args.worker_hosts.split(",")
    })
    server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)
    if args.job_name == "ps":
        server.join()
    work(server, cluster, args)


if __name__ == "__main__":
    main()
