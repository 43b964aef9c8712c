"""The readings of a database as a plain dict, and the requests that change both it and a server."""

import datetime
import http.client
import json
import re
import urllib.parse

from folds import DAY, HOUR, SECOND

# Starts of periods: two whole months, days around a change of clocks, days in columns, days of backfill, and days that
# are not over, whose hours stay in pages or in memory.
MONTHS = 1_782_864_000 * SECOND  # 2026-07-01
CLOCKS = 1_792_800_000 * SECOND  # 2026-10-24
COLUMNS = 1_794_268_800 * SECOND  # 2026-11-10
BACKFILL = 1_794_787_200 * SECOND  # 2026-11-16
FUTURE = 1_932_508_800 * SECOND  # 2031-03-29


class Client:
    """A connection to a server."""

    def __init__(self, url):
        self.address = urllib.parse.urlsplit(url).netloc
        self.connection = http.client.HTTPConnection(self.address, timeout=120)

    def send(self, method, path, parameters=(), body=None, headers=None):
        """Returns the status, headers and text of an answer."""
        if parameters:
            path += "?" + urllib.parse.urlencode(parameters)
        try:
            self.connection.request(method, path, body, headers or {})
            answer = self.connection.getresponse()
        except (http.client.HTTPException, OSError):
            # A server may close an idle connection; every request here may be repeated.
            self.connection.close()
            self.connection.request(method, path, body, headers or {})
            answer = self.connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()

    def expect(self, method, path, parameters=(), body=None, statuses=(200, 204)):
        status, _, text = self.send(method, path, parameters, body)
        if status not in statuses:
            raise SystemExit(f"{method} {path} {parameters}: {status} {text[:2000]}")
        return json.loads(text) if text else None


class Sensor:
    """One time series under its stored name; `data` has the fields by time."""

    def __init__(self, measurement, tags):
        self.measurement = measurement
        self.tags = tags
        self.data = {}
        self.fields = {}
        # Hours with readings in memory, with corrected readings and with deleted ones.
        self.unflushed = set()
        self.corrected = set()
        self.deleted = set()
        self.ordered = None

    def key(self):
        return key_of(self.measurement, self.tags)

    def times(self):
        if self.ordered is None:
            self.ordered = sorted(self.data)
        return self.ordered


def key_of(measurement, tags):
    return ",".join([measurement, *(f"{key}={value}" for key, value in sorted(tags.items()))])


def family(value):
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def format_value(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value}i"
    return f'"{value}"' if isinstance(value, str) else repr(value)


