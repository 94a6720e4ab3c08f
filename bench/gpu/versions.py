"""What Python has here, as lines of JSON. The last line has all of it; one before it is of use where the driver does not come back."""
import json
import re
import sys

said = {"case": "python", "python": sys.version.split()[0], "executable": sys.executable}


def say(**more):
    said.update(more)
    print(json.dumps(said), flush=True)


try:
    import torch
except Exception as error:
    say(error=f"{type(error).__name__}: {error}")
    sys.exit(0)
say(torch=torch.__version__, cuda=torch.version.cuda)
with open("/proc/self/maps") as maps:
    found = sorted(set(re.findall(r"/\S*libcublasLt\.so\S*", maps.read())))
say(cublaslt=found[0] if found else "")
say(cudnn=torch.backends.cudnn.version())
for name in ("triton", "transformers"):
    try:
        say(**{name: __import__(name).__version__})
    except Exception:
        pass
say(gpus=torch.cuda.device_count())
