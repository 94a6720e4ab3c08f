"""What PyTorch does on one GPU: a line of JSON for each case of bench/gpu, medians of event timings.

    python3 gpu.py [--only NAME,...] [--rounds 30] [--device cpu]

Steps are forward, backward and optimizer, in three modes: eager; compile, which is torch.compile of forward and backward; and
reduce-overhead, which is that with CUDA graphs. Optimizers are fused. "ms" is per step; "gbps" counts bytes read and written once
each. All data is noise made from a seed. --device cpu runs tiny sizes, so that nothing here is tried first on a GPU: its times say
nothing, and its lines say so.
"""
import argparse
import contextlib
import ctypes
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

# What each case prints, by case and op: bench/gpu prints the same, and a test there reads this table, which is JSON.
LINES = {
    "copy": ["copy"],
    "product": ["product-f32", "product-tf32", "product-bf16"],
    "small": ["mlp-small"],
    "large": ["mlp-large"],
    "gpt": ["gpt2-small"],
    "bound": ["bound exp", "bound add", "bound sum", "bound softmax", "bound layernorm", "bound crossentropy", "bound adamw"],
    "attention": ["attention forward", "attention backward"]
}
MODES = {"eager": None, "compile": "default", "reduce-overhead": "reduce-overhead"}  # and what torch.compile calls it

FULL = {"bytes": 1 << 30, "matrix": 8192, "small": (64, [784, 1024, 1024, 10]), "large": (8192, [4096] * 5), "inner": 20,
        "gpt": {"batch": 16, "length": 1024, "vocab": 50257, "width": 768, "heads": 12, "layers": 12}}
TINY = {"bytes": 64 << 10, "matrix": 64, "small": (4, [12, 16, 16, 10]), "large": (8, [16] * 5), "inner": 1,
        "gpt": {"batch": 2, "length": 6, "vocab": 31, "width": 16, "heads": 2, "layers": 2}}


class Bench:
    """Where the cases run, in what sizes, and for how many rounds."""

    def __init__(self, device, rounds):
        self.device, self.cuda = device, device == "cuda"
        self.rounds = rounds if self.cuda else min(rounds, 2)
        self.size = FULL if self.cuda else TINY
        self.failed = False

    def noise(self, *shape, dtype=torch.float32):
        return torch.randn(*shape, device=self.device, dtype=dtype)

    def autocast(self):
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def median_ms(self, run, inner=1):
        """Median over rounds of one call's milliseconds, by events; inner calls are timed together."""
        for _ in range(5):
            run()
        if not self.cuda:
            return self.median_wall_ms(run)
        torch.cuda.synchronize()
        times = []
        for _ in range(self.rounds):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            for _ in range(inner):
                run()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) / inner)
        return statistics.median(times)

    def median_wall_ms(self, run):
        times = []
        for _ in range(self.rounds):
            began = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(times)

    def say(self, case, **figures):
        peer = "torch " + torch.__version__
        if not self.cuda:
            peer += " on the CPU, in tiny sizes"
        print(json.dumps({"case": case, "peer": peer, **figures}), flush=True)

    def tell(self, case, run, **names):
        """Says the line of what run gives, or its error: one line must not cost the others."""
        line = " ".join([case, names["op"]] if "op" in names else [case])
        assert any(line in lines for lines in LINES.values()), f"{line} is not in LINES"
        try:
            self.say(case, **names, **run())
        except Exception as e:
            self.failed = True
            self.say(case, **names, error=f"{type(e).__name__}: {e}")
        if self.cuda:
            torch.cuda.empty_cache()


