#!/usr/bin/env python3
"""The unplug test: devices publish to a real mosquitto while hourglass and mongod are killed and the broker is restarted.
Everything that the broker acknowledged to a device must be stored: a dated message exactly once, an undated one at least once.

    loadtest/unplug.py PROGRAM [--seconds 300] [--kills 20] [--devices 20] [--rate 10] [--version 5] [--mongod PATH] [--seed 1]

The devices have four shapes: Tasmota and ChirpStack (dated), Zigbee2MQTT and plain values (undated). Each publishes with QoS 1,
one message at a time, and sends a message again until it is acknowledged. Two of three kills are SIGKILL of hourglass, the
third is SIGTERM of the broker, whose sessions are on disk. With a mongod, which stores instead of the embedded store, one of
four is SIGKILL of it. Exits with 1 if a message is missing or a dated one is doubled. Everything listens on loopback only;
needs mosquitto 2, and pymongo for a mongod.
"""

import argparse
import collections
import contextlib
import datetime
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request

BASE = 1_768_485_600  # 2026-01-15T14:00:00Z
TIMEOUT = 120


def tasmota(device, n):
    return f"tele/{device}/SENSOR", {"Epoch": BASE + n, "T": {"N": n}}


def chirpstack(device, n):
    moment = datetime.datetime.fromtimestamp(BASE, datetime.timezone.utc) + datetime.timedelta(milliseconds=n)
    return f"application/a/device/{device}/event/up", {
        "time": moment.isoformat(), "deviceInfo": {"applicationName": "a", "devEui": device}, "rxInfo": [{"rssi": -1}],
        "object": {"n": n},
    }


def zigbee2mqtt(device, n):
    return f"zigbee2mqtt/{device}", {"n": n}


def plain(device, n):
    return f"home/{device}/n", n


# By shape: a message, its sensor, its field, and the nanoseconds between two messages if it has a time.
SHAPES = {
    "tasmota": (tasmota, "tasmota,device={}", "T_N", 1_000_000_000),
    "chirpstack": (chirpstack, "lorawan,application=a,device={}", "n", 1_000_000),
    "zigbee2mqtt": (zigbee2mqtt, "zigbee,device={}", "n", None),
    "plain": (plain, "home,room={}", "n", None),
}

CONFIG = """
[[mqtt]]
url = "mqtt://127.0.0.1:{port}"
client_id = "unplug"
topics = ["tele/+/SENSOR", "application/#", "zigbee2mqtt/+", "home/+/+"]
mappings = ["tasmota-sensor", "chirpstack", "zigbee2mqtt", "plain"]
database = "unplug"
version = "{version}"
"""

BROKER = """
user root
listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {folder}/
autosave_interval 1
max_queued_messages 0
"""


class Device(threading.Thread):
    """Publishes numbers from 0 on until it is told to stop, each until it is acknowledged."""

    def __init__(self, name, shape, port, rate, stop):
        super().__init__(daemon=True)
        self.name, self.shape, self.port, self.pause, self.stop = name, shape, port, 1 / rate, stop
        self.acked, self.resent = 0, 0

    def run(self):
        link = None
        while not self.stop.is_set():
            is_again = False
            while True:
                try:
                    link = link or self.connect()
                    self.publish(link, self.acked)
                    break
                except OSError:
                    link = None
                    is_again = True
                    time.sleep(0.05)
            self.resent += is_again
            self.acked += 1
            self.stop.wait(self.pause)

    def connect(self):
        link = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        name = self.name.encode()
        body = b"\x00\x04MQTT\x04\x02\x00\x00" + struct.pack(">H", len(name)) + name
        link.sendall(bytes([0x10, len(body)]) + body)
        receive(link, 4)
        return link

    def publish(self, link, n):
        topic, payload = SHAPES[self.shape][0](self.name, n)
        topic = topic.encode()
        body = struct.pack(">H", len(topic)) + topic + b"\x00\x01" + json.dumps(payload).encode()
        length = bytes([len(body)]) if len(body) < 128 else bytes([len(body) & 127 | 128, len(body) >> 7])
        link.sendall(b"\x32" + length + body)
        receive(link, 4)


def receive(link, count):
    got = b""
    while len(got) < count:
        part = link.recv(count - len(got))
        if not part:
            raise OSError("closed")
        got += part


class Service:
    """A process that is ended and started again."""

    def __init__(self, arguments, port, log):
        self.arguments, self.port, self.log = arguments, port, log
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.arguments, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            time.sleep(0.02)
        raise SystemExit(f"{self.arguments[0]} does not start")

    def end(self, number):
        self.process.send_signal(number)
        self.process.wait(TIMEOUT)


