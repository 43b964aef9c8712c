#!/usr/bin/env python3
"""A hostile broker: it answers hourglass with broken packets, floods and messages that are expensive on purpose.

    loadtest/mqtt_hostile.py PROGRAM [--seconds 3600] [--memory 128MiB] [--seed 1]

Each connection of hourglass gets one attack after another until it ends. Beside it, one client pings and another one posts a
reading, every 20 ms each. Prints the connections and messages of each attack, the median and maximum of both clients in
milliseconds, and the greatest resident memory in each tenth of the time. Exits with 1 if a ping or post fails or takes more than
a second, the memory grows, or an honest message at the end is not stored. Everything listens on loopback only.
"""

import argparse
import collections
import contextlib
import http.client
import os
import random
import socket
import struct
import sys
import tempfile
import threading
import time

from mqtt_rates import remaining_length, resident_mib
from unplug import Service, fetch, free_port

CONFIG = """
[[mqtt]]
url = "mqtt://127.0.0.1:{port}"
client_id = "hostile"
topics = ["#"]
mappings = ["tasmota-sensor", "zigbee2mqtt", "owntracks", "chirpstack", "plain"]
database = "d"
version = "3.1.1"
"""
CONNECTED = b"\x20\x02\x00\x00\x90\x03\x00\x01\x01"


def message(topic, payload, number=1, flags=0x32):
    body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + payload
    return bytes([flags]) + remaining_length(len(body)) + body


def garbage(chance):
    return CONNECTED + chance.randbytes(chance.randrange(1, 5000))


def no_answer(chance):
    return chance.randbytes(1)


def bad_length(chance):
    return CONNECTED + b"\x32\xff\xff\xff\xff\xff"


def huge(chance):
    head = b"\x32" + remaining_length(200 << 20) + struct.pack(">H", 6) + b"home/a" + b"\x00\x01"
    return CONNECTED + head + b"1" * (20 << 20)


def flood(chance):
    return CONNECTED + b"".join(message(b"home/lab/n", b"%d" % number, number % 60_000 + 1) for number in range(20_000))


def new_sensors(chance):
    names = (b"home/%d/n" % chance.randrange(1 << 62) for _ in range(5_000))
    return CONNECTED + b"".join(message(name, b"1", number + 1) for number, name in enumerate(names))


def deep_json(chance):
    return CONNECTED + message(b"zigbee2mqtt/x", b"[" * 100_000 + b"]" * 100_000) + message(b"zigbee2mqtt/x", b'{"a":' * 40_000)


def wide_json(chance):
    keys = ",".join(f'"k{number}":{{"v":{number}}}' for number in range(9_000))
    return CONNECTED + message(b"zigbee2mqtt/x", b"{" + keys.encode() + b"}") * 5


def bad_topics(chance):
    topics = [b"", b"\xff\xfe", b"home/\x00/n", b"home/+/n", b"#", b"home/" + b"x" * 60_000, b"home/a b,c=d\ne f=1/n", b"tele/../SENSOR"]
    return CONNECTED + b"".join(message(topic, b"1", number + 1) for number, topic in enumerate(topics))


def bad_texts(chance):
    texts = [b"\xff\xfe", b"nan", b"1e999", b'{"Time":"9999-99-99"}', b'{"_type":"location","tst":1e300}', b"\x00" * 1000, b""]
    names = [b"home/lab/n", b"tele/x/SENSOR", b"owntracks/a/b", b"application/a/device/b/event/up"]
    return CONNECTED + b"".join(message(name, text) for name in names for text in texts)


def wrong_packets(chance):
    return CONNECTED + bytes([chance.choice([0x10, 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xF0]), 2, 0, 1])


def same_again(chance):
    return CONNECTED + message(b"home/lab/n", b"1", 7, 0x3A) * 2_000


ATTACKS = [garbage, no_answer, bad_length, huge, flood, new_sensors, deep_json, wide_json, bad_topics, bad_texts, wrong_packets, same_again]


