"""What the loss of a worker costs a job of DDP that torchrun restarts: steps that are made again, and time in which none is new.

    python3 restart.py [-n 4] [-kills 10] [-every 10] [-rows 64]

The model is that of bench/collective (784-1024-1024-10, SGD). Rank 0 saves a checkpoint every so many steps, as jobs do that torchrun
restarts; all read it when they begin. One worker of n, in turns, gets a SIGKILL. Prints "name value" lines: medians over the kills, and
the least and the greatest. examples/elastic and internal/disttest/process do the same with parallel/resilient.
"""
import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time


def worker(folder, every, rows):
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
    saved, first = os.path.join(folder, "checkpoint.pt"), 0
    if os.path.exists(saved):
        state = torch.load(saved)
        net.load_state_dict(state["net"])
        first = state["step"]
    ddp = DDP(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.randn(rows, 784), torch.randint(0, 10, (rows,))
    open(os.path.join(folder, f"pid.{rank}.{os.getpid()}"), "w").close()
    with open(os.path.join(folder, "steps"), "a", buffering=1) as log:
        for step in range(first, 1 << 30):
            opt.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(ddp(x), y).backward()
            opt.step()
            if rank == 0:
                if (step + 1) % every == 0:
                    torch.save({"net": net.state_dict(), "step": step + 1}, saved + ".part")
                    os.replace(saved + ".part", saved)
                log.write(f"{time.time()} {step}\n")
            if os.path.exists(os.path.join(folder, "stop")):
                return


def steps(folder):
    try:
        with open(os.path.join(folder, "steps")) as f:
            lines = [line.split() for line in f.read().split("\n")[:-1]]
    except FileNotFoundError:
        return []
    return [(float(at), int(step)) for at, step in lines]


def until(what, limit=120):
    end = time.time() + limit
    while time.time() < end:
        got = what()
        if got:
            return got
        time.sleep(0.01)
    sys.exit("restart.py: it took too long")


def kill(folder, rank, known):
    """Kills a worker that is not known yet, and gives the time between its end and the first new step, and the steps made again."""
    def found():
        for name in os.listdir(folder):
            parts = name.split(".")
            if parts[0] == "pid" and int(parts[1]) == rank and name not in known:
                return name
        return None

    name = until(found)
    until(lambda: len(steps(folder)) > 0)
    at_least = steps(folder)[-1][1] + 25
    until(lambda: steps(folder)[-1][1] >= at_least)
    known.update(n for n in os.listdir(folder) if n.startswith("pid."))
    began = time.time()
    os.kill(int(name.split(".")[2]), signal.SIGKILL)
    time.sleep(0.3)  # what was under way
    best = max(step for at, step in steps(folder) if at <= began + 0.2)
    first = until(lambda: [s for s in steps(folder) if s[1] > best and s[0] > began + 0.2])[0]
    again = sum(1 for at, step in steps(folder) if began + 0.2 < at < first[0] and step <= best)
    return first[0] - began, again


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("-n", type=int, default=4)
    a.add_argument("-kills", type=int, default=10)
    a.add_argument("-every", type=int, default=10)
    a.add_argument("-rows", type=int, default=64)
    a.add_argument("-folder", help=argparse.SUPPRESS)
    a = a.parse_args()
    if a.folder:
        return worker(a.folder, a.every, a.rows)
    import torch

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        job = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", f"--nnodes=1:1", f"--nproc-per-node={a.n}", "--max-restarts=1000",
             "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", __file__, "-folder", folder, "-every", str(a.every), "-rows", str(a.rows)],
            env=dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo"), stderr=subprocess.DEVNULL)
        try:
            known, took, again = set(), [], []
            for k in range(a.kills):
                t, s = kill(folder, k % a.n, known)
                took.append(t)
                again.append(s)
            open(os.path.join(folder, "stop"), "w").close()
            job.wait(60)
        finally:
            job.kill()
    name = f"torch-{torch.__version__.split('+')[0]}/restart/n={a.n}/every={a.every}"
    for what, all_ in ("seconds_without_a_new_step", took), ("steps_made_again", again):
        print(f"{name}/{what} {statistics.median(all_):.3g} ({min(all_):.3g}–{max(all_):.3g})")


if __name__ == "__main__":
    main()
