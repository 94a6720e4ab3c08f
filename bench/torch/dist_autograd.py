"""Torch's distributed autograd on the work of BenchmarkPass and BenchmarkPipelineMLP, between two processes of this machine.

    dist_autograd.py default|uv [seconds]
    dist_autograd.py losses > ../testdata/mlp_losses.json

The second form trains the split MLP for 100 steps and writes its losses, which a test compares with Weft's. Both make their weights
and their batch by one formula (value), so that they begin from the same.
"""
import json
import sys

from common import PEER, emit, timed, two_processes
import numpy
import torch
import torch.distributed.autograd as autograd
import torch.distributed.rpc as rpc
from torch import nn
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef


def value(seed, bound, *shape):
    """Numbers in [-bound, bound) from a hash of their index."""
    with numpy.errstate(over="ignore"):
        h = (numpy.arange(numpy.prod(shape), dtype=numpy.uint64) + numpy.uint64(seed << 32)) * numpy.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> numpy.uint64(32))) * numpy.uint64(0xD6E8FEB86659FD93)
        h ^= h >> numpy.uint64(32)
    unit = (h >> numpy.uint64(40)).astype(numpy.float64) / (1 << 24)
    return torch.from_numpy(((2 * unit - 1) * bound).astype(numpy.float32).reshape(shape))


class Linear(nn.Linear):
    def __init__(self, seed, inputs, outputs):
        super().__init__(inputs, outputs)
        bound = inputs**-0.5
        with torch.no_grad():
            self.weight.copy_(value(seed, bound, inputs, outputs).T)
            self.bias.copy_(value(seed + 1, bound, outputs))


def params(ref):
    return [RRef(p) for p in ref.local_value().parameters()]


def forward(ref, x):
    return ref.local_value()(x)


def add(a, b):
    return torch.add(a, b)


def example(n):
    a, b, c = (torch.rand(n, n, requires_grad=True) for _ in range(3))

    def step():
        with autograd.context() as context:
            t3 = rpc.rpc_sync(PEER, add, args=(a, b))
            autograd.backward(context, [torch.mul(t3, c).sum()])
            assert len(autograd.get_gradients(context)) == 3

    return step


def mlp():
    first, second = Linear(10, 784, 1024), rpc.remote(PEER, Linear, args=(20, 1024, 10))
    x, labels = value(30, 1.7, 64, 784), torch.arange(64) * 7 % 10
    owned = [RRef(p) for p in first.parameters()] + rpc.rpc_sync(PEER, params, args=(second,))
    opt = DistributedOptimizer(torch.optim.SGD, owned, lr=0.05)

    def step():
        with autograd.context() as context:
            logits = rpc.rpc_sync(PEER, forward, args=(second, torch.relu(first(x))))
            loss = nn.functional.cross_entropy(logits, labels)
            autograd.backward(context, [loss])
            opt.step(context)
            return float(loss.detach())

    return step


def measure(lane, seconds):
    for n in (3, 1024):
        took = timed(seconds, example(n))
        emit(lane, f"Pass/size={n}x{n}", took, **{"passes/s": len(took) / sum(took)})
    took = timed(seconds, mlp())
    emit(lane, "PipelineMLP", took, **{"steps/s": len(took) / sum(took)})


def losses(_):
    step = mlp()
    print(json.dumps([round(step(), 7) for _ in range(100)]))


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "default"
    if mode == "losses":
        two_processes("default", losses)
    else:
        two_processes(mode, measure, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
