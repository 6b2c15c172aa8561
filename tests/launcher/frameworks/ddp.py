# SPDX-License-Identifier: Apache-2.0
"""PyTorch's DistributedDataParallel over gloo; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say
who is who."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fashion

STEPS = 200


def model():
    net = torch.nn.Sequential(torch.nn.Linear(fashion.PIXELS, fashion.HIDDEN), torch.nn.ReLU(),
                              torch.nn.Linear(fashion.HIDDEN, fashion.CLASSES))
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), fashion.initial()):
            parameter.copy_(torch.from_numpy(value.T.copy()))
    return net


def main():
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    net = model()
    parallel = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=fashion.RATE)
    feed = fashion.batches(*fashion.load("train"), rank, size)
    for _ in range(STEPS):
        images, labels = next(feed)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(parallel(torch.from_numpy(images)),
                                                 torch.from_numpy(labels))
        loss.backward()
        optimizer.step()
    weights = [p.detach().numpy().T for p in net.parameters()]
    result = fashion.accuracy(weights, *fashion.load("t10k"))
    print(f"rank {rank} of {size} accuracy {result:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
