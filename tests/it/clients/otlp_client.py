"""Exports metrics with the unmodified OTLP exporter of OpenTelemetry, and prints the outcome as JSON.

Usage: otlp_client.py URL TOKEN
"""

import json
import logging
import sys

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

url, token = sys.argv[1:]
logging.disable(logging.CRITICAL)
seen = {}
for name, key, compression in [
    ("plain", token, Compression.NoCompression),
    ("gzip", token, Compression.Gzip),
    ("stranger", "wrong", Compression.NoCompression),
]:
    headers = {"Authorization": f"Bearer {key}"}
    exporter = OTLPMetricExporter(url, headers=headers, compression=compression, timeout=20)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    resource = Resource({"service.name": "shop", "form": name})
    provider = MeterProvider([reader], resource, shutdown_on_exit=False)
    meter = provider.get_meter("meter", "1.0")
    orders = meter.create_counter("orders")
    orders.add(2, {"paid": True})
    orders.add(3, {"paid": True})
    orders.add(1, {"paid": False})
    meter.create_gauge("temp").set(21.5, {"room": "lab"})
    sizes = meter.create_histogram("sizes", explicit_bucket_boundaries_advisory=[1.0, 10.0])
    for size in [0.5, 5.0, 7.0, 50.0]:
        sizes.record(size)
    exported = []
    export = exporter.export
    exporter.export = lambda *arguments, **options: exported.append(export(*arguments, **options)) or exported[-1]
    provider.force_flush()
    seen[name] = [result.name for result in exported]
print(json.dumps(seen))
