"""How much memory a step of the transformer block needs at most, beside what is there before and after it (Linux).

Run with MALLOC_MMAP_THRESHOLD_=65536, so that large tensors go back to the system when they are freed.
"""
import contextlib
import io
import os
import sys

if os.environ.get("MALLOC_MMAP_THRESHOLD_") != "65536":
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"
    os.execv(sys.executable, [sys.executable] + sys.argv)

sys.argv[1:] = ["0.01"]
with contextlib.redirect_stdout(io.StringIO()):
    import local


def status(key):
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key))


model = local.Block()
step = local.training(model, lambda m: m(local.tokens).square().mean(), 0.01)
for _ in range(5):
    for p in model.parameters():
        p.grad = None
    before = status("VmRSS")
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")
    step()
    print(f"a step of the block needs {(status('VmHWM') - before) / 1e6:.1f} MB")
