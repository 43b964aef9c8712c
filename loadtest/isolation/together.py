#!/usr/bin/env python3
"""Sends all attacks of attacks.py at once beside a load of writes and queries, and measures what others wait and how much
memory the server takes.

    loadtest/isolation/together.py PROGRAM [--seconds 300] [--clients 64] [--memory 256MiB ...] [--limit 1.25] [--mongod PATH]

`--clients 0` sends the load only. `--limit FACTOR` puts the server into a memory cgroup of FACTOR times its `server.memory`,
which needs root and cgroup v1. `--mongod` stores in a replica set of one mongod instead of the embedded store. Prints one row per
memory: the greatest resident memory, its ratio to `server.memory`, whether the kernel ended the server, and the median,
99th percentile and maximum of pings and acks of others in milliseconds. Everything listens on loopback only.
"""

import argparse
import collections
import contextlib
import http.client
import os
import subprocess
import tempfile
import threading
import time
import urllib.parse

from attacks import ATTACKS, Probe, Server, free_port, sensors, texts

CGROUPS = "/sys/fs/cgroup/memory"
QUERIES = [
    "SELECT mean(v), max(v) FROM load WHERE time > now() - 10m GROUP BY time(10s), sensor",
    "SELECT percentile(v, 95) FROM load WHERE time > now() - 10m GROUP BY sensor",
    "SELECT * FROM load WHERE time > now() - 1m LIMIT 5000",
    "SELECT mean(v) FROM m GROUP BY sensor",
]


@contextlib.contextmanager
def replica_set(program):
    """A mongod on loopback; gives its address."""
    import pymongo

    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        arguments = [program, "--replSet", "rs", "--bind_ip", "127.0.0.1", "--port", str(port), "--dbpath", folder]
        arguments += ["--nounixsocket", "--wiredTigerCacheSizeGB", "1", "--logpath", f"{folder}/log"]
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
                member = {"_id": 0, "host": f"127.0.0.1:{port}"}
                client.admin.command("replSetInitiate", {"_id": "rs", "members": [member]})
                while not client.admin.command("hello")["isWritablePrimary"]:
                    time.sleep(0.1)
            yield f"mongodb://127.0.0.1:{port}/d?directConnection=true"
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def memory_limit(process, limit):
    """Keeps a process in a cgroup of its own."""
    folder = f"{CGROUPS}/hourglass-{process.pid}"
    os.mkdir(folder)
    try:
        for file, value in ("memory.limit_in_bytes", limit), ("cgroup.procs", process.pid):
            with open(f"{folder}/{file}", "w") as opened:
                opened.write(str(value))
        yield
    finally:
        process.kill()
        process.wait()
        os.rmdir(folder)


def bodies():
    """Bodies of 2,500 sensors, a reading each, without timestamps."""
    return [
        "\n".join(f"load,sensor={n} v={n % 97}.5,w={n}i,t=\"{'x' * (n % 40)}\"" for n in range(k * 2_500, k * 2_500 + 2_500)).encode()
        for k in range(4)
    ]


class Load:
    """Clients that repeat requests until told to stop."""

    def __init__(self, server):
        self.server, self.is_over, self.threads = server, threading.Event(), []
        self.statuses = collections.Counter()

    def repeat(self, what, requests):
        def run():
            turn = 0
            while not self.is_over.is_set():
                method, path, body, headers = requests[turn % len(requests)]
                turn += 1
                try:
                    status = self.server.request(method, path, body, headers)[0]
                # An answer that cannot be completed is aborted.
                except (OSError, http.client.HTTPException) as error:
                    status = type(error).__name__
                self.statuses[what, status] += 1
                if status != 200 and status != 204:
                    self.is_over.wait(0.02)

        self.threads.append(threading.Thread(target=run, daemon=True))

    def table(self):
        rows = collections.defaultdict(list)
        for (what, status), count in sorted(self.statuses.items(), key=str):
            rows[what].append(f"{count} x {status}")
        return "; ".join(f"{what} {', '.join(counts)}" for what, counts in rows.items())


def measure(options, memory, store):
    server = Server(options.program, memory, store)
    bound = int(memory.removesuffix("MiB"))
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop)
        if options.limit:
            stack.enter_context(memory_limit(server.process, int(bound * options.limit) << 20))
        # As many as the least memory has room for, beside those of the load.
        sensors(server, 15_000)
        texts(server)
        load = Load(server)
        for body in bodies():
            load.repeat("write", [("POST", "/write?db=d", body, {})])
        for query in QUERIES:
            load.repeat("query", [("GET", f"/query?db=d&q={urllib.parse.quote(query)}", None, {})])
        made = {name: make() for name, (_, _, make) in ATTACKS.items()}
        for number in range(options.clients):
            name = list(made)[number % len(made)]
            load.repeat(name, [made[name]])
        probes = [Probe(server, "GET", "/ping"), Probe(server, "POST", "/write?db=other", b"m,s=1 v=1")]
        before = server.cpu()
        for thread in probes + load.threads:
            thread.start()
        peak, until = 0.0, time.time() + options.seconds
        while time.time() < until and server.process.poll() is None:
            peak = max(peak, server.memory("VmHWM"))
            time.sleep(0.5)
        is_alive, cpu = server.process.poll() is None, server.cpu() - before if server.process.poll() is None else 0.0
        load.is_over.set()
        for probe in probes:
            probe.is_over.set()
        for probe in probes:
            probe.join(10)
        # The clients of the load may have all connections of this address for a moment.
        polls = "?"
        while is_alive and polls == "?":
            with contextlib.suppress(OSError):
                polls = server.long_polls()
        print(
            f"| {memory} | {'MongoDB' if store else 'embedded'} | {'runs' if is_alive else 'ended'} | {peak:.0f} | {peak / bound:.2f} "
            f"| {cpu:.0f} | {polls} | {probes[0].figures()} | {probes[1].figures()} |",
            flush=True,
        )
        if options.show:
            print(load.table(), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--memory", nargs="*", default=["128MiB", "256MiB", "512MiB"])
    parser.add_argument("--limit", type=float)
    parser.add_argument("--mongod")
    parser.add_argument("--show", action="store_true", help="print the statuses of all requests")
    options = parser.parse_args()
    print("| memory | store | server | MiB peak | ratio | CPU s | long polls | ping p50, p99, max ms | ack p50, p99, max ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for memory in options.memory:
        with replica_set(options.mongod) if options.mongod else contextlib.nullcontext() as store:
            measure(options, memory, store)


if __name__ == "__main__":
    main()