def copy(b):
    def run():
        x, y = b.noise(b.size["bytes"] // 4), b.noise(b.size["bytes"] // 4)
        ms = b.median_ms(lambda: y.copy_(x))
        return {"ms": ms, "gbps": 2 * b.size["bytes"] / ms / 1e6}

    b.tell("copy", run)


@contextlib.contextmanager
def precision(name):
    """How products of float32 are made: ieee (float32) or tf32."""
    old = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(old)


def product(b):
    n = b.size["matrix"]

    def timed(dtype, p="ieee", autocast=False):
        def run():
            x, y = b.noise(n, n, dtype=dtype), b.noise(n, n, dtype=dtype)
            with precision(p), b.autocast() if autocast else contextlib.nullcontext():
                ms = b.median_ms(lambda: x @ y)
            return {"ms": ms, "tflops": 2 * n**3 / ms / 1e9}

        return run

    b.tell("product-f32", timed(torch.float32), mode="tensors of float32")
    b.tell("product-tf32", timed(torch.float32, "tf32"), mode="tensors of float32")
    b.tell("product-bf16", timed(torch.float32, autocast=True), mode="tensors of float32")  # rounds both, and gives bfloat16
    b.tell("product-bf16", timed(torch.bfloat16), mode="tensors of bfloat16")


def mlp(b, widths, act):
    layers = []
    for k in range(len(widths) - 1):
        layers.append(nn.Linear(widths[k], widths[k + 1]))
        if k + 2 < len(widths):
            layers.append(act())
    return nn.Sequential(*layers).to(b.device)


def trained(b, case, make, inner=1, figures=lambda ms: {}):
    """Measures a training step in each mode; make gives a loss and its optimizer, the same each time."""
    for mode, how in MODES.items():
        def run():
            torch.manual_seed(0)
            torch.compiler.reset()
            if b.cuda:
                torch.cuda.reset_peak_memory_stats()
            loss, opt = make()
            if how:
                loss = torch.compile(loss, mode=how)

            def step():
                if mode == "reduce-overhead":
                    torch.compiler.cudagraph_mark_step_begin()
                opt.zero_grad()
                loss().backward()
                opt.step()

            ms = b.median_ms(step, inner)
            held = {"held_gib": torch.cuda.max_memory_allocated() / 2**30} if b.cuda else {}
            return {"ms": ms, **figures(ms), **held}

        b.tell(case, run, mode=mode)


def small_mlp(b):
    def make():
        rows, widths = b.size["small"]
        net = mlp(b, widths, nn.ReLU)
        x, y = b.noise(rows, widths[0]), torch.randint(0, widths[-1], (rows,), device=b.device)
        return lambda: F.cross_entropy(net(x), y), torch.optim.SGD(net.parameters(), lr=0.01, fused=True)

    trained(b, "mlp-small", make, b.size["inner"])


def large_mlp(b):
    rows, widths = b.size["large"]

    def make():
        net = mlp(b, widths, nn.GELU)
        x, y = b.noise(rows, widths[0]), b.noise(rows, widths[-1])

        def loss():
            with b.autocast():
                out = net(x)
            return F.mse_loss(out.float(), y)

        return loss, torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    trained(b, "mlp-large", make, figures=lambda ms: {"tflops": 3 * 2 * rows * widths[0] ** 2 * 4 / ms / 1e9})


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.qkv(self.before(x)).view(n, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(n, t, w))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self, vocab, length, width, heads, layers, **_):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.last = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.last(self.blocks(x)) @ self.tokens.weight.t()


def gpt(b):
    s = b.size["gpt"]

    def make():
        net = GPT(**s).to(b.device)
        ids = torch.randint(0, s["vocab"], (s["batch"], s["length"] + 1), device=b.device)
        here, after = ids[:, :-1].contiguous(), ids[:, 1:].flatten()

        def loss():
            with b.autocast():
                logits = net(here)
            return F.cross_entropy(logits.float().flatten(0, 1), after)

        return loss, torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)

    trained(b, "gpt2-small", make, figures=lambda ms: {"tokens_per_s": s["batch"] * s["length"] / ms * 1e3})


