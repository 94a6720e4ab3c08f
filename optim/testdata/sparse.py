#!/usr/bin/env python3
"""Writes sparse.json: what torch's optimizers make of sparse gradients. Made with torch 1.13.1:

    python3 sparse.py > sparse.json

The problem: a table of 6 rows of 2 numbers, in float64, of which number i of row r is 0.3·r − 0.5·i at first. In step n (counted from 1)
entry k of the gradient, for k = 0 … n mod 5, belongs to row (7·n + k·k) mod 6, so that rows come twice, and is for number i

    (p − (0.5 − 0.25·i)) + 0.2·sin(0.7·n + k + i)
"""
import json

import torch

STEPS = [1, 2, 10, 100]


def gradient(p, n):
    k = torch.arange(n % 5 + 1)
    rows = (7 * n + k * k) % 6
    i = torch.arange(2, dtype=torch.float64)
    values = p[rows] - (0.5 - 0.25 * i) + 0.2 * torch.sin(0.7 * n + k.double()[:, None] + i)
    return torch.sparse_coo_tensor(rows[None], values, p.shape)


def run(make):
    p = (0.3 * torch.arange(6, dtype=torch.float64)[:, None] - 0.5 * torch.arange(2, dtype=torch.float64)).requires_grad_()
    opt, at = make([p]), {}
    for n in range(1, STEPS[-1] + 1):
        p.grad = gradient(p.detach(), n)
        opt.step()
        if n in STEPS:
            at[n] = p.flatten().tolist()
    return at


RULES = [
    ("SGD", dict(lr=0.05)),
    ("SGD", dict(lr=0.002, maximize=True)),
    ("SGD", dict(lr=0.05, momentum=0.9)),
    ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True)),
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.3)),
    ("Adagrad", dict()),
    ("Adagrad", dict(lr=0.05, lr_decay=0.1, initial_accumulator_value=0.5, eps=1e-6)),
    ("Adagrad", dict(lr=0.05, maximize=True)),
    ("SparseAdam", dict()),
    ("SparseAdam", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-3)),
]


def title(rule, options):
    return " ".join([rule] + [f"{k}={v}" for k, v in options.items()]).replace(", ", ",")


print(json.dumps({title(r, o): run(lambda ps: getattr(torch.optim, r)(ps, **o)) for r, o in RULES}, separators=(",", ":")).replace('},', '},\n'))