class Broker(threading.Thread):
    """Attacks each connection until `stop` is set; then it sends an honest message."""

    def __init__(self, listener, seed):
        super().__init__(daemon=True)
        self.listener, self.chance = listener, random.Random(seed)
        self.counts, self.stop = collections.Counter(), threading.Event()

    def run(self):
        number = 0
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return  # The end of the test.
            with contextlib.suppress(OSError), link:
                link.settimeout(20)
                link.recv(4096)
                if self.stop.is_set():
                    link.sendall(CONNECTED + message(b"home/honest/n", b"42"))
                else:
                    attack = ATTACKS[number % len(ATTACKS)]
                    number += 1
                    self.counts[attack.__name__] += 1
                    link.sendall(attack(self.chance))
                # What the other side acknowledges, until it ends the connection or waits for more.
                link.settimeout(3)
                while link.recv(1 << 16):
                    pass


class Client(threading.Thread):
    def __init__(self, port, method, path, body):
        super().__init__(daemon=True)
        self.request, self.port = (method, path, body), port
        self.waits, self.failures, self.stop = [], 0, threading.Event()

    def run(self):
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while not self.stop.wait(0.02):
            began = time.monotonic()
            try:
                link.request(*self.request)
                answer = link.getresponse()
                answer.read()
                self.failures += answer.status >= 300
            except OSError:
                self.failures += 1
                link.close()
            self.waits.append((time.monotonic() - began) * 1000)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seconds", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--memory", default="128MiB")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(open(os.path.join(folder, "log"), "w", encoding="utf-8"))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        broker = Broker(listener, options.seed)
        broker.start()
        with open(f"{folder}/hourglass.toml", "w", encoding="utf-8") as file:
            file.write(CONFIG.format(port=listener.getsockname()[1]))
        os.environ["HOURGLASS_SERVER_MEMORY"] = options.memory
        port = free_port()
        arguments = [options.program, "serve", "--config", f"{folder}/hourglass.toml", "--listen", f"127.0.0.1:{port}"]
        service = Service([*arguments, "--data-dir", f"{folder}/data"], port, log)
        stack.callback(lambda: service.process.kill())
        clients = [Client(port, "GET", "/ping", None), Client(port, "POST", "/write?db=others", "m,sensor=a v=1")]
        for client in clients:
            client.start()
        tenths, began = [0.0] * 10, time.monotonic()
        while (passed := time.monotonic() - began) < options.seconds and service.process.poll() is None:
            tenth = int(passed * 10 / options.seconds)
            tenths[tenth] = max(tenths[tenth], resident_mib(service.process.pid))
            time.sleep(0.2)
        is_alive = service.process.poll() is None
        broker.stop.set()
        for client in clients:
            client.stop.set()
            client.join()
        print("connections:", ", ".join(f"{name} {count}" for name, count in broker.counts.items()))
        for name, client in zip(["ping", "post"], clients):
            waits = sorted(client.waits)
            print(f"{name}: {len(waits)} requests, {client.failures} failures, median {waits[len(waits) // 2]:.1f} ms, "
                  f"worst {waits[-1]:.1f} ms")
        print("resident MiB in each tenth:", " ".join(f"{tenth:.0f}" for tenth in tenths))
        deadline, is_stored = time.monotonic() + 60, False
        while is_alive and not is_stored and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                is_stored = '"42' in fetch(f"http://127.0.0.1:{port}/api/v1/latest?db=d&sensor=home,room=honest").replace(":42", ':"42')
            time.sleep(0.5)
        print(f"alive: {is_alive}, the honest message is stored: {is_stored}")
        is_slow = any(client.failures or max(client.waits) > 1000 for client in clients)
        sys.exit(0 if is_alive and is_stored and not is_slow and tenths[-1] < 1.3 * max(tenths[:5]) else 1)


if __name__ == "__main__":
    main()
