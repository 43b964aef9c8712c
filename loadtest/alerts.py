#!/usr/bin/env python3
"""Fires the alerts of deploy/prometheus/alerts.yml in real outages of one machine, and says after how many seconds.

    loadtest/alerts.py PROGRAM [--mongod mongod] [--minutes 12] [--only store,disk]

One hourglass per outage, and one without, get a write every half second. A real Prometheus asks them each second. After a calm
time, all outages begin at once; once every expected alert has fired, they end, and the alerts must resolve. An alert that no
outage explains is a false one. Exits with 1 if an alert is missing, false, or stays.

`for` and the windows and ages in expressions are divided by 60, a few of a day or more by 1440 or 2880 (see SHORTER). The limits
of expiry stay. "true" is when the expression was true, "for" the real one of the rule, and "after" their sum: the real time
until the alert fires. Where a shorter expression was tried, there is no such time. Everything listens on loopback only. Needs prometheus, openssl, mongod, mongosh, root for a
tmpfs, and a build with the feature `faults` for the clock (`cargo build --workspace --bins --tests`).
"""

import argparse
import contextlib
import functools
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

FACTOR = 60
# By which the windows and ages of an expression are divided, where it is not FACTOR.
SHORTER = {
    "HourglassLogDiskFills": 1440, "HourglassCertificateRefused": 1440, "HourglassBackupOld": 2880,
    "HourglassCertificateEnds": 1, "HourglassTokenEnds": 1, "HourglassStoreDiskFills": 1,
}
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
CALM = 45
RESOLVED = 180