class World:
    """A database of a server and its model."""

    def __init__(self, client, name, random):
        self.client = client
        self.name = name
        self.random = random
        self.sensors = {}
        self.renames = []
        # Readings before this time have expired, and `has_summaries` tells if their summaries stay.
        self.expired_before = None
        self.has_summaries = False

    # Names.

    def shown(self, sensor):
        """Returns the measurement and tags that queries see."""
        for entry in self.renames:
            if entry["kind"] == "sensor" and entry["from"] == sensor.key():
                measurement, *tags = entry["to"].split(",")
                return measurement, dict(tag.split("=") for tag in tags)
        measurement = sensor.measurement
        tags = {}
        for key, value in sensor.tags.items():
            shown_key = key
            for entry in self.renames:
                if entry["kind"] == "tag_value" and entry["tag"] == key and entry["from"] == value:
                    value = entry["to"]
                if entry["kind"] == "tag_key" and entry["from"] == key and entry["to"] not in sensor.tags:
                    shown_key = entry["to"]
            tags[shown_key] = value
        for entry in self.renames:
            if entry["kind"] == "measurement" and entry["from"] == measurement:
                measurement = entry["to"]
        return measurement, tags

    def shown_key(self, sensor):
        return key_of(*self.shown(sensor))

    def rename(self, entry):
        self.client.expect("PUT", "/api/v1/renames", {"db": self.name}, json.dumps(entry))
        self.renames.append(entry)

    def remove_rename(self, entry):
        parameters = {"db": self.name, **{key: value for key, value in entry.items() if key != "to"}}
        self.client.expect("DELETE", "/api/v1/renames", parameters)
        self.renames.remove(entry)

    def listed(self):
        """Returns the sensors with readings, or with summaries of expired ones."""
        return [sensor for sensor in self.sensors.values() if self.live_times(sensor) or self.has_expired(sensor)]

    def live_times(self, sensor):
        times = sensor.times()
        if self.expired_before is None:
            return times
        return [time for time in times if time >= self.expired_before]

    def has_expired(self, sensor):
        return self.has_summaries and any(time < self.expired_before for time in sensor.data)

    # Changes.

    def write(self, lines):
        """Writes `(stored key, time, fields)`, under the stored or the shown name."""
        text = []
        for key, time, fields in lines:
            sensor = self.sensors.get(key)
            if sensor is None:
                measurement, *tags = key.split(",")
                sensor = self.sensors[key] = Sensor(measurement, dict(tag.split("=") for tag in tags))
            if time in sensor.data:
                sensor.corrected.add(time // HOUR)
            reading = sensor.data.setdefault(time, {})
            for name, value in fields.items():
                known = sensor.fields.setdefault(name, family(value))
                # A value of another type is kept beside its field.
                kept = name if known == family(value) else f"{name}@{family(value)}"
                sensor.fields.setdefault(kept, family(value))
                reading[kept] = value
            sensor.ordered = None
            sensor.unflushed.add(time // HOUR)
            named = self.shown_key(sensor) if self.random.random() < 0.5 else key
            values = ",".join(f"{name}={format_value(value)}" for name, value in fields.items())
            text.append(f"{named} {values} {time}")
        for start in range(0, len(text), 2000):
            body = "\n".join(text[start:start + 2000])
            self.client.expect("POST", "/write", {"db": self.name, "precision": "ns"}, body)

    def flush(self):
        self.client.expect("POST", "/api/v1/flush")
        for sensor in self.sensors.values():
            sensor.unflushed.clear()

    def seal(self):
        """Flushes, and seals each day that is over."""
        self.flush()
        for _ in range(200):
            answer = self.client.expect("POST", "/api/v1/jobs/seal/run", statuses=(200, 202))
            run = answer.get("run")
            while run and answer.get("state") == "running":
                answer = self.client.expect("POST", "/api/v1/jobs/seal/run", {"run": run}, statuses=(200, 202))
                run = answer.get("run")
            if answer["progress"].get("unsettled", 0) == 0:
                return
        raise SystemExit(f"not sealed: {answer}")

    def configure(self, settings):
        self.client.expect("PATCH", f"/api/v1/databases/{self.name}", body=json.dumps(settings))

    def await_expiry(self):
        """Reads how far readings have expired, once that is known."""
        for _ in range(600):
            settings = self.client.expect("GET", f"/api/v1/databases/{self.name}")
            if settings.get("expired_before"):
                self.expired_before = to_ns(settings["expired_before"])
                return
        raise SystemExit(f"nothing expires: {settings}")

    def delete(self, statement, is_covered):
        """Deletes the readings that `is_covered(tags, time, fields)`, by a statement."""
        answer = self.client.expect("POST", "/query", {"db": self.name, "q": statement, "wait": "true"})
        if "error" in json.dumps(answer):
            raise SystemExit(f"{statement}: {answer}")
        measurement = re.search(r"FROM (\w+)", statement).group(1)
        for key, sensor in list(self.sensors.items()):
            shown, tags = self.shown(sensor)
            if shown != measurement:
                continue
            gone = [time for time, fields in sensor.data.items() if is_covered(tags, time, fields)]
            for time in gone:
                del sensor.data[time]
                sensor.deleted.add(time // HOUR)
            sensor.ordered = None
            if not sensor.data:
                del self.sensors[key]

    # Stored forms.

    def documents(self):
        """Returns the form, start and end of all that is stored, by stored key."""
        found = {}
        for key, sensor in self.sensors.items():
            forms = found[key] = []
            for document in self.pages_of(sensor):
                kind = document["collection"].split(".")[-1]
                body = document["document"]
                if kind == "days":
                    kind = body.get("form", "packed")
                if kind in ("sensors", "groups") or "start" not in body:
                    continue
                start = to_ns(body["start"])
                end = to_ns(body["end"]) if "end" in body else start + 31 * DAY
                forms.append((kind, start, end))
            marks = {"memtable": sensor.unflushed, "corrected": sensor.corrected, "deleted": sensor.deleted}
            for kind, hours in marks.items():
                forms.extend((kind, hour * HOUR, (hour + 1) * HOUR) for hour in hours)
            if self.expired_before is not None and not self.has_summaries:
                forms.append(("retention", -(2**63), self.expired_before))
            if self.shown_key(sensor) != key:
                forms.append(("renamed", -(2**63), 2**63))
            if any("@" in name for name in sensor.fields):
                forms.append(("drifted", -(2**63), 2**63))
        return found


    def pages_of(self, sensor):
        parameters = {"db": self.name, "sensor": self.shown_key(sensor), "limit": 100}
        while True:
            answer = self.client.expect("GET", "/api/v1/documents", parameters)
            yield from answer["documents"]
            if not answer.get("next"):
                return
            parameters["cursor"] = answer["next"]


def to_ns(time):
    """Reads an RFC 3339 time, also as MongoDB's extended JSON."""
    if isinstance(time, dict):
        time = time["$date"]
    whole, _, fraction = time.rstrip("Z").partition(".")
    seconds = datetime.datetime.fromisoformat(whole + "+00:00").timestamp()
    return int(seconds) * SECOND + int((fraction or "0").ljust(9, "0"))