def start_mongod(program, folder, log):
    """Starts a replica set of one mongod; returns it with its address."""
    import pymongo

    port = free_port()
    os.mkdir(f"{folder}/db")
    arguments = [program, "--replSet", "rs", "--bind_ip", "127.0.0.1", "--port", str(port), "--dbpath", f"{folder}/db"]
    mongod = Service([*arguments, "--nounixsocket", "--wiredTigerCacheSizeGB", "1"], port, log)
    with pymongo.MongoClient("127.0.0.1", port, directConnection=True) as client:
        client.admin.command("replSetInitiate", {"_id": "rs", "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]})
        while not client.admin.command("hello")["isWritablePrimary"]:
            time.sleep(0.1)
    return mongod, f"mongodb://127.0.0.1:{port}/unplug?replicaSet=rs"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return answer.read().decode()


def readings(base, sensor):
    """Yields the readings of a sensor as objects."""
    cursor = ""
    while cursor is not None:
        query = f"db=unplug&epoch=ns&limit=10000&sensor={urllib.parse.quote(sensor)}"
        query += f"&cursor={urllib.parse.quote(cursor)}" if cursor else ""
        answer = json.loads(fetch(f"{base}/api/v1/readings?{query}"))
        for series in answer["series"]:
            yield from series["readings"]
        cursor = answer.get("next")


def is_complete(base, device):
    _, sensor, field, _ = SHAPES[device.shape]
    with contextlib.suppress(OSError):
        answer = json.loads(fetch(f"{base}/api/v1/latest?db=unplug&sensor={urllib.parse.quote(sensor.format(device.name))}"))
        return any(row.get(field, -1) >= device.acked - 1 for series in answer["series"] for row in series["readings"])
    return False


def check(base, device):
    """Returns the numbers of missing messages and of doubles; times that are wrong are missing messages."""
    _, sensor, field, step = SHAPES[device.shape]
    counts = collections.Counter()
    for reading in readings(base, sensor.format(device.name)):
        n = int(reading[field])
        if step is None or reading["ts"] == BASE * 1_000_000_000 + n * step:
            counts[n] += 1
    missing = sum(1 for n in range(device.acked) if not counts[n])
    return missing, sum(counts.values()) - len(counts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    for flag, default in [("seconds", 300), ("kills", 20), ("devices", 20), ("rate", 10), ("seed", 1)]:
        parser.add_argument(f"--{flag}", type=int, default=default)
    parser.add_argument("--version", default="5")
    parser.add_argument("--mongod")
    options = parser.parse_args()
    mosquitto = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(open(os.path.join(folder, "log"), "w", encoding="utf-8"))
        port, http_port = free_port(), free_port()
        for name, text in [("broker.conf", BROKER), ("hourglass.toml", CONFIG)]:
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text.format(port=port, folder=folder, version=options.version))
        broker = Service([mosquitto, "-c", f"{folder}/broker.conf"], port, log)
        stack.callback(lambda: broker.process.kill())
        store, mongod = "embedded", None
        if options.mongod:
            mongod, store = start_mongod(options.mongod, folder, log)
            stack.callback(lambda: mongod.process.kill())
        hourglass = Service([
            options.program, "serve", "--config", f"{folder}/hourglass.toml", "--listen", f"127.0.0.1:{http_port}",
            "--data-dir", f"{folder}/data", "--store", store,
        ], http_port, log)
        stack.callback(lambda: hourglass.process.kill())
        base = f"http://127.0.0.1:{http_port}"
        # The session must be there before the first message.
        while 'hourglass_mqtt_connected{client_id="unplug"} 1' not in fetch(f"{base}/metrics"):
            time.sleep(0.1)
        stop = threading.Event()
        shapes = [list(SHAPES)[n % len(SHAPES)] for n in range(options.devices)]
        devices = [Device(f"d{n}", shape, port, options.rate, stop) for n, shape in enumerate(shapes)]
        for device in devices:
            device.start()
        chance = random.Random(options.seed)
        began = time.monotonic()
        moments = sorted(chance.uniform(1, options.seconds - 1) for _ in range(options.kills))
        killed = collections.Counter()
        victims = [(hourglass, "hourglass", signal.SIGKILL)] * 2 + [(broker, "broker", signal.SIGTERM)]
        if mongod:
            victims.append((mongod, "mongod", signal.SIGKILL))
        for number, moment in enumerate(moments):
            time.sleep(max(0, began + moment - time.monotonic()))
            service, name, by = victims[number % len(victims)]
            service.end(by)
            time.sleep(chance.uniform(0, 2))
            service.start()
            killed[name] += 1
        time.sleep(max(0, began + options.seconds - time.monotonic()))
        stop.set()
        for device in devices:
            device.join(TIMEOUT)
        drained = time.monotonic()
        while not all(is_complete(base, device) for device in devices) and time.monotonic() < drained + TIMEOUT:
            time.sleep(0.1)
        drained = time.monotonic() - drained
        lost = doubled = 0
        for shape, (_, _, _, step) in SHAPES.items():
            of_shape = [device for device in devices if device.shape == shape]
            results = [check(base, device) for device in of_shape]
            missing, doubles = (sum(numbers) for numbers in zip(*results)) if results else (0, 0)
            lost += missing
            doubled += doubles if step else 0
            print(f"{shape:12} {sum(device.acked for device in of_shape):8} acknowledged  {missing} missing  {doubles} doubles  "
                  f"{sum(device.resent for device in of_shape)} sent again by devices")
        print(f"{options.seconds} s, {killed['hourglass']} kills of hourglass, {killed['mongod']} of mongod, "
              f"{killed['broker']} restarts of the broker; "
              f"the last message was stored after {drained:.1f} s")
        sys.exit(1 if lost or doubled else 0)


if __name__ == "__main__":
    main()
