"""torch's TCPStore on what bench/store measures: one server process, and clients in processes of their own.

    store.py [clients of which server, as host:port]

It prints lines in the format of Go's benchmarks, with the lane torch; with an address, which may be that of a Weft server, torch-there.
"""
import datetime
import statistics
import sys
import time

from common import mp
import torch.distributed as dist

PATIENCE = datetime.timedelta(seconds=60)
TRIPS = 3000
TOTALS = {"add": 24000, "get": 16000}


def emit(name, n, nanoseconds, value, unit):
    print(f"BenchmarkStore/lane={LANE}/{name}\t{n}\t{nanoseconds:.0f} ns/op\t{value:.6g} {unit}", flush=True)


def serve(port, end):
    store = dist.TCPStore("127.0.0.1", 0, None, True, PATIENCE, False)
    port.put(store.port)
    end.wait()


def client(host, port):
    return dist.TCPStore(host, port, None, False, PATIENCE, False)


def round_trips(store):
    store.set("k", "v" * 8)
    store.set("cas", "a")
    for name, n, call in (
        ("add", TRIPS, lambda: store.add("n", 1)),
        ("set+get", TRIPS * 2 // 3, lambda: (store.set("k", "v" * 8), store.get("k"))),
        ("get", TRIPS, lambda: store.get("k")),
        ("compare_set", TRIPS, lambda: store.compare_set("cas", "a", "a")),
        ("wait", TRIPS, lambda: store.wait(["k"])),
    ):
        for _ in range(50):
            call()
        took = []
        for _ in range(n):
            start = time.perf_counter_ns()
            call()
            took.append(time.perf_counter_ns() - start)
        middle = statistics.median(took)
        emit(name, n, middle, middle / 1e3, "p50-µs")


def share(host, port, op, n, ready, go, took):
    store = client(host, port)
    store.set("shared", "x" * 8)
    store.add("c", 1)
    call = (lambda: store.add("c", 1)) if op == "add" else (lambda: store.get("shared"))
    ready.release()
    go.wait()
    busy, start = time.process_time(), time.perf_counter()
    for _ in range(n):
        call()
    end = time.perf_counter()
    took.put((start, end, time.process_time() - busy))


def ticks(server):
    """How long the server has kept processors, in seconds; 0 where it is not ours."""
    if not server:
        return 0
    with open(f"/proc/{server.pid}/stat") as f:
        fields = f.read().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def rates(host, port, server):
    for op, total in TOTALS.items():
        for n in (1, 4, 16):
            ready, go, took = mp.Semaphore(0), mp.Event(), mp.Queue()
            clients = [mp.Process(target=share, args=(host, port, op, total // n, ready, go, took)) for _ in range(n)]
            for p in clients:
                p.start()
            for _ in clients:
                ready.acquire()
            before = ticks(server)
            go.set()
            times = [took.get() for _ in clients]
            busy = ticks(server) - before + sum(t[2] for t in times)
            for p in clients:
                p.join()
            seconds = max(t[1] for t in times) - min(t[0] for t in times)
            emit(f"{op}/clients={n}", total, 1e9 * seconds / total, total / seconds, "ops/s")
            if server:
                emit(f"cpu/{op}/clients={n}", total, 1e9 * busy / total, 1e6 * busy / total, "cpu-µs")


if __name__ == "__main__":
    mp.set_start_method("fork")
    LANE, end, server = "torch", mp.Event(), None
    if len(sys.argv) > 1:
        LANE, (host, _, port) = "torch-there", sys.argv[1].rpartition(":")
        port = int(port)
    else:
        host, answer = "127.0.0.1", mp.Queue()
        server = mp.Process(target=serve, args=(answer, end), daemon=True)
        server.start()
        port = answer.get()
    round_trips(client(host, port))
    rates(host, port, server)
    end.set()