def bound(b):
    """Kernels that memory limits. What they work on is made for each, and freed after it."""
    size = b.size["bytes"]
    n = size // 4

    def timed(passes, make):
        def run():
            ms = b.median_ms(make())
            return {"ms": ms, "gbps": passes * size / ms / 1e6}

        return run

    def exp():
        x, y = b.noise(n), b.noise(n)
        return lambda: torch.exp(x, out=y)

    def add():
        x, y = b.noise(n), b.noise(n)
        return lambda: torch.add(x, y, out=y)

    def total():
        x = b.noise(n)
        return lambda: x.sum()

    def softmax():
        x = b.noise(n // 1024, 1024)
        return lambda: torch.softmax(x, 1)

    def layernorm():
        x, gamma, beta = b.noise(n // 1024, 1024), b.noise(1024), b.noise(1024)
        return lambda: F.layer_norm(x, (1024,), gamma, beta)

    def crossentropy():
        x = b.noise(n // 8192, 8192)
        y = torch.arange(n // 8192, device=b.device) * 7 % 8192
        return lambda: F.cross_entropy(x, y)

    def adamw():  # reads four tensors, writes three
        p = nn.Parameter(b.noise(n))
        p.grad = b.noise(n)
        return torch.optim.AdamW([p], lr=1e-3, weight_decay=0.01, fused=True).step

    for op, passes, make in [("exp", 2, exp), ("add", 3, add), ("sum", 1, total), ("softmax", 2, softmax),
                             ("layernorm", 2, layernorm),
                             ("crossentropy", 1, crossentropy), ("adamw", 7, adamw)]:
        b.tell("bound", timed(passes, make), op=op)


def attention(b):
    """A layer of GPT's attention alone, and its gradient, all of bfloat16, in each of PyTorch's ways."""
    s = b.size["gpt"]
    shape = s["batch"], s["length"], s["heads"], s["width"] // s["heads"]
    work = s["batch"] * s["length"]**2 * s["width"]  # of half a product

    def timed(way, backward):
        def run():
            q, k, v = (b.noise(*shape, dtype=torch.bfloat16).transpose(1, 2).requires_grad_() for _ in range(3))
            with torch.nn.attention.sdpa_kernel(way):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                dy = torch.randn_like(y)
                if backward:
                    ms = b.median_ms(lambda: torch.autograd.grad(y, (q, k, v), dy, retain_graph=True))
                else:
                    with torch.no_grad():
                        ms = b.median_ms(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
            return {"ms": ms, "tflops": (5 if backward else 2) * work / ms / 1e9}

        return run

    ways = ["FLASH_ATTENTION", "CUDNN_ATTENTION"] if b.cuda else ["MATH"]
    for op in "forward", "backward":
        for way in ways:
            b.tell("attention", timed(getattr(torch.nn.attention.SDPBackend, way), op == "backward"), op=op,
                   mode=way.split("_")[0].lower())


CASES = {"copy": copy, "product": product, "small": small_mlp, "large": large_mlp, "gpt": gpt, "bound": bound, "attention": attention}


def library():
    """Which cuBLASLt this process has loaded, and its version: as bench/gpu says it of itself."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "libcublasLt.so" in line}
    if not paths:
        return "none is loaded"
    version = ctypes.CDLL(min(paths)).cublasLtGetVersion
    version.restype = ctypes.c_size_t
    return f"{min(paths)}, version {version()}"


def attention_way(b):
    """Which of its ways PyTorch takes for GPT's attention."""
    s = b.size["gpt"]
    q = b.noise(s["batch"], s["heads"], s["length"], s["width"] // s["heads"], dtype=torch.bfloat16).requires_grad_()
    return torch.nn.attention.SDPBackend(torch._fused_sdp_choice(q, q, q, is_causal=True)).name


def versions(b):
    """What a line may say of what is compared with: each by itself, as any may be missing."""
    def triton():
        import triton
        return triton.__version__

    def loaded():
        x = b.noise(64, 64)
        x @ x  # which loads what products need
        return library()

    asked = {"name": lambda: torch.cuda.get_device_name() if b.cuda else "CPU", "torch": lambda: torch.__version__,
             "cuda": lambda: torch.version.cuda or "none", "cudnn": lambda: str(torch.backends.cudnn.version()), "triton": triton,
             "cublaslt": loaded, "attention": lambda: attention_way(b)}
    said = {}
    for name, ask in asked.items():
        try:
            said[name] = ask()
        except Exception as e:
            said[name] = f"unknown ({type(e).__name__}: {e})"
    return said


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default=",".join(CASES))
    args.add_argument("--rounds", type=int, default=30)
    args.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    args = args.parse_args()
    names = args.only.split(",")
    wrong = [name for name in names if name not in CASES]
    if wrong:
        sys.exit(f"gpu.py: there is no {', '.join(wrong)}; expected some of {', '.join(CASES)}")
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("gpu.py: PyTorch sees no GPU here")
    b = Bench(args.device, args.rounds)
    torch.manual_seed(0)
    b.say("device", **versions(b))
    for name in names:
        CASES[name](b)
    sys.exit(b.failed)


if __name__ == "__main__":
    main()
