"""The worker of bench/elastic: it tells who it is, and stays until the other end hangs up."""
import os
import socket

host, _, port = os.environ["WEFT_BENCH_ELASTIC_WITNESS"].rpartition(":")
with socket.create_connection((host, int(port))) as s:
    s.sendall(f"{os.environ['RANK']} {os.getpid()}\n".encode())
    s.recv(1)
