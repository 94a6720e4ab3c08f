"""Golden numbers of convolutions, pooling and batch norm, forward and gradients, from PyTorch: python3 images.py > images.json"""
import json
import torch
import torch.nn.functional as F

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)


def flat(t):
    return [round(v, 10) for v in t.detach().flatten().tolist()]


def case(name, f, **args):
    for t in args.values():
        t.requires_grad_()
    y = f(**args)
    gy = torch.sin(torch.arange(y.numel()) * 1.7).reshape(y.shape) + 0.3
    y.backward(gy)
    return {"name": name, "args": {k: {"shape": list(t.shape), "v": flat(t), "grad": flat(t.grad)} for k, t in args.items()},
            "shape": list(y.shape), "y": flat(y)}


x = lambda: torch.randn(2, 3, 6, 7).mul(100).round().div(100)
w = lambda: torch.randn(4, 3, 3, 2).mul(100).round().div(100)
b = lambda: torch.randn(4).mul(100).round().div(100)
ties = lambda: torch.randint(0, 3, (2, 2, 6, 7)).double()
cases = [
    case("conv", lambda x, w, b: F.conv2d(x, w, b), x=x(), w=w(), b=b()),
    case("conv stride pad dilation", lambda x, w, b: F.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 3)), x=x(), w=w(), b=b()),
    case("max pool", lambda x: F.max_pool2d(x, 2), x=x()),
    case("max pool of ties", lambda x: F.max_pool2d(x, 3, stride=(1, 2), padding=1), x=ties()),
    case("max pool dilated", lambda x: F.max_pool2d(x, 2, stride=1, dilation=(2, 3)), x=x()),
    case("avg pool", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), x=x()),
    case("avg pool inside", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False), x=x()),
]
norm = torch.nn.BatchNorm2d(3)
norm.weight.data, norm.bias.data = torch.tensor([0.5, 1.5, -2.0]), torch.tensor([0.1, -0.2, 0.3])


def bn(x, gamma, beta):
    return F.batch_norm(x, norm.running_mean, norm.running_var, gamma, beta, norm.training, 0.1, 1e-5)


def params():
    return {"gamma": torch.tensor([0.5, 1.5, -2.0]), "beta": torch.tensor([0.1, -0.2, 0.3])}


running = []
for k in range(3):
    if k == 2:
        norm.eval()
    cases.append(case(f"batch norm {k}", bn, x=x() * 2 + 1, **params()))
    running.append({"mean": flat(norm.running_mean), "var": flat(norm.running_var)})
print(json.dumps({"torch": torch.__version__, "cases": cases, "running": running}))
