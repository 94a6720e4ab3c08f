"""What PyTorch does on one GPU: a line of JSON for each case of bench/gpu, medians of event timings.

    python3 gpu.py [--only NAME,...] [--rounds 30]

Steps are forward, backward and optimizer. "ms" is per step; "gbps" counts bytes read and written once each.
"""
import argparse
import json
import statistics
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

DEV = "cuda"
GIB = 1 << 30


def median_ms(run, rounds, inner=1):
    """Median over rounds of one call's milliseconds, by events; inner calls are timed together."""
    for _ in range(5):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        for _ in range(inner):
            run()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b) / inner)
    return statistics.median(times)


def say(name, **figures):
    print(json.dumps({"case": name, "peer": "torch " + torch.__version__, **figures}), flush=True)


def copy(rounds):
    x = torch.empty(GIB // 4, device=DEV)
    y = torch.empty_like(x)
    ms = median_ms(lambda: y.copy_(x), rounds)
    say("copy", ms=ms, gbps=2 * GIB / ms / 1e6)


def product(rounds):
    n = 8192
    a, b = (torch.randn(n, n, device=DEV, dtype=torch.bfloat16) for _ in range(2))
    ms = median_ms(lambda: a @ b, rounds)
    say("product-bf16", ms=ms, tflops=2 * n**3 / ms / 1e9)


def mlp(widths, act):
    layers = []
    for k in range(len(widths) - 1):
        layers.append(nn.Linear(widths[k], widths[k + 1]))
        if k + 2 < len(widths):
            layers.append(act())
    return nn.Sequential(*layers).to(DEV)


def small_mlp(rounds):
    for mode in ("eager", "compile"):
        torch.manual_seed(0)
        net = mlp([784, 1024, 1024, 10], nn.ReLU)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        x, y = torch.randn(64, 784, device=DEV), torch.randint(0, 10, (64,), device=DEV)
        loss_of = torch.compile(lambda: F.cross_entropy(net(x), y), mode="reduce-overhead") if mode == "compile" else lambda: F.cross_entropy(net(x), y)

        def step():
            opt.zero_grad()
            loss_of().backward()
            opt.step()

        say("mlp-small", mode=mode, ms=median_ms(step, rounds, 20))


def large_mlp(rounds):
    torch.manual_seed(0)
    net = mlp([4096] * 5, nn.GELU)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    x, y = (torch.randn(8192, 4096, device=DEV) for _ in range(2))

    def loss():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = net(x)
        return F.mse_loss(out.float(), y)

    for mode in ("eager", "compile"):
        f = torch.compile(loss) if mode == "compile" else loss

        def step():
            opt.zero_grad()
            f().backward()
            opt.step()

        ms = median_ms(step, rounds)
        say("mlp-large", mode=mode, ms=ms, tflops=3 * 2 * 8192 * 4096 * 4096 * 4 / ms / 1e9)


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
    def __init__(self, vocab=50257, t=1024, width=768, heads=12, layers=12):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(t, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.last = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.last(self.blocks(x)) @ self.tokens.weight.t()


def gpt(rounds):
    torch.manual_seed(0)
    net = GPT().to(DEV)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    ids = torch.randint(0, 50257, (16, 1025), device=DEV)

    def step():
        opt.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = net(ids[:, :-1])
        F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()).backward()
        opt.step()

    ms = median_ms(step, max(rounds // 3, 5))
    say("gpt2-small", mode="eager", ms=ms, tokens_per_s=16 * 1024 / ms * 1e3)


def bound(rounds):
    """Kernels that memory limits, on 1 GiB."""
    n = GIB // 4
    x = torch.randn(n, device=DEV)
    rows = x.view(-1, 1024)
    y = torch.empty_like(x)
    cases = [
        ("exp", 2, lambda: torch.exp(x, out=y)),
        ("add", 3, lambda: torch.add(x, y, out=y)),
        ("sum", 1, lambda: x.sum()),
        ("softmax", 2, lambda: torch.softmax(rows, 1)),
        ("layernorm", 2, lambda: F.layer_norm(rows, (1024,))),
    ]
    for name, passes, run in cases:
        ms = median_ms(run, rounds)
        say("bound", op=name, ms=ms, gbps=passes * GIB / ms / 1e6)
    del y
    p = nn.Parameter(x)
    p.grad = torch.randn_like(x)
    opt = torch.optim.AdamW([p], fused=True)
    ms = median_ms(opt.step, rounds)
    say("bound", op="adamw", ms=ms, gbps=7 * GIB / ms / 1e6)  # reads four tensors, writes three


CASES = {"copy": copy, "product": product, "small": small_mlp, "large": large_mlp, "gpt": gpt, "bound": bound}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", default=",".join(CASES))
    args.add_argument("--rounds", type=int, default=30)
    args = args.parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu.py: PyTorch sees no GPU here")
    say("device", name=torch.cuda.get_device_name())
    for name in args.only.split(","):
        try:
            CASES[name](args.rounds)
        except Exception as e:  # one case must not cost the others
            say(name, error=f"{type(e).__name__}: {e}")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
