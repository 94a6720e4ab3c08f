"""One process, one thread: what bench/local measures, in torch."""
import sys

from common import emit, timed
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

SECONDS = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
LANE = "torch-" + (sys.argv[2] if len(sys.argv) > 2 else "default")

torch.set_num_threads(1)
torch.manual_seed(0)


def row(name, call):
    emit(LANE, "Local/" + name, timed(SECONDS, call))


def many(name, call, n):
    """Calls too short for a clock, n at a time."""
    def run():
        for _ in range(n):
            call()
    emit(LANE, "Local/" + name, [t / n for t in timed(SECONDS, run)])


def training(model, loss, rate):
    sgd = torch.optim.SGD(model.parameters(), lr=rate)

    def step():
        sgd.zero_grad(set_to_none=True)
        loss(model).backward()
        sgd.step()
    return step


a, b, out = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.empty(1024, 1024)
row("sgemm1024", lambda: torch.mm(a, b, out=out))

x, y = torch.randn(64, 784), torch.tensor([i * 7 % 10 for i in range(64)])
mlp = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
row("mlp", training(mlp, lambda m: F.cross_entropy(m(x), y), 0.05))

images = x[:8].reshape(8, 1, 28, 28)
convnet = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * 49, 10))
row("convnet", training(convnet, lambda m: F.cross_entropy(m(images), y[:8]), 0.05))


class Block(nn.Module):
    """Attention and a network with GELU, each on the normalised input and added to it."""

    def __init__(self, width=256, heads=4, length=128):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, x):
        batch, length, width = x.shape
        def split(t):
            return t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = (split(t) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        looks = torch.softmax(q @ k.transpose(-1, -2) * (width // self.heads) ** -0.5 + self.mask, -1)
        x = x + self.out((looks @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


tokens = torch.randn(8, 128, 256)
row("block", training(Block(), lambda m: m(tokens).square().mean(), 0.01))

plain, taped = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
many("add3x3", lambda: torch.add(plain, plain), 1000)
many("add3x3-taped", lambda: torch.add(taped, plain), 1000)


def chain(n=100):
    z = taped
    for _ in range(n):
        z = z * plain
    start = time.perf_counter()
    z.backward(torch.ones(3, 3))
    return (time.perf_counter() - start) / n


took, end = [], time.perf_counter() + SECONDS
while time.perf_counter() < end:
    took.append(chain())
emit(LANE, "Local/chain100-backward", took)
row("add1024", lambda: a + a)
