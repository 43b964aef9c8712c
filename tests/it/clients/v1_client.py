"""Writes with the unmodified `influxdb`, the client of the v1 API, and prints what it saw as JSON.

Usage: v1_client.py HOST PORT DATABASE TOKEN
"""

import json
import sys

from influxdb import InfluxDBClient
from influxdb.exceptions import InfluxDBClientError

host, port, database, token = sys.argv[1:]
seen = {}


def refused(write):
    try:
        write()
    except InfluxDBClientError as refusal:
        return {"code": refusal.code, "content": refusal.content}
    raise SystemExit("a bad line was not refused")


for gzip in [False, True]:
    client = InfluxDBClient(host=host, port=int(port), username="any", password=token, gzip=gzip)
    seen["ping"] = client.ping()
    client.create_database(database)
    seen["databases"] = client.get_list_database()
    client.switch_database(database)

    name = "gzip" if gzip else "plain"
    tags = {"sensor": "room 1, left", "form": name}
    fields = {"temp": 22.1, "count": 42, "on": True, "note": 'a "b"'}
    first = {"measurement": "climate", "tags": tags, "time": "2026-01-15T14:00:00Z", "fields": fields}
    seen["written"] = client.write_points([first])
    seconds = {"measurement": "precise", "tags": {"form": name}, "fields": {"n": 1}, "time": 1768485600}
    client.write_points([seconds], time_precision="s", retention_policy="autogen")
    many = [{"measurement": "many", "tags": {"form": name}, "time": n, "fields": {"n": n}} for n in range(1, 1001)]
    client.write_points(many, time_precision="ms", batch_size=300)
    client.write_points([f"lines,form={name} v=1 1", f"lines,form={name} v=2 2"], protocol="line")
    bad = [f"mixed,form={name} v=1 1", "bad", f"mixed,form={name} v=2 2"]
    seen["rejected"] = refused(lambda: client.write_points(bad, protocol="line"))
    seen["no_policy"] = refused(lambda: client.write_points([first], retention_policy="weekly"))
    seen["selected"] = list(client.query("SELECT temp, note FROM climate GROUP BY form").get_points(tags={"form": name}))
    client.write_points([f"gone,form={name} v=1 1", f"going,form={name} v=1 1"], protocol="line")
    client.drop_measurement("gone")
    client.delete_series(measurement="going", tags={"form": name})
    seen["left"] = [one["name"] for one in client.get_list_measurements()]
    client.create_database("doomed")
    client.drop_database("doomed")
    seen["databases_left"] = client.get_list_database()
    client.close()

client = InfluxDBClient(host=host, port=int(port), username="any", password="wrong", database=database)
try:
    client.write_points(["stranger v=1 1"], protocol="line")
    seen["stranger"] = 200
except InfluxDBClientError as refusal:
    seen["stranger"] = refusal.code

json.dump(seen, sys.stdout)
