"""Torch RPC (TensorPipe) on the calls and tensors of BenchmarkCall and BenchmarkTensor, between two processes of this machine.

    rpc_call.py default|uv [seconds]

"default" lets TensorPipe choose (shared memory on one host), "uv" holds it to TCP. It prints lines in the format of Go's benchmarks, with
the lane torch-default or torch-uv; a call of a TorchScript function stands beside that of a Python function.
"""
import sys
import time
from collections import deque

from common import PEER, emit, timed, two_processes
import torch
import torch.distributed.rpc as rpc


def nothing():
    pass


def count(t):
    return t.numel()


@torch.jit.script
def scripted(x: int) -> int:
    return x


def percentile(took, p):
    return 1e6 * sorted(took)[min(len(took) * p // 100, len(took) - 1)]


def one_at_a_time(lane, name, seconds, call, size=0):
    took = timed(seconds, call)
    metrics = {"p50-µs": percentile(took, 50), "p99-µs": percentile(took, 99)}
    if size:
        metrics["GB/s"] = size * len(took) / sum(took) / 1e9
    emit(lane, name, took, **metrics)


def in_flight(lane, name, seconds, start_call, depth=64):
    under_way, done, start = deque(), 0, time.perf_counter()
    while time.perf_counter() < start + seconds:
        if len(under_way) == depth:
            under_way.popleft().wait()
        under_way.append(start_call())
        done += 1
    while under_way:
        under_way.popleft().wait()
    each = (time.perf_counter() - start) / done
    emit(lane, name, [each] * done, **{"calls/s": 1 / each})


def measure(lane, seconds):
    a = torch.ones(3, 3)
    one_at_a_time(lane, "Call/empty", seconds, lambda: rpc.rpc_sync(PEER, nothing))
    one_at_a_time(lane, "Call/empty-torchscript", seconds, lambda: rpc.rpc_sync(PEER, scripted, args=(1,)))
    in_flight(lane, "Call/inflight=64", seconds, lambda: rpc.rpc_async(PEER, nothing))
    in_flight(lane, "Call/inflight=64-torchscript", seconds, lambda: rpc.rpc_async(PEER, scripted, args=(1,)))
    one_at_a_time(lane, "Call/tensor=3x3", seconds, lambda: rpc.rpc_sync(PEER, torch.add, args=(a, a)))
    for mib in (1, 16, 256):
        t = torch.ones(mib << 18)
        one_at_a_time(lane, f"Tensor/bytes={mib}MiB", seconds, lambda: rpc.rpc_sync(PEER, count, args=(t,)), mib << 20)


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "default"
    two_processes(mode, measure, float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