CONFIG = """
[server]
listen = "127.0.0.1:{port}"
data_dir = "{folder}/data"
memory = "128MiB"
[status]
listen = "127.0.0.1:{status}"
[store]
uri = "{store}"
[flush]
interval = "1s"
quiet = "200ms"
[wal]
segment_bytes = "1MiB"
budget_bytes = "128MiB"
[seal]
after = "1h"
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fetch(url, body=None, timeout=5):
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=timeout) as answer:
        return answer.read().decode()


def wait(what, condition, seconds=90):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            found = condition()
            if found:
                return found
        time.sleep(0.2)
    raise SystemExit(f"not in time: {what}")


def seconds_of(text):
    return sum(int(count) * SECONDS[unit] for count, unit in re.findall(r"(\d+)([smhd])", text))


def shortened(rules):
    """Returns the rules with shorter times, the real `for` of each alert in seconds, and the alerts with a shorter expression."""
    held, inside, lines, factor = {}, set(), [], FACTOR
    for line in rules.splitlines():
        original = line
        if name := re.match(r" *- alert: (\w+)", line):
            alert = name[1]
            factor, held[alert] = SHORTER.get(alert, FACTOR), 0
        elif duration := re.match(r"( *for: )(\w+)$", line):
            held[alert] = seconds_of(duration[2])
            line = f"{duration[1]}{max(held[alert] // FACTOR, 1)}s"
        elif not re.match(r" *(summary|description|runbook_url|#)", line):
            line = re.sub(r"\[(\d+[smhd])\]", lambda window: f"[{max(seconds_of(window[1]) // factor, 5)}s]", line)
            line = re.sub(r"\b(600|3600|86400)\b", lambda number: str(int(number[0]) // factor), line)
            if factor > 1 and line != original:
                inside.add(alert)
        lines.append(line)
    return "\n".join(lines) + "\n", held, inside


class Process:
    """A process that ends with the stack."""

    def __init__(self, stack, arguments, log, **more):
        self.arguments, self.log, self.more = arguments, log, more
        self.start()
        stack.callback(self.end)

    def start(self):
        self.process = subprocess.Popen(self.arguments, stdout=self.log, stderr=self.log, **self.more)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Mongod(Process):
    def __init__(self, stack, program, folder, log):
        self.port, self.folder = free_port(), folder
        os.makedirs(folder)
        super().__init__(stack, [
            program, "--replSet", "hourglass", "--bind_ip", "127.0.0.1", "--port", str(self.port), "--nounixsocket",
            "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "64", "--setParameter", "enableTestCommands=1",
            "--setParameter", "diagnosticDataCollectionEnabled=false", "--dbpath", folder,
        ], log)
        set_up = {"_id": "hourglass", "members": [{"_id": 0, "host": f"127.0.0.1:{self.port}"}]}
        wait("mongod", lambda: socket.create_connection(("127.0.0.1", self.port), timeout=1).close() is None)
        self.shell(f"rs.initiate({json.dumps(set_up)}); while (!db.hello().isWritablePrimary) sleep(50)")

    def shell(self, script):
        uri = f"mongodb://127.0.0.1:{self.port}/admin?directConnection=true"
        subprocess.run(["mongosh", "--quiet", uri, "--eval", script], check=True, stdout=self.log, stderr=self.log, timeout=90)

    def uri(self, name):
        return f"mongodb://127.0.0.1:{self.port}/{name}?replicaSet=hourglass"


class Hourglass(Process):
    """A service that gets a write every half second."""

    def __init__(self, stack, program, name, folder, log, store="embedded", more="", lines=1):
        self.name, self.folder, self.lines, self.stop = name, folder, lines, threading.Event()
        self.port, self.status = free_port(), free_port()
        os.makedirs(folder, exist_ok=True)
        self.clock = os.path.join(folder, "clock")
        self.set_clock(0)
        config = os.path.join(folder, "hourglass.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(port=self.port, status=self.status, folder=folder, store=store) + more)
        self.environment = {**os.environ, "FAULT_STEP": self.clock}
        super().__init__(stack, [program, "serve", "--config", config], log, env=self.environment)
        wait(f"{name} is ready", self.is_ready)
        threading.Thread(target=self.write, daemon=True).start()

    def is_ready(self):
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} has ended with status {self.process.returncode}: see --log")
        return fetch(f"http://127.0.0.1:{self.port}/ready")

    def set_clock(self, milliseconds):
        with open(f"{self.clock}.new", "w", encoding="utf-8") as file:
            file.write(str(milliseconds))
        os.replace(f"{self.clock}.new", self.clock)

    def write(self):
        while not self.stop.wait(0.5):
            now = time.time_ns()
            body = "\n".join(f"machine,sensor=a noise={random.getrandbits(62)}i {now + line}" for line in range(self.lines))
            with contextlib.suppress(OSError):
                fetch(f"http://127.0.0.1:{self.port}/write", body.encode())

    def restart(self, ahead_ms):
        """Restarts it with another clock."""
        Process.end(self)
        self.environment["FAULT_CLOCK_MS"] = str(ahead_ms)
        self.start()

    def end(self, number=signal.SIGTERM):
        self.stop.set()
        super().end(number)


class Outage:
    """What begins and ends it, the alerts that must fire, and those that may. `causes` has the times of later causes."""

    def __init__(self, hourglass, begin, end, expected, allowed=(), causes=None):
        self.hourglass, self.begin, self.end = hourglass, begin, end
        self.expected, self.allowed, self.causes = expected, set(allowed), {} if causes is None else causes


def certificate(folder, days):
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
        "-subj", "/CN=localhost", "-keyout", f"{folder}/key.new", "-out", f"{folder}/cert.new",
    ], check=True, capture_output=True)
    os.replace(f"{folder}/key.new", f"{folder}/key.pem")
    os.replace(f"{folder}/cert.new", f"{folder}/cert.pem")


def store_outage(start, mongod):
    lost = mongod("lost")
    hourglass = start("store", lost.uri("lost"))
    late = ["StoreErrors", "StoreBehind", "StoreAway", "JobFails", "LogFills", "QueriesWait", "FloorBehind"]
    return Outage(hourglass, lambda: lost.end(signal.SIGKILL), lost.start, ["StoreDown"], late)


def disk_outage(start, mount):
    hourglass = start("disk", folder=mount, lines=1000)
    ballast = os.path.join(mount, "ballast")
    causes = {}

    def fill():
        # Slowly, so that the trend is seen before the disk is full.
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(1 << 19))
                time.sleep(0.5)
        causes["LogRefuses"] = time.time()
        with open(ballast, "ab", buffering=0) as file:
            while os.path.exists(ballast):
                with contextlib.suppress(OSError):
                    file.write(bytes(1 << 12))
                    continue
                time.sleep(0.1)

    begin = threading.Thread(target=fill, daemon=True).start
    late = ["LogDiskFailing", "StoreErrors", "StoreDown", "StoreBehind", "StoreAway", "AnswersFail", "Sheds", "JobFails",
            "DatabaseFails", "BucketsWait", "LogFills", "StoreDiskFills"]
    return Outage(hourglass, begin, lambda: os.remove(ballast), ["LogDiskFills", "LogRefuses"], late, causes)


def clock_outage(start):
    hourglass = start("clock")
    return Outage(hourglass, lambda: hourglass.set_clock(2 * 86_400_000), lambda: hourglass.set_clock(0), ["ClockDoubted"],
                  ["JobFails", "TimesSuspect"])


def offset_outage(start, shared):
    hourglass = start("offset", shared.uri("offset"))
    return Outage(hourglass, lambda: hourglass.restart(40_000), lambda: hourglass.restart(0), ["ClockOff"], ["ClockDoubted", "Down"])


def seal_outage(start, shared):
    """The store refuses sealed days, which are sealed on request, once a second."""
    hourglass = start("seal", shared.uri("seal"))
    base = f"http://127.0.0.1:{hourglass.port}"
    days = iter(range(3, 1000))
    stop = threading.Event()

    def seal():
        while not stop.wait(1):
            with contextlib.suppress(OSError):
                old = int(time.time()) - next(days) * 86_400
                fetch(f"{base}/write?precision=s", f"machine,sensor=old count=1i {old}".encode())
                time.sleep(1.5)
                fetch(f"{base}/api/v1/jobs/seal/run", b"", timeout=60)

    def begin():
        data = {"failCommands": ["insert", "update", "delete", "bulkWrite"], "errorCode": 13, "namespace": "seal.default.days"}
        shared.shell(f"db.adminCommand({json.dumps({'configureFailPoint': 'failCommand', 'mode': 'alwaysOn', 'data': data})})")

    def end():
        shared.shell("db.adminCommand({ configureFailPoint: 'failCommand', mode: 'off' })")

    threading.Thread(target=seal, daemon=True).start()
    return Outage(hourglass, begin, end, ["JobFails"], ["StoreErrors", "DatabaseFails"])


def backup_outage(start, program):
    hourglass = start("backup")
    target = os.path.join(hourglass.folder, "backup")
    command = [program, "backup", "create", target, "--server", f"http://127.0.0.1:{hourglass.port}"]
    stop = threading.Event()

    def back_up():
        while not stop.is_set():
            subprocess.run(command, check=False, stdout=hourglass.log, stderr=hourglass.log)
            stop.wait(15)

    def again():
        stop.clear()
        threading.Thread(target=back_up, daemon=True).start()

    again()
    return Outage(hourglass, stop.set, again, ["BackupOld"])


def certificate_outage(start, folder):
    certificate(folder, 90)
    tls = f'[tls]\nlisten = "127.0.0.1:{free_port()}"\ncert_file = "{folder}/cert.pem"\nkey_file = "{folder}/key.pem"\n'
    hourglass = start("certificate", more=tls)

    causes = {}

    def begin():
        certificate(folder, 5)
        # After it was loaded, the next one is broken.
        time.sleep(15)
        causes["CertificateRefused"] = time.time()
        with open(f"{folder}/cert.pem", "w", encoding="utf-8") as file:
            file.write("broken\n")

    return Outage(hourglass, threading.Thread(target=begin, daemon=True).start, lambda: certificate(folder, 90),
                  ["CertificateEnds", "CertificateRefused"], causes=causes)


def process_outage(start):
    hourglass = start("process")
    return Outage(hourglass, lambda: Process.end(hourglass, signal.SIGKILL), lambda: Process.start(hourglass), ["Down"], ["LogInDoubt"])


def alerts_of(base):
    """Returns the alerts that are pending or firing: by (outage, name), the state and the time since which."""
    found = {}
    for alert in json.loads(fetch(f"{base}/api/v1/alerts"))["data"]["alerts"]:
        labels = alert["labels"]
        since = alert["activeAt"].split(".")[0].rstrip("Z")
        since = time.mktime(time.strptime(since, "%Y-%m-%dT%H:%M:%S")) - time.timezone
        key = labels.get("outage", "?"), labels["alertname"].removeprefix("Hourglass")
        if found.get(key, ("pending",))[0] != "firing":
            found[key] = alert["state"], since
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--mongod", default="mongod")
    parser.add_argument("--minutes", type=float, default=12)
    parser.add_argument("--log", help="file for the output of all processes")
    parser.add_argument("--only", help="outages, separated by commas")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("the time is over"))
    signal.setitimer(signal.ITIMER_REAL, options.minutes * 60)
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "../deploy/prometheus/alerts.yml"), encoding="utf-8") as file:
        rules, held, inside = shortened(file.read())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(open(os.path.join(folder, "log"), "w", encoding="utf-8"))
        if options.log:
            stack.callback(shutil.copy, log.name, options.log)

        def start(name, store="embedded", folder=folder, **more):
            return Hourglass(stack, program, name, os.path.join(folder, name), log, store, **more)

        def mongod(name):
            return Mongod(stack, options.mongod, os.path.join(folder, f"mongod-{name}"), log)

        def tmpfs():
            path = os.path.join(folder, "tmpfs")
            os.makedirs(path)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=112m", "tmpfs", path], check=True)
            stack.callback(subprocess.run, ["umount", "-l", path], check=False)
            return path

        on_shared = functools.cache(lambda: mongod("shared"))
        keys = os.path.join(folder, "keys")
        os.makedirs(keys)
        makers = {
            "store": lambda: store_outage(start, mongod), "disk": lambda: disk_outage(start, tmpfs()),
            "clock": lambda: clock_outage(start), "offset": lambda: offset_outage(start, on_shared()),
            "seal": lambda: seal_outage(start, on_shared()), "backup": lambda: backup_outage(start, program),
            "certificate": lambda: certificate_outage(start, keys), "process": lambda: process_outage(start),
        }
        chosen = options.only.split(",") if options.only else list(makers)
        outages = {name: makers[name]() for name in chosen}
        services = {"none": start("none"), **{name: outage.hourglass for name, outage in outages.items()}}

        port = free_port()
        targets = [{"targets": [f"127.0.0.1:{one.status}"], "labels": {"outage": name}} for name, one in services.items()]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}, "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "hourglass", "static_configs": targets}],
        }
        # JSON is YAML.
        for name, text in [("prometheus.yml", json.dumps(config)), ("alerts.yml", rules)]:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        Process(stack, [
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
        ], log)
        base = f"http://127.0.0.1:{port}"
        wait("prometheus", lambda: fetch(f"{base}/-/ready"))

        began = time.time()
        false, fired, true_since, resolved = set(), {}, {}, {}
        expected = {(name, alert) for name, outage in outages.items() for alert in outage.expected}

        def watch(seconds, is_over, is_calm=False):
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline and not is_over():
                now, found = time.time(), alerts_of(base)
                for (name, alert), (state, since) in found.items():
                    if state != "firing":
                        continue
                    outage = outages.get(name)
                    if is_calm or not outage or alert not in outage.allowed | set(outage.expected):
                        false.add((name, alert, "before its outage" if is_calm else ""))
                    elif (name, alert) not in fired:
                        cause = outage.causes.get(alert, began)
                        fired[name, alert] = now - cause
                        true_since[name, alert] = max(since - cause, 0)
                for key in fired:
                    if key in found and found[key][0] == "firing":
                        resolved.pop(key, None)
                    else:
                        resolved.setdefault(key, now)
                time.sleep(0.5)

        watch(CALM, lambda: False, is_calm=True)
        began = time.time()
        for outage in outages.values():
            outage.begin()
        watch(240, lambda: expected <= fired.keys())
        # Others of the same outages, which come later.
        watch(20, lambda: False)
        resolved.clear()
        ended = time.time()
        for outage in outages.values():
            outage.end()
        watch(RESOLVED, lambda: fired.keys() <= resolved.keys())

    print(f"{'outage':12} {'alert':20} {'true':>6} {'for':>6} {'after':>6} {'fired':>6} {'resolved':>8}")
    late = sorted(fired.keys() - expected, key=lambda key: fired[key])
    for key in sorted(expected) + late:
        name, alert = key
        hold = held[f"Hourglass{alert}"]
        if key not in fired:
            print(f"{name:12} {alert:20} MISSING")
            continue
        end = f"{resolved[key] - ended:.0f} s" if key in resolved else "STAYS"
        is_shorter = f"Hourglass{alert}" in inside
        after = "" if is_shorter else f"{true_since[key] + hold:.0f} s"
        print(f"{name:12} {alert:20} {true_since[key]:4.0f} s {hold:4} s {after:>6} {fired[key]:4.0f} s {end:>8}"
              f"{'' if key in expected else '  also'}{'  shorter expression' if is_shorter else ''}")
    for name, alert, when in sorted(false):
        print(f"FALSE: {alert} of {name} {when}")
    print(f"{len(expected & fired.keys())} of {len(expected)} alerts fired, {len(false)} false, "
          f"{len(fired.keys() - resolved.keys())} did not resolve")
    sys.exit(1 if expected - fired.keys() or false or fired.keys() - resolved.keys() else 0)


if __name__ == "__main__":
    main()
