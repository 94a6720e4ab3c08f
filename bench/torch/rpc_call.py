"""Torch RPC (TensorPipe) on the calls and tensors of BenchmarkCall and BenchmarkTensor, between two processes of this machine.

    rpc_call.py default|uv [seconds]

"default" lets TensorPipe choose (shared memory on one host), "uv" holds it to TCP. It prints lines in the format of Go's benchmarks, with
the lane torch-default or torch-uv; a call of a TorchScript function stands beside that of a Python function.
"""
import os
import sys
import time
from collections import deque

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

PEER = "worker1"
OPTIONS = {"default": {}, "uv": {"_transports": ["uv"], "_channels": ["basic"]}}


def nothing():
    pass


def count(t):
    return t.numel()


@torch.jit.script
def scripted(x: int) -> int:
    return x


def emit(lane, name, took, **metrics):
    nanoseconds = 1e9 * sum(took) / len(took)
    extra = "".join(f"\t{value:.6g} {unit}" for unit, value in metrics.items())
    print(f"Benchmark{name.replace('/', f'/lane={lane}/', 1)}\t{len(took)}\t{nanoseconds:.0f} ns/op{extra}", flush=True)


def percentile(took, p):
    return 1e6 * sorted(took)[min(len(took) * p // 100, len(took) - 1)]


def one_at_a_time(lane, name, seconds, call, size=0):
    for _ in range(3):
        call()
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or not took:
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
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


def run(rank, mode, port, seconds):
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", **OPTIONS[mode])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        measure("torch-" + mode, seconds)
    rpc.shutdown()


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "default"
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    mp.spawn(run, args=(mode, free_port(), seconds), nprocs=2)
