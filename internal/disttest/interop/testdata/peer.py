"""PyTorch at the other end of a test. Each line of standard input is a command as JSON, which a thread of its own runs; each line of
standard output answers one. Text is latin-1, so that it can be any bytes."""
import datetime
import gc
import json
import os
import sys
import threading
import warnings

warnings.simplefilter("ignore")
import torch
import torch.distributed as dist

objects = {}
turn = threading.Lock()  # for standard output


def given(v):
    if isinstance(v, str):
        return v.encode("latin-1")
    if isinstance(v, list):
        return [given(x) for x in v]
    if isinstance(v, dict):
        return datetime.timedelta(seconds=v["seconds"])
    return v


def told(v):
    if isinstance(v, bytes):
        return v.decode("latin-1")
    if isinstance(v, (list, tuple)):
        return [told(x) for x in v]
    return v if v is None or isinstance(v, (bool, int, str)) else repr(v)


def run(cmd):
    name = cmd["object"]
    if cmd["do"] == "new":
        kwargs = {k: given(v) for k, v in cmd["named"].items()}
        objects[name] = getattr(dist, cmd["class"])(*given(cmd["args"]), **kwargs)
    elif cmd["do"] == "drop":
        del objects[name]
        gc.collect()
    elif cmd["do"] == "clone":
        objects[cmd["args"][0]] = objects[name].clone()
    elif cmd["do"] == "read":
        return told(getattr(objects[name], cmd["method"]))
    else:
        return told(getattr(objects[name], cmd["method"])(*given(cmd["args"])))


def answer(line):
    cmd = json.loads(line)
    out = {"id": cmd["id"]}
    try:
        out["value"] = run(cmd)
    except Exception as e:
        out["error"], out["type"] = str(e), type(e).__name__
    with turn:
        print(json.dumps(out), flush=True)


hello = {"version": torch.__version__, "methods": dir(dist.TCPStore)}
print(json.dumps({"id": 0, "value": hello}), flush=True)
for line in sys.stdin:
    threading.Thread(target=answer, args=(line,), daemon=True).start()
os._exit(0)  # whatever threads its stores have
