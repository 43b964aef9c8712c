#!/usr/bin/env python3
"""Sends requests that are expensive on purpose, and measures what others wait meanwhile.

    loadtest/isolation/attacks.py PROGRAM [--only NAME ...] [--clients N] [--memory 512MiB]

Each attack gets a fresh server on the embedded store. Beside it, one client pings and another one posts a reading, every
10 ms each. Prints one row per attack: requests and their statuses, CPU seconds and memory of the server, polls of over
20 ms by lane, and the median, 99th percentile and maximum of both clients in milliseconds. The server listens on loopback only.
"""

import argparse
import collections
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse

SENSORS = 40_000
DEADLINE = 90
HOUR = 1768485600


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, program, memory, store=None):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        arguments = [program, "serve", "--data-dir", self.folder.name, "--listen", f"127.0.0.1:{self.port}"]
        if store:
            arguments += ["--store", store]
        environment = dict(os.environ, HOURGLASS_SERVER_MEMORY=memory)
        self.process = subprocess.Popen(arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.time() + 60
        while time.time() < until:
            try:
                if self.request("GET", "/ready", timeout=1)[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the server does not start")

    def request(self, method, path, body=None, headers=None, timeout=DEADLINE):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def write(self, lines, **more):
        status, text = self.request("POST", "/write?db=d&precision=s", "\n".join(lines).encode(), **more)
        if status != 204:
            raise SystemExit(f"{status}: {text[:200]}")

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, key):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith(key):
                return int(line.split()[1]) / 1024
        return 0.0

    def forget_peak(self):
        with open(f"/proc/{self.process.pid}/clear_refs", "w") as file:
            file.write("5")

    def long_polls(self):
        lines = self.request("GET", "/metrics")[1].decode().splitlines()
        found = [line.split('"')[1] + line.split("}")[1] for line in lines if "lane_long_polls_total{" in line]
        return ", ".join(found) or "none"

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.folder.cleanup()


def sensors(server, count=SENSORS):
    for start in range(0, count, 5_000):
        server.write(f"m,sensor={n} v=1 {HOUR}" for n in range(start, start + 5_000))


def texts(server):
    for start in range(0, 1_000, 50):
        server.write(f'log t="{n:06}{"x" * 60_000}" {HOUR + n}' for n in range(start, start + 50))


def nothing(_server):
    pass


def names(count):
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "&".join(f"tag.meta.{letters[n // 100]}{n % 100}=" for n in range(count))


def form(text):
    return "POST", "/query?db=d", ("q=" + urllib.parse.quote(text)).encode(), {
        "content-type": "application/x-www-form-urlencoded"
    }


def patterns():
    condition = " OR ".join(f"t=~/[0-7].{{13}}[A-Z]{n}/" for n in range(480))
    return form(f"SELECT t FROM log WHERE {condition}")


def tag_keys():
    keys = ",".join(f"k{n}" for n in range(170_000))
    return form(f"SHOW TAG VALUES WITH KEY IN ({keys})")


def compressed(text, path, method="POST", kind="text/plain"):
    return method, path, gzip.compress(text), {"content-encoding": "gzip", "content-type": kind}


def columns():
    header = ",".join(["sensor"] + [f"{'c' * 15_990}{n}" for n in range(250)])
    return compressed(header.encode() + b"\nm\n" * 4, "/api/v1/meta?db=d", kind="text/csv")


def metadata():
    lines = [json.dumps({"sensor": f"m,sensor={n}", "meta": {"site": f"s{n % 100}"}}) for n in range(100_000)]
    return compressed("\n".join(lines).encode(), "/api/v1/meta?db=d", kind="application/x-ndjson")


# Name: the finding, what is stored before, and the request.
ATTACKS = {
    "filters": (1, sensors, lambda: ("GET", "/api/v1/readings?db=d&" + names(2_200), None, {})),
    "patterns": (2, texts, patterns),
    "tag-keys": (4, sensors, tag_keys),
    "settings": (
        6,
        nothing,
        lambda: compressed(b'{"a":[' + b'{"":0},' * 2_800_000 + b"0]}", "/api/v1/databases/d", "PATCH", "application/json"),
    ),
    "bad-lines": (7, nothing, lambda: compressed(b"x\n" * 10_000_000, "/write?db=e")),
    "columns": (8, sensors, columns),
    "tag-values": (
        11,
        sensors,
        lambda: ("GET", "/api/v1/readings?db=d&" + "&".join(f"tag.sensor={n}" for n in range(2_000)), None, {}),
    ),
    "metadata": (13, sensors, metadata),
}


class Probe(threading.Thread):
    """Repeats a request every 10 ms and keeps how long each one took."""

    def __init__(self, server, method, path, body=None):
        super().__init__(daemon=True)
        self.server, self.what, self.times = server, (method, path, body), []
        self.is_over = threading.Event()

    def run(self):
        connection = None
        while not self.is_over.is_set():
            began = time.perf_counter()
            try:
                connection = connection or http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=DEADLINE)
                method, path, body = self.what
                connection.request(method, path, body=body)
                connection.getresponse().read()
            except OSError:
                connection = None
            self.times.append((time.perf_counter() - began) * 1000)
            self.is_over.wait(0.01)

    def figures(self):
        times = sorted(self.times)
        return ", ".join(f"{times[min(int(len(times) * part), len(times) - 1)]:.0f}" for part in (0.5, 0.99, 1))


def attack(program, memory, name, clients):
    number, fill, make = ATTACKS[name]
    server = Server(program, memory)
    try:
        fill(server)
        method, path, body, headers = make()
        probes = [Probe(server, "GET", "/ping"), Probe(server, "POST", "/write?db=other", b"m,s=1 v=1")]
        server.forget_peak()
        before, resident = server.cpu(), server.memory("VmRSS")
        statuses = collections.Counter()

        def ask():
            try:
                statuses[server.request(method, path, body, headers)[0]] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(clients)]
        began = time.time()
        for thread in probes + threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.1, began + DEADLINE - time.time()))
        took = time.time() - began
        for probe in probes:
            probe.is_over.set()
        for probe in probes:
            probe.join(DEADLINE)
        asked = ", ".join(f"{count} x {status}" for status, count in sorted(statuses.items(), key=str))
        cpu, peak = server.cpu() - before, server.memory("VmHWM")
        print(
            f"| {number} {name} | {asked or 'none ended'} | {took:.1f} | {cpu:.1f} | {resident:.0f} | {peak:.0f} "
            f"| {server.long_polls()} "
            f"| {probes[0].figures()} | {probes[1].figures()} |",
            flush=True,
        )
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--memory", default="512MiB")
    options = parser.parse_args()
    print("| attack | answers | seconds | CPU s | MiB before | MiB peak | long polls | ping p50, p99, max ms | ack p50, p99, max ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in options.only:
        attack(options.program, options.memory, name, options.clients)


if __name__ == "__main__":
    main()
