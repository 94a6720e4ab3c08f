"""Files of safetensors at the other end of a test: tensors.py load FILE prints each tensor as JSON, tensors.py save FILE writes those that standard input
has, tensors.py dtypes - prints those that can be written. With the library of that name where there is one, and else by the format's own words: a length, a header in JSON, bytes."""
import ctypes
import json
import struct
import sys

try:
    import safetensors
    from safetensors import deserialize

    name = "safetensors " + safetensors.__version__

    def serialize(tensors, metadata):
        if hasattr(safetensors, "TensorSpec"):  # since 0.8, where the library takes addresses
            kept = {t: ctypes.create_string_buffer(x["data"], max(len(x["data"]), 1)) for t, x in tensors.items()}
            tensors = {t: safetensors.TensorSpec(dtype=x["dtype"], shape=x["shape"], data_ptr=ctypes.addressof(kept[t]), data_len=len(x["data"]))
                       for t, x in tensors.items()}
        return safetensors.serialize(tensors, metadata)
except ImportError:
    name = "no safetensors"
    safetensors = None

    def deserialize(b):
        (n,) = struct.unpack("<Q", b[:8])
        header = json.loads(b[8 : 8 + n])
        header.pop("__metadata__", None)
        for t, info in header.items():
            begin, end = info["data_offsets"]
            yield t, {"dtype": info["dtype"], "shape": info["shape"], "data": b[8 + n + begin : 8 + n + end]}

    def serialize(tensors, metadata):
        header, data = {"__metadata__": metadata}, b""
        for t, x in tensors.items():
            header[t] = {"dtype": NAMES[x["dtype"]], "shape": x["shape"], "data_offsets": [len(data), len(data) + len(x["data"])]}
            data += x["data"]
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data


PAIRS = "float4_e2m1fn_x2"  # two to a byte, which the library takes for one element


def theirs(x):
    x["dtype"] = OURS[x["dtype"]]
    if x["dtype"] == PAIRS and hasattr(safetensors, "TensorSpec"):
        x["shape"] = x["shape"][:-1] + [x["shape"][-1] // 2]
    return x


def writes(dtype):
    try:
        return len(serialize({"none": theirs({"dtype": dtype, "shape": [0], "data": b""})}, {})) > 0
    except Exception as e:
        assert "dtype" in str(e).lower(), e
        return False


# The library writes these names of its own for ours.
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
         "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64", "float8_e4m3fn": "F8_E4M3",
         "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0", PAIRS: "F4"}
OURS = {v: k for k, v in NAMES.items()}

what, path = sys.argv[1:]
out = {"with": name, "tensors": {}}
if what == "load":
    with open(path, "rb") as f:
        for t, x in deserialize(f.read()):
            out["tensors"][t] = {"dtype": x["dtype"], "shape": list(x["shape"]), "data": bytes(x["data"]).hex()}
elif what == "dtypes":
    out["dtypes"] = [x for x in OURS if writes(x)]
else:
    given = json.load(sys.stdin)
    tensors = {t: theirs({"dtype": x["dtype"], "shape": x["shape"], "data": bytes.fromhex(x["data"])}) for t, x in given.items()}
    with open(path, "wb") as f:
        f.write(serialize(tensors, {"by": name}))
print(json.dumps(out))
