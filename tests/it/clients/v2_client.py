"""Writes with the unmodified `influxdb-client`, the client of the v2 API, and prints what it saw as JSON.

Usage: v2_client.py URL BUCKET TOKEN
"""

import json
import sys
from datetime import datetime, timedelta, timezone

from influxdb_client import BucketRetentionRules, InfluxDBClient, Point, WriteOptions, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

url, bucket, token = sys.argv[1:]
start = datetime(2026, 1, 15, 14, tzinfo=timezone.utc)
seen = {}


def refused(write):
    try:
        write()
    except ApiException as refusal:
        return {"status": refusal.status, "message": refusal.message, "body": json.loads(refusal.body)}
    raise SystemExit("a bad request was not refused")


with InfluxDBClient(url=url, token=token, org="any", enable_gzip=True) as client:
    seen["ping"] = client.ping()
    seen["version"] = client.version()
    seen["health"] = client.health().status
    seen["ready"] = client.ready().status

    with client.write_api(write_options=SYNCHRONOUS) as api:
        point = Point("climate").tag("sensor", "room 1, left").tag("site", "a=b")
        point = point.field("temp", 22.1).field("count", 42).field("on", True).field("note", 'a "b"\\c')
        api.write(bucket=bucket, record=point.time(start, WritePrecision.NS))
        for precision, time in [
            (WritePrecision.S, 1768485600),
            (WritePrecision.MS, 1768485600001),
            (WritePrecision.US, 1768485600000002),
            (WritePrecision.NS, 1768485600000000003),
        ]:
            record = {"measurement": "precise", "fields": {"n": 1}, "time": time}
            api.write(bucket=bucket, record=record, write_precision=precision)
        minutes = [Point("many").field("n", n).time(start + timedelta(minutes=n)) for n in range(300)]
        api.write(bucket=bucket, record=minutes)
        api.write(bucket=bucket, record=b"")
        seen["rejected"] = refused(lambda: api.write(bucket=bucket, record="mixed v=1 1\nbad\nmixed v=2 2"))
        seen["conflict"] = refused(lambda: api.write(bucket=bucket, record='mixed v="x",w=3 3'))

    bucket_api = client.buckets_api()
    seen["buckets"] = [one.name for one in bucket_api.find_buckets(limit=100).buckets]
    made = bucket_api.create_bucket(
        bucket_name="made", retention_rules=BucketRetentionRules(type="expire", every_seconds=7200)
    )
    found = bucket_api.find_bucket_by_name("made")
    assert bucket_api.find_bucket_by_id(found.id).name == "made"
    assert bucket_api.find_bucket_by_name("nothing") is None
    seen["made"] = [made.id == found.id, made.name, made.retention_rules[0].every_seconds]
    seen["again"] = refused(lambda: bucket_api.create_bucket(bucket_name="made"))
    seen["org"] = client.organizations_api().find_organizations()[0].name
    seen["flux"] = refused(lambda: client.query_api().query("buckets()"))
    seen["flux"]["status"] = [seen["flux"]["status"], seen["flux"].pop("body")["code"]]
    deletes = client.delete_api()
    lines = [f"gone,t={tag} v={n} {n}" for tag in "ab" for n in range(4)]
    api = client.write_api(write_options=SYNCHRONOUS)
    api.write(bucket=bucket, record=lines)
    api.write(bucket="v2/week", record=lines[0])
    times = ["1970-01-01T00:00:00.000000001Z", "1970-01-01T00:00:00.000000002Z"]
    deletes.delete(*times, '_measurement="gone" AND (t="a")', bucket=bucket, org="any")
    seen["predicates"] = []
    for predicate in ['_field="v"', 't!="a"', 't="a" OR t="b"', 'v > 1', 't="a";DROP SERIES FROM gone', '"']:
        seen["predicates"].append(refused(lambda: deletes.delete(*times, predicate, bucket=bucket))["body"]["code"])

    done, failed = [], []
    options = WriteOptions(batch_size=500, flush_interval=1_000, max_retries=0)
    with client.write_api(
        write_options=options,
        success_callback=lambda conf, data: done.append(len(data.splitlines())),
        error_callback=lambda conf, data, error: failed.append(error.status),
    ) as api:
        for n in range(2000):
            api.write(bucket=bucket, record=Point("batched").tag("s", n % 4).field("n", n).time(n + 1, WritePrecision.MS))
        api.write(bucket=bucket, record=["batched,s=late n=1i 1", "bad"])
    # The last batch is the one with the bad line, and its good line is kept.
    seen["batches"] = sorted(done)
    seen["failed"] = failed

with InfluxDBClient(url=url, token="hg_000000000000_" + 64 * "0", org="any") as client:
    try:
        client.write_api(write_options=SYNCHRONOUS).write(bucket=bucket, record="stranger v=1 1")
        seen["stranger"] = 200
    except ApiException as refusal:
        seen["stranger"] = refusal.status

json.dump(seen, sys.stdout)
