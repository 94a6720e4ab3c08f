"""What the torch programs share: two processes, and lines in the format of Go's benchmarks."""
import os
import socket
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

PEER = "worker1"
OPTIONS = {"default": {}, "uv": {"_transports": ["uv"], "_channels": ["basic"]}}


def emit(lane, name, took, **metrics):
    nanoseconds = 1e9 * sum(took) / len(took)
    extra = "".join(f"\t{value:.6g} {unit}" for unit, value in metrics.items())
    kind, _, rest = name.partition("/")
    print(f"Benchmark{kind}/lane={lane}{rest and '/' + rest}\t{len(took)}\t{nanoseconds:.0f} ns/op{extra}", flush=True)


def timed(seconds, call):
    """How long each call took, for as long as seconds."""
    for _ in range(3):
        call()
    took, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or not took:
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return took


def run(rank, mode, port, measure, args):
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{port}", **OPTIONS[mode])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        measure("torch-" + mode, *args)
    rpc.shutdown()


def two_processes(mode, measure, *args):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(run, args=(mode, port, measure, args), nprocs=2)
