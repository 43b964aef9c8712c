#!/usr/bin/env python3
"""Kills, freezes and cuts off instances of one service while clients write and ask through all of them.

    loadtest/cluster/faults.py PROGRAM --mongod PATH [--seconds 120] [--instances 3] [--writers 8] [--seed 1]
                               [--faults kill,stop,freeze,cut] [--pause 10]

Each writer has sensors of its own. It writes versions of a timestamp, or a new timestamp, each time through another instance,
and asks another one at once for the last acknowledged value. An answer counts as wrong if it is older than that and names no
missing instance. At the end all instances are alive, and each timestamp must have the value that was acknowledged last, or a
later one that was sent and not acknowledged. Each kind of fault ends by itself:

    kill    SIGKILL, and a start after 1 to 6 seconds
    stop    SIGTERM, and a start
    freeze  SIGSTOP for 5 to 20 seconds
    cut     nobody reaches the instance's internal listener for 5 to 20 seconds; it reaches the others

Prints one line per fault and a summary, and exits with 1 if anything is lost, old or doubled. Loopback only; needs pymongo.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "isolation"))
from attacks import free_port
from together import replica_set

SENSORS = 10
BASE = int(time.time()) - 600


class Gate(threading.Thread):
    """Passes connections to the internal listener of an instance, unless it is shut."""

    def __init__(self, target):
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = target
        self.is_shut = False
        self.open = set()

    def run(self):
        while True:
            client, _ = self.listener.accept()
            if self.is_shut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            self.open |= {client, server}
            for source, sink in (client, server), (server, client):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        for end in source, sink:
            self.open.discard(end)
            end.close()

    def shut(self):
        self.is_shut = True
        for end in list(self.open):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Instance:
    def __init__(self, program, number, folder, store):
        self.program, self.store = program, store
        self.name = "abcdefgh"[number]
        self.folder = f"{folder}/{self.name}"
        self.token = f"{folder}/token"
        self.port, self.internal = free_port(), free_port()
        self.gate = Gate(self.internal)
        self.gate.start()
        self.process = None

    def start(self, is_cluster=True):
        os.makedirs(self.folder, exist_ok=True)
        environment = dict(os.environ, HOURGLASS_SEAL_AFTER="0s")
        if is_cluster:
            environment |= {
                "HOURGLASS_CLUSTER_LISTEN": f"127.0.0.1:{self.internal}",
                "HOURGLASS_CLUSTER_ADVERTISE": f"127.0.0.1:{self.gate.port}",
                "HOURGLASS_CLUSTER_TOKEN_FILE": self.token,
            }
        arguments = [self.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--store", self.store]
        log = open(f"{self.folder}/log", "a")
        self.process = subprocess.Popen(
            [*arguments, "--data-dir", f"{self.folder}/data"], env=environment, stdout=log, stderr=log
        )

    def request(self, method, path, body=None, timeout=15):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def wait_until_ready(self, seconds=60):
        until = time.time() + seconds
        while time.time() < until:
            try:
                if self.request("GET", "/ready", timeout=2)[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit(f"instance {self.name} does not start")

    def query(self, text):
        path = "/query?db=d&epoch=s&q=" + urllib.parse.quote(text)
        status, body, headers = self.request("GET", path)
        return status, body, headers.get("X-Hourglass-Incomplete")


class Writer(threading.Thread):
    """Writes and asks. A client does not send a new version before it knows or gives up on the one before."""

    def __init__(self, number, instances, stop, seed):
        super().__init__()
        self.number, self.instances, self.stop = number, instances, stop
        self.random = random.Random(f"{seed} {number}")
        self.last = {}  # (sensor, time): [last acked value, greatest value sent since]
        self.version = 0
        self.counts = collections.Counter()
        self.wrong = []
        self.waits = []

    def run(self):
        while not self.stop.is_set():
            self.step()

    def step(self):
        key = (self.random.randrange(SENSORS), BASE + self.random.randrange(60))
        self.version += 1
        entry = self.last.setdefault(key, [None, []])
        entry[1].append(self.version)
        line = f"w,w=w{self.number},s=s{key[0]} v={self.version}i {key[1]}"
        began = time.time()
        try:
            status = self.random.choice(self.instances).request("POST", "/write?db=d&precision=s", line.encode())[0]
        except (OSError, http.client.HTTPException):
            status = 0
        self.waits.append(time.time() - began)
        self.counts[f"write {status}"] += 1
        if status == 204:
            entry[0], entry[1] = self.version, []
            self.ask(key)
        elif status == 0:
            time.sleep(0.02)

    def ask(self, key):
        where = f"WHERE w='w{self.number}' AND s='s{key[0]}' AND time={key[1]}s"
        try:
            status, body, incomplete = self.random.choice(self.instances).query(f"SELECT v FROM w {where}")
        except (OSError, http.client.HTTPException):
            return self.counts.update(["query 0"])
        if incomplete:
            return self.counts.update(["query incomplete"])
        self.counts[f"query {status}"] += 1
        if status == 200:
            self.judge(key, found(body), "at once")

    def judge(self, key, value, when):
        acked, unsure = self.last[key]
        if acked is not None and value != acked and value not in unsure:
            self.wrong.append(f"{when} writer {self.number} {key}: {value} instead of {acked}")


def found(body):
    series = json.loads(body)["results"][0].get("series")
    return series[0]["values"][0][1] if series else None


def fault(kind, instance, random):
    pause = random.uniform(1, 6) if kind == "kill" else random.uniform(5, 20)
    print(f"{time.strftime('%H:%M:%S')} {kind} {instance.name} {pause:.1f} s", flush=True)
    if kind == "kill":
        instance.process.kill()
        instance.process.wait()
        time.sleep(pause)
        instance.start()
    elif kind == "stop":
        instance.process.terminate()
        print(f"  status {instance.process.wait()}")
        instance.start()
    elif kind == "freeze":
        instance.process.send_signal(signal.SIGSTOP)
        time.sleep(pause)
        instance.process.send_signal(signal.SIGCONT)
    elif kind == "cut":
        instance.gate.shut()
        time.sleep(pause)
        instance.gate.is_shut = False


def check(writers, instance):
    """Returns what is wrong at the end, asked in one query."""
    until = time.time() + 60
    while True:
        status, body, incomplete = instance.query("SELECT v FROM w GROUP BY w, s")
        if status == 200 and not incomplete or time.time() > until:
            break
        time.sleep(1)
    values = {}
    for series in json.loads(body)["results"][0].get("series", []):
        for at, value in series["values"]:
            key = (series["tags"]["w"], int(series["tags"]["s"][1:]), at)
            values.setdefault(key, []).append(value)
    for writer in writers:
        for key in writer.last:
            of_key = values.get((f"w{writer.number}", *key), [None])
            if len(of_key) > 1:
                writer.wrong.append(f"doubled {key}: {of_key}")
            writer.judge(key, of_key[0], f"at the end, through {instance.name},")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--mongod", required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--instances", type=int, default=3)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--pause", type=float, default=10)
    parser.add_argument("--faults", default="kill,stop,freeze,cut")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds = [kind for kind in options.faults.split(",") if kind]
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder, replica_set(options.mongod) as store:
        with open(f"{folder}/token", "w") as token:
            token.write("t" * 40)
        instances = [Instance(options.program, number, folder, store) for number in range(options.instances)]
        try:
            for instance in instances:
                instance.start()
            for instance in instances:
                instance.wait_until_ready()
            time.sleep(4)
            stop = threading.Event()
            writers = [Writer(number, instances, stop, options.seed) for number in range(options.writers)]
            for writer in writers:
                writer.start()
            until = time.time() + options.seconds
            faults = collections.Counter()
            while time.time() < until and kinds:
                time.sleep(options.pause)
                kind = chance.choice(kinds)
                fault(kind, chance.choice(instances), chance)
                faults[kind] += 1
            time.sleep(max(0, until - time.time()))
            stop.set()
            for writer in writers:
                writer.join()
            for instance in instances:
                instance.wait_until_ready()
            for instance in instances:
                check(writers, instance)
            counts = sum((writer.counts for writer in writers), collections.Counter())
            waits = sorted(wait for writer in writers for wait in writer.waits)
            wrong = [text for writer in writers for text in writer.wrong]
            print(f"faults {dict(faults)}")
            print(f"answers {dict(sorted(counts.items()))}")
            middle, late = waits[len(waits) // 2], waits[len(waits) * 99 // 100]
            print(f"writes p50 {middle * 1e3:.1f} ms, p99 {late * 1e3:.0f} ms, worst {waits[-1]:.1f} s")
            print(f"wrong {len(wrong)}", *wrong[:20], sep="\n  ")
            if wrong:
                print(f"logs in {folder}; Enter ends" if sys.stdin.isatty() else "")
            return bool(wrong)
        finally:
            for instance in instances:
                if instance.process:
                    instance.process.send_signal(signal.SIGCONT)
                    instance.process.terminate()
            for instance in instances:
                if instance.process:
                    try:
                        instance.process.wait(40)
                    except subprocess.TimeoutExpired:
                        instance.process.kill()
            if os.environ.get("KEEP"):
                subprocess.run(["cp", "-r", folder, os.environ["KEEP"]])


if __name__ == "__main__":
    sys.exit(main())
