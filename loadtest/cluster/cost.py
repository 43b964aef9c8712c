#!/usr/bin/env python3
"""Compares the CPU that readings cost until they are stored: one instance, three as one service, and three without a cluster.

    loadtest/cluster/cost.py PROGRAM --mongod PATH [--sensors 1000 --sensors 100000] [--readings 2000000] [--rounds 1]

Bodies of 5,000 readings of this hour with two fields go to the instances in turn, over four connections; then everything is
flushed. CPU is that of all instances and mongod, from their start on. Prints microseconds per reading and the ratio to one
instance, and the median and 99th percentile of the acks. Loopback only; needs pymongo.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "isolation"))
from faults import Instance
from together import replica_set

LINES = 5_000
CONNECTIONS = 4


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def mongod_pid():
    """The mongod that this process started."""
    own = str(os.getpid())
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = open(f"/proc/{entry}/stat").read()
            except OSError:
                continue
            if "(mongod)" in text and text.rsplit(")", 1)[1].split()[1] == own:
                return int(entry)
    raise SystemExit("no mongod")


def body(number, sensors, begin):
    first = number * LINES
    lines = []
    for at in range(first, first + LINES):
        lines.append(f"m,s=s{at % sensors} temp={20 + at % 97 / 10},hum={40 + at % 13} {begin + at // sensors}")
    return "\n".join(lines).encode()


def measure(program, mongod, count, is_cluster, sensors, readings):
    with tempfile.TemporaryDirectory() as folder, replica_set(mongod) as store:
        with open(f"{folder}/token", "w") as token:
            token.write("t" * 40)
        instances = [Instance(program, number, folder, store) for number in range(count)]
        try:
            for instance in instances:
                instance.start(is_cluster)
            for instance in instances:
                instance.wait_until_ready()
            time.sleep(4 if is_cluster else 1)
            pids = [instance.process.pid for instance in instances] + [mongod_pid()]
            before = sum(map(cpu, pids))
            begin = int(time.time()) // 3600 * 3600
            waits = []

            def send(number):
                began = time.time()
                while True:
                    status = instances[number % count].request("POST", "/write?db=d&precision=s", body(number, sensors, begin))[0]
                    if status == 204:
                        break
                    time.sleep(0.2)
                waits.append(time.time() - began)

            with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as pool:
                list(pool.map(send, range(readings // LINES)))
            for instance in instances:
                while instance.request("POST", "/api/v1/flush", b"", timeout=300)[0] != 204:
                    pass
            used = sum(map(cpu, pids)) - before
            waits.sort()
            return used / readings * 1e6, waits[len(waits) // 2] * 1e3, waits[len(waits) * 99 // 100] * 1e3
        finally:
            for instance in instances:
                if instance.process:
                    instance.process.kill()
                    instance.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--mongod", required=True)
    parser.add_argument("--sensors", type=int, action="append")
    parser.add_argument("--readings", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for sensors in options.sensors or [1_000, 100_000]:
        for _ in range(options.rounds):
            one = None
            for name, count, is_cluster in ("one", 1, False), ("one service of three", 3, True), ("three alone", 3, False):
                cost, middle, late = measure(options.program, options.mongod, count, is_cluster, sensors, options.readings)
                one = one or cost
                print(f"{sensors:7} sensors  {name:20} {cost:6.2f} us ({cost / one:.2f}), acks p50 {middle:.0f} p99 {late:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
