"""What the loss of a worker costs a job: steps that are made again, and time in which none is new.

    python3 restart.py [-n 4] [-kills 10] [-every 10] [-rows 64] [-team "weft run … bin/team …"]

The model is that of bench/collective (784-1024-1024-10, SGD). One worker of n, in turns, gets a SIGKILL. The job is DDP, which torchrun
restarts: rank 0 saves a checkpoint every so many steps, as jobs do that torchrun restarts, and all read it when they begin. With -team it is
bench/team, a team of parallel/resilient that `weft run` watches, with the same rows. Prints a line for each loss as it happens, and at the
end "name value" lines: medians over the losses, with the least and the greatest.
"""
import argparse
import datetime
import os
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

calm = 25  # steps between two losses, or some more: they are to come anywhere between two checkpoints


def worker(folder, every, rows):
    import torch
    import torch.distributed as dist
    import torch.nn as nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
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
    with open(os.path.join(folder, "steps"), "a", buffering=1) as log:
        for step in range(first, 1 << 30):
            opt.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(ddp(x), y).backward()
            opt.step()
            log.write(f"{time.time()} {step} {rank} {os.getpid()}\n")
            if rank == 0 and (step + 1) % every == 0:
                torch.save({"net": net.state_dict(), "step": step + 1}, saved + ".part")
                os.replace(saved + ".part", saved)


class Late(Exception):
    """What was waited for did not come in time."""


class Log:
    """The steps that the workers of a job say they have made."""

    def __init__(self, job, path, limit):
        self.job, self.path, self.limit, self.read = job, path, limit, 0
        self.lines = []  # (when, step, rank), as they came
        self.new = []  # when each step was first made, in order
        self.pids = {}  # by rank, of who made its latest step

    def look(self):
        if self.job.poll() is not None:
            raise Late(f"the job has ended with code {self.job.returncode}")
        if not os.path.exists(self.path):
            return
        with open(self.path) as f:
            f.seek(self.read)
            text = f.read()
        text = text[: text.rfind("\n") + 1]
        self.read += len(text)
        for at, step, rank, pid in (line.split() for line in text.splitlines()):
            self.lines.append((float(at), int(step), int(rank)))
            self.pids[int(rank)] = int(pid)
            if int(step) == len(self.new):
                self.new.append(float(at))

    def until(self, done, what):
        end = time.time() + self.limit
        while not done():
            if time.time() > end:
                raise Late(f"{what} did not come within {self.limit} s")
            time.sleep(0.01)
            self.look()

    def gap(self, first):
        """The longest time without a new step, from the given one on."""
        at = self.new[max(first - 1, 0):]
        return max(b - a for a, b in zip(at, at[1:]))


def lose(log, rank, killed, calm):
    """Kills the worker of a rank, but not one twice; gives the longest times without a new step before and after, and how many were made again."""
    log.until(lambda: log.pids.get(rank, killed.get(rank)) != killed.get(rank), f"a step of a new worker of rank {rank}")
    first = len(log.new)
    log.until(lambda: len(log.new) >= first + calm, f"step {first + calm}")
    usual, last, made = log.gap(first), len(log.new), set((s, r) for _, s, r in log.lines)
    lines, killed[rank] = len(log.lines), log.pids[rank]
    os.kill(killed[rank], signal.SIGKILL)
    log.until(lambda: len(log.new) >= last + calm, f"step {last + calm}, after rank {rank} was killed at step {last},")
    again = [0] * (max(log.pids) + 1)
    for _, s, r in log.lines[lines:]:
        again[r] += (s, r) in made
    return usual, log.gap(last), max(again)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("-n", type=int, default=4)
    a.add_argument("-kills", type=int, default=10)
    a.add_argument("-every", type=int, default=10, help="steps between torch's checkpoints")
    a.add_argument("-rows", type=int, default=64, help="of each worker")
    a.add_argument("-limit", type=float, default=120, help="most seconds to wait for anything")
    a.add_argument("-team", help="command of a team, in place of torchrun's; FOLDER stands for where it writes its steps")
    a.add_argument("-torchrun", default="", help="further flags of torchrun")
    a.add_argument("-folder", help=argparse.SUPPRESS)
    a = a.parse_args()
    if a.folder:
        return worker(a.folder, a.every, a.rows)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the job ends, too
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:1", f"--nproc-per-node={a.n}", "--max-restarts=1000",
                   "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", *shlex.split(a.torchrun),
                   __file__, "-folder", folder, "-every", str(a.every), "-rows", str(a.rows)]
        name = f"torchrun/n={a.n}/every={a.every}"
        if a.team:
            command, name = shlex.split(a.team.replace("FOLDER", folder)), f"team/n={a.n}"
        # Without the last one torch 2.15's gloo finds addresses of the round before in the store, and most restarts fail several times.
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        with open(os.path.join(folder, "job"), "w") as said:
            job = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        log, all_, killed = Log(job, os.path.join(folder, "steps"), a.limit), [], {}
        try:
            for k in range(a.kills):
                rank = k % a.n
                all_.append(lose(log, rank, killed, calm + 3 * k % 10))
                print("loss {} of {}, rank {}: {:.2f} s without a new step ({:.2f} before the loss), {} made again".format(
                    k + 1, a.kills, rank, all_[-1][1], all_[-1][0], all_[-1][2]), flush=True)
        except Late as late:
            with open(os.path.join(folder, "job")) as said:
                print(f"loss {len(all_) + 1} of {a.kills}: {late}; the job's last words:\n{said.read()[-2000:]}", flush=True)
        finally:
            job.terminate()
            try:
                job.wait(a.limit)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)  # its workers, too, which write into the folder
                job.wait()
    for what, values in zip(("usual_longest_seconds_between_steps", "longest_seconds_without_a_new_step", "steps_made_again"), zip(*all_)):
        print(f"{name}/losses={len(all_)}/{what} {statistics.median(values):.3g} ({min(values):.3g}–{max(values):.3g})")


if __name__ == "__main__":
    main()
