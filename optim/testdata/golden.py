#!/usr/bin/env python3
"""Writes golden.json: what torch's optimizers, schedules and clipping give on a small problem. Made with torch 1.13.1:

    python3 golden.py > golden.json

The problem: three parameters in float64. Number k at place i of parameter j has, in step n (counted from 1), the gradient

    a·(p − t) + b·tanh(3·p) + 0.2·sin(0.7·n + i)    with a = 0.5 + 0.25·j, t = 1 − 0.5·i, b = 0.3·j

Parameter 1 has none in every third step, and parameter 2 has none before step 5.
"""
import json
import math

import torch

START = [[0.5, -1.5, 2.0, 0.1], [1.0, -0.25], [-0.75]]
STEPS = [1, 2, 10, 100]


def gradient(p, j, n):
    i = torch.arange(p.numel(), dtype=torch.float64)
    return (0.5 + 0.25 * j) * (p - (1 - 0.5 * i)) + 0.3 * j * torch.tanh(3 * p) + 0.2 * torch.sin(0.7 * n + i)


def has_gradient(j, n):
    return not (j == 1 and n % 3 == 0 or j == 2 and n < 5)


def gradients(params, n):
    for j, p in enumerate(params):
        p.grad = gradient(p.detach(), j, n) if has_gradient(j, n) else None


def parameters():
    return [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in START]


def run(make, clip=None):
    params = parameters()
    opt, at, norms = make(params), {}, []
    for n in range(1, STEPS[-1] + 1):
        gradients(params, n)
        if clip:
            norms.append(float(torch.nn.utils.clip_grad_norm_(params, clip)))
        opt.step()
        if n in STEPS:
            at[n] = [p.tolist() for p in params]
    return {"at": at, "norms": [norms[n - 1] for n in STEPS] if clip else None}


RULES = [
    ("SGD", dict(lr=0.05)),
    ("SGD", dict(lr=0.05, weight_decay=0.1)),
    ("SGD", dict(lr=0.05, maximize=True)),
    ("SGD", dict(lr=0.05, momentum=0.9)),
    ("SGD", dict(lr=0.05, momentum=0.9, weight_decay=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.9, dampening=0.3)),
    ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True)),
    ("SGD", dict(lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1, maximize=True)),
    ("Adam", dict()),
    ("Adam", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6)),
    ("Adam", dict(lr=0.05, weight_decay=0.1)),
    ("Adam", dict(lr=0.05, amsgrad=True)),
    ("Adam", dict(lr=0.05, maximize=True)),
    ("Adam", dict(lr=0.05, amsgrad=True, weight_decay=0.1, maximize=True)),
    ("AdamW", dict()),
    ("AdamW", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.1)),
    ("AdamW", dict(lr=0.05, amsgrad=True)),
    ("AdamW", dict(lr=0.05, weight_decay=0.1, amsgrad=True, maximize=True)),
    ("Adagrad", dict()),
    ("Adagrad", dict(lr=0.05, lr_decay=0.1)),
    ("Adagrad", dict(lr=0.05, initial_accumulator_value=0.5, eps=1e-6)),
    ("Adagrad", dict(lr=0.05, weight_decay=0.1)),
    ("Adagrad", dict(lr=0.05, lr_decay=0.1, weight_decay=0.1, initial_accumulator_value=0.5, maximize=True)),
    ("Adadelta", dict()),
    ("Adadelta", dict(lr=0.5, rho=0.95, eps=1e-4)),
    ("Adadelta", dict(weight_decay=0.1)),
    ("Adadelta", dict(weight_decay=0.1, maximize=True)),
    ("RMSprop", dict()),
    ("RMSprop", dict(lr=0.05, alpha=0.9, eps=1e-6)),
    ("RMSprop", dict(weight_decay=0.1)),
    ("RMSprop", dict(centered=True)),
    ("RMSprop", dict(momentum=0.9)),
    ("RMSprop", dict(lr=0.001, centered=True, momentum=0.9, weight_decay=0.1, maximize=True)),
    ("Rprop", dict()),
    ("Rprop", dict(lr=0.05, etas=(0.6, 1.1), step_sizes=(1e-3, 0.2))),
    ("Rprop", dict(step_sizes=(1e-6, 0.1), maximize=True)),
    ("Adamax", dict()),
    ("Adamax", dict(lr=0.05, betas=(0.8, 0.95), eps=1e-6)),
    ("Adamax", dict(lr=0.05, weight_decay=0.1)),
    ("Adamax", dict(lr=0.05, weight_decay=0.1, maximize=True)),
]


def title(rule, options):
    return " ".join([rule] + [f"{k}={v}" for k, v in options.items()]).replace(", ", ",")


def rates(make, n=40):
    opt = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, out = make(opt), []
    for _ in range(n):
        out.append(opt.param_groups[0]["lr"])
        opt.step()
        scheduler.step()
    return out


def schedules():
    s = torch.optim.lr_scheduler
    cycle = dict(max_lr=1.0, total_steps=40, cycle_momentum=False)
    return {
        "StepLR": rates(lambda o: s.StepLR(o, 7, 0.3)),
        "MultiStep": rates(lambda o: s.MultiStepLR(o, [5, 20, 12], 0.3)),
        "Exponential": rates(lambda o: s.ExponentialLR(o, 0.9)),
        "Polynomial": rates(lambda o: s.PolynomialLR(o, 30, 2.0)),
        "LinearWarmup": rates(lambda o: s.LinearLR(o, 0.1, 1.0, 12)),
        "Cosine": rates(lambda o: s.CosineAnnealingLR(o, 25, 0.1)),
        "CosineRestarts": rates(lambda o: s.CosineAnnealingWarmRestarts(o, 5, 2, 0.1)),
        "OneCycle": rates(lambda o: s.OneCycleLR(o, **cycle)),
        "OneCycle linear": rates(lambda o: s.OneCycleLR(o, pct_start=0.4, anneal_strategy="linear", div_factor=10, final_div_factor=100, **cycle)),
        "OneCycle three phases": rates(lambda o: s.OneCycleLR(o, three_phase=True, **cycle)),
        "Then": rates(lambda o: s.SequentialLR(o, [s.LinearLR(o, 0.1, 1.0, 10), s.ExponentialLR(o, 0.9)], [10])),
        "Times": rates(lambda o: s.ChainedScheduler([s.LinearLR(o, 0.1, 1.0, 10), s.ExponentialLR(o, 0.9)])),
    }


def grouped(params):
    groups = [dict(params=params[:2], lr=0.05, weight_decay=0.1), dict(params=params[2:], lr=0.01)]
    return torch.optim.SGD(groups, lr=1.0, momentum=0.9)


def scheduled(params):
    opt = torch.optim.Adam(params, lr=0.05)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 50, 0.005)
    step = opt.step

    class Both:
        def step(self):
            step()
            scheduler.step()

    return Both()


optimizers = {title(rule, o): run(lambda ps: getattr(torch.optim, rule)(ps, **o)) for rule, o in RULES}
optimizers["groups"] = run(grouped)
optimizers["scheduled"] = run(scheduled)
for clip in (0.5, 100.0):
    optimizers[f"clipped {clip}"] = run(lambda ps: torch.optim.SGD(ps, lr=0.05, momentum=0.9), clip)
print(json.dumps({"start": START, "steps": STEPS, "optimizers": optimizers, "schedules": schedules()}, indent=None, separators=(",", ":")).replace('"at"', '\n"at"').replace('],"', '],\n"'))
