#!/usr/bin/env python3
"""Messages per second of an MQTT consumer: a broker has a queue of QoS 1 messages for it, which it then takes.

    loadtest/mqtt_rates.py PROGRAM [--messages 100000] [--topics 20] [--rounds 3]

Consumers take turns: hourglass, which syncs before each acknowledgement, and collectd, which acknowledges before it writes a
line of CSV without a sync. Prints, for each round, messages per second, CPU microseconds of the consumer per message, and its
resident memory at the end. A small message is a number. Everything listens on loopback only; needs mosquitto 2 and Debian's
collectd-core.
"""

import argparse
import contextlib
import glob
import os
import shutil
import signal
import socket
import struct
import tempfile
import time

from unplug import BROKER, TIMEOUT, Service, fetch, free_port, receive

IN_FLIGHT = 500

HOURGLASS = """
[[mqtt]]
url = "mqtt://127.0.0.1:{port}"
client_id = "rates"
topics = ["home/+/+"]
mappings = ["plain"]
database = "d"
"""

COLLECTD = """
Interval 1
BaseDir "{folder}"
PIDFile "{folder}/pid"
TypesDB "/usr/share/collectd/types.db"
LoadPlugin csv
<Plugin csv>
  DataDir "{folder}/csv"
</Plugin>
LoadPlugin mqtt
<Plugin mqtt>
  <Subscribe "rates">
    Host "127.0.0.1"
    Port "{port}"
    ClientId "rates"
    QoS 1
    CleanSession false
    Topic "home/#"
  </Subscribe>
</Plugin>
"""


def remaining_length(count):
    encoded = bytearray()
    while count > 127:
        encoded.append(count & 127 | 128)
        count >>= 7
    return bytes(encoded) + bytes([count])


def connect(port, name):
    link = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT)
    body = b"\x00\x04MQTT\x04\x02\x00\x00" + struct.pack(">H", len(name)) + name
    link.sendall(b"\x10" + remaining_length(len(body)) + body)
    receive(link, 4)
    return link


def publish(port, messages):
    """Publishes topics and payloads with QoS 1, up to IN_FLIGHT at a time."""
    link = connect(port, b"publisher")
    for first in range(0, len(messages), IN_FLIGHT):
        part = messages[first : first + IN_FLIGHT]
        packets = bytearray()
        for number, (topic, payload) in enumerate(part, start=1):
            body = struct.pack(">H", len(topic)) + topic + struct.pack(">H", number) + payload
            packets += b"\x32" + remaining_length(len(body)) + body
        link.sendall(packets)
        receive(link, 4 * len(part))
    link.close()


class Hourglass:
    name = "hourglass"

    def __init__(self, program, folder, port, log):
        self.http_port = free_port()
        with open(f"{folder}/hourglass.toml", "w", encoding="utf-8") as file:
            file.write(HOURGLASS.format(port=port))
        arguments = [program, "serve", "--config", f"{folder}/hourglass.toml", "--listen", f"127.0.0.1:{self.http_port}"]
        self.service = Service([*arguments, "--data-dir", f"{folder}/data"], self.http_port, log)

    def metric(self, name):
        lines = fetch(f"http://127.0.0.1:{self.http_port}/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    def is_connected(self):
        return self.metric("hourglass_mqtt_connected{") == 1

    def count(self):
        return self.metric('hourglass_mqtt_messages_total{client_id="rates",outcome="stored"}')

    @staticmethod
    def message(topic, number):
        return b"home/room%d/n" % topic, b"%d.5" % number


class Collectd:
    name = "collectd"

    def __init__(self, program, folder, port, log):
        self.folder, self.log = folder, f"{folder}/log"
        with open(f"{folder}/collectd.conf", "w", encoding="utf-8") as file:
            file.write(COLLECTD.format(port=port, folder=folder))
        self.service = Service([program, "-f", "-C", f"{folder}/collectd.conf"], port, log)
        self.began = time.monotonic()

    def is_connected(self):
        return time.monotonic() > self.began + 2

    def count(self):
        count = 0
        for name in glob.glob(f"{self.folder}/csv/**/*", recursive=True):
            if os.path.isfile(name):
                with open(name, "rb") as file:
                    # The first line is the head.
                    count += sum(part.count(b"\n") for part in iter(lambda: file.read(1 << 20), b"")) - 1
        return count

    @staticmethod
    def message(topic, number):
        # collectd drops values that are older than the last one of their name.
        return b"home/host/room%d/gauge" % topic, b"%d:%d.5\0" % (1_700_000_000 + number, number)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


def measure(kind, program, options, broker_program):
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(open(os.path.join(folder, "log"), "w", encoding="utf-8"))
        port = free_port()
        with open(f"{folder}/broker.conf", "w", encoding="utf-8") as file:
            file.write(BROKER.format(port=port, folder=folder))
        broker = Service([broker_program, "-c", f"{folder}/broker.conf"], port, log)
        stack.callback(lambda: broker.process.kill())
        consumer = kind(program, folder, port, log)
        stack.callback(lambda: consumer.service.process.kill())
        while not consumer.is_connected():
            time.sleep(0.1)
        # The session is there; the broker keeps what comes from now on.
        consumer.service.end(signal.SIGTERM)
        each = options.messages // options.topics
        publish(port, [consumer.message(topic, number) for number in range(each) for topic in range(options.topics)])
        began = time.monotonic()
        consumer.service.start()
        total, count, took = each * options.topics, 0, 0.0
        # Until nothing more comes: collectd does not write all that it acknowledges.
        while count < total and time.monotonic() < began + took + 10:
            if (now := consumer.count()) > count:
                count, took = now, time.monotonic() - began
            time.sleep(0.1)
        pid = consumer.service.process.pid
        print(f"{kind.name:10} {count / took:9.0f} messages/s  {cpu_seconds(pid) * 1e6 / count:6.1f} us CPU per message  "
              f"{resident_mib(pid):6.1f} MiB resident  {count} of {total} stored", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    broker = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    collectd = shutil.which("collectd") or "/usr/sbin/collectd"
    for _ in range(options.rounds):
        measure(Hourglass, options.program, options, broker)
        if os.path.exists(collectd):
            measure(Collectd, collectd, options, broker)


if __name__ == "__main__":
    main()
