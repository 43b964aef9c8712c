"""Compares MongoDB's time-series collections with hourglass on MongoDB: the same readings, each on a mongod of its own.

Prints Markdown tables: bytes and CPU per reading, queries, and what a time-series collection refuses, with MongoDB's
errors. Times are CPU times of the servers, without the client. Needs pymongo."""
import datetime, random, statistics, time
from itertools import accumulate
from urllib.parse import quote

import pymongo
from pymongo.errors import PyMongoError

import lab

START_S = 1_736_899_200  # 2025-01-15, so that all days are over
DAY_S = 86_400
SITES = 10
# Minutes of all sensors in one batch, and of the live load, which has one reading per sensor and batch.
BATCH_MINUTES = 24
LIVE_MINUTES = 720
CORRECTIONS = 200


class Fleet:
    """Sensors with a reading of two fields per minute: random walks with one decimal."""

    def __init__(self, sensors, minutes, seed):
        self.names = [f"s{number:04}" for number in range(sensors)]
        rng = random.Random(seed)
        walk = lambda start: list(accumulate(rng.choices((-1, 0, 1), k=minutes - 1), initial=start))
        self.walks = [(walk(200), walk(500)) for _ in self.names]

    def readings(self, minutes):
        """Yields the readings of some minutes, grouped by sensor, as MongoDB's manual recommends."""
        for number, (temp, humidity) in enumerate(self.walks):
            for minute in minutes:
                yield number, minute, temp[minute] / 10, humidity[minute] / 10

    def site(self, number):
        return f"site{number % SITES}"


def date(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)


class Native:
    """A time-series collection with the index that MongoDB's manual recommends for its queries."""
    title = "time-series collection"

    def __init__(self, servers, fleet):
        self.fleet = fleet
        self.client, pid = servers.mongod("native")
        self.pids = [pid]
        self.database = self.client.native

    def create(self, name):
        series = {"timeField": "ts", "metaField": "meta", "granularity": "minutes"}
        self.database.create_collection(name, timeseries=series).create_index([("meta.sensor", 1), ("ts", -1)])

    def insert(self, name, start, readings):
        metas = [{"sensor": sensor, "site": self.fleet.site(number)} for number, sensor in enumerate(self.fleet.names)]
        documents = [{"ts": date(start + minute * 60), "meta": metas[number], "temp": temp, "humidity": humidity}
                     for number, minute, temp, humidity in readings]
        self.database[name].insert_many(documents, ordered=False)

    def settle(self):
        pass

    def collections(self, name):
        return [name]

    def ask(self, question, number, day):
        low, high = date(START_S + day * DAY_S), date(START_S + (day + 1) * DAY_S)
        one, day_of_all = {"meta.sensor": self.fleet.names[number]}, {"ts": {"$gte": low, "$lt": high}}
        hour = {"$dateTrunc": {"date": "$ts", "unit": "hour"}}
        newest = {"$group": {"_id": "$meta.sensor", "ts": {"$first": "$ts"}, "temp": {"$first": "$temp"}}}
        find = self.database.plant.aggregate
        match question:
            case "hourly means of a sensor and day":
                group = {"$group": {"_id": hour, "mean": {"$avg": "$temp"}}}
                return sorted(row["mean"] for row in find([{"$match": one | day_of_all}, group]))
            case "hourly means of all sensors by site, a day":
                group = {"$group": {"_id": {"site": "$meta.site", "hour": hour}, "mean": {"$avg": "$temp"}}}
                return sorted(row["mean"] for row in find([{"$match": day_of_all}, group]))
            case "readings of a sensor and day":
                fields = {"$project": {"_id": 0, "ts": 1, "temp": 1}}
                return sorted(row["temp"] for row in find([{"$match": one | day_of_all}, fields]))
            case "readings above a value, all sensors, a day":
                return [row["count"] for row in find([{"$match": day_of_all | {"temp": {"$gt": 20}}}, {"$count": "count"}])]
            case "latest reading of a sensor":
                return [row["temp"] for row in find([{"$match": one}, {"$sort": {"ts": -1}}, {"$limit": 1}])]
            case "latest reading of all sensors":
                return sorted(row["temp"] for row in find([{"$sort": {"meta.sensor": 1, "ts": -1}}, newest]))


class Hourglass:
    title = "hourglass"

    def __init__(self, servers, fleet):
        self.fleet = fleet
        self.client, pid = servers.mongod("hourglass-mongod")
        configuration = '[[meta.copy]]\nname = "site"\nindex = true\n[[groups]]\nname = "site"\nby = "meta.site"\n'
        self.server = servers.hourglass(self.client, configuration)
        self.pids = [pid, self.server.process.pid]
        self.database = self.client.hourglass

    def create(self, name):
        if name == "live":
            self.server.ask("PATCH", f"/api/v1/databases/{name}", '{"seal_form":"off"}')
        line = '{{"sensor":"climate,sensor={}","meta":{{"site":"{}"}}}}\n'
        body = "".join(line.format(sensor, self.fleet.site(number)) for number, sensor in enumerate(self.fleet.names))
        self.server.ask("POST", f"/api/v1/meta?db={name}", body, {"Content-Type": "application/x-ndjson"})

    def insert(self, name, start, readings):
        lines = (f"climate,sensor={self.fleet.names[number]} temp={temp},humidity={humidity} {start + minute * 60}"
                 for number, minute, temp, humidity in readings)
        self.server.ask("POST", f"/write?db={name}&precision=s", "\n".join(lines))

    def settle(self):
        """Flushes, so that the CPU time includes all work of the inserts."""
        self.server.ask("POST", "/api/v1/flush")

    def collections(self, name):
        names = self.database.list_collection_names(filter={"type": "collection"})
        return [each for each in names if each.startswith(f"{name}.")]

    def ask(self, question, number, day):
        one, all_sensors = f"sensor=climate,sensor={self.fleet.names[number]}", "measurement=climate"
        low, high = START_S + day * DAY_S, START_S + (day + 1) * DAY_S
        options = f"db=plant&fields=temp&precision=s&epoch=s&limit=100000&from={low}&to={high}"
        get = lambda path: self.server.ask("GET", f"/{path}")["series"]
        means = lambda series: sorted(window["fields"]["temp"]["avg"] for each in series for window in each["windows"])
        temps = lambda series: sorted(reading["temp"] for each in series for reading in each["readings"])
        summary = options.replace("&limit=100000", "&agg=avg&step=1h")
        match question:
            case "hourly means of a sensor and day":
                return means(get(f"api/v1/summary?{summary}&{one}"))
            case "hourly means of all sensors by site, a day":
                return means(get(f"api/v1/summary?{summary}&{all_sensors}&group_by=meta.site"))
            case "readings of a sensor and day":
                return temps(get(f"api/v1/readings?{options}&{one}"))
            case "readings above a value, all sensors, a day":
                statement = f"SELECT count(temp) FROM climate WHERE temp > 20 AND time >= {low}s AND time < {high}s"
                answer = self.server.ask("GET", f"/query?db=plant&q={quote(statement)}")
                return [answer["results"][0]["series"][0]["values"][0][1]]
            case "latest reading of a sensor":
                return temps(get(f"api/v1/latest?db=plant&{one}"))
            case "latest reading of all sensors":
                return temps(get(f"api/v1/latest?db=plant&{all_sensors}&limit=1000"))


# Each with the number of times to ask it.
QUESTIONS = [("hourly means of a sensor and day", 300), ("readings of a sensor and day", 300),
             ("latest reading of a sensor", 300), ("latest reading of all sensors", 30),
             ("hourly means of all sensors by site, a day", 10), ("readings above a value, all sensors, a day", 10)]


def load(systems, name, start, parts):
    """Inserts the same batches into all systems, in turns by part; returns the CPU and wall seconds of each."""
    cpu = [0.0 for _ in systems]
    wall = [0.0 for _ in systems]
    for batches in parts:
        for number, system in enumerate(systems):
            before, started = lab.cpu(system.pids), time.monotonic()
            for readings in batches:
                system.insert(name, start, readings)
                if name == "live":
                    system.settle()
            system.settle()
            cpu[number] += lab.cpu(system.pids) - before
            wall[number] += time.monotonic() - started
    return cpu, wall


def measure_queries(systems, days):
    """Asks all systems in turns for the same random sensors and days; all must answer alike."""
    rng = random.Random(1)
    rows = []
    for question, times in QUESTIONS:
        cpu = [0.0 for _ in systems]
        walls = [[] for _ in systems]
        for _ in range(times):
            number, day = rng.randrange(len(systems[0].fleet.names)), rng.randrange(days)
            answers = []
            for index, system in enumerate(systems):
                before, started = lab.cpu(system.pids), time.monotonic()
                answers.append(system.ask(question, number, day))
                walls[index].append((time.monotonic() - started) * 1000)
                cpu[index] += (lab.cpu(system.pids) - before) * 1000 / times
            one, other = answers
            assert one and len(one) == len(other) and all(abs(a - b) < 1e-9 for a, b in zip(one, other)), question
        rows.append((question, *cpu, cpu[0] / cpu[1], *map(statistics.median, walls)))
    titles = [system.title for system in systems]
    lab.show("Queries: CPU ms of all servers, and median ms until the client has decoded the answer",
             [*titles, "ratio", *(f"{title}, wall" for title in titles)], rows)


def refusals(native):
    """Tries what an ordinary collection can, and returns MongoDB's errors."""
    plant, client, database = native.database.plant, native.client, native.database
    one = {"meta.sensor": native.fleet.names[0], "ts": date(START_S)}

    def write_in_transaction():
        with client.start_session() as session, session.start_transaction():
            plant.insert_one({"ts": date(START_S), "meta": {"sensor": "x"}, "temp": 1.0}, session=session)

    series = {"timeField": "ts", "metaField": "meta"}
    attempts = {
        "update a reading": lambda: plant.update_one(one, {"$set": {"temp": 1.0}}),
        "update readings of a sensor": lambda: plant.update_many({"meta.sensor": "none"}, {"$set": {"temp": 1.0}}),
        "replace or insert (upsert)": lambda: plant.update_many({"meta.sensor": "none"}, {"$set": {"meta.site": "x"}}, upsert=True),
        "change the metadata of a sensor": lambda: plant.update_many({"meta.sensor": "none"}, {"$set": {"meta.site": "x"}}),
        "delete a time range": lambda: plant.delete_many({"ts": {"$lt": date(START_S + 60)}}),
        "delete a sensor": lambda: plant.delete_many({"meta.sensor": "none"}),
        "unique index": lambda: plant.create_index([("meta.sensor", 1), ("ts", 1)], unique=True),
        "validator": lambda: database.create_collection("v", timeseries=series, validator={"temp": {"$type": "double"}}),
        "change stream": lambda: plant.watch().close(),
        "write in a transaction": write_in_transaction,
        "rename the collection": lambda: plant.rename("other"),
        "compact": lambda: database.command("compact", "plant", force=True),
        "compact its buckets": lambda: database.command("compact", "system.buckets.plant", force=True),
        "$merge into it": lambda: list(plant.aggregate([{"$limit": 1}, {"$merge": "plant"}])),
    }
    for name, attempt in attempts.items():
        try:
            attempt()
            yield name, "works"
        except PyMongoError as error:
            yield name, f"{error.code}: {str(error).split(', full error')[0]}"


def expires(native):
    """Returns true if a time-series collection with a TTL removes old readings within a minute."""
    series = {"timeField": "ts", "metaField": "meta"}
    expiring = native.database.create_collection("expiring", timeseries=series, expireAfterSeconds=DAY_S)
    expiring.insert_one({"ts": date(START_S), "meta": "s", "temp": 1.0})
    lab.await_true(lambda: expiring.count_documents({}) == 0)
    return "works"


def change(native, hourglass, count):
    """Sends readings twice, corrects some and deletes some."""
    def total():
        path = "/api/v1/summary?db=plant&measurement=climate&group_by=*&agg=count&fields=temp&step=1d&from=2025-01-01&to=now"
        series = hourglass.server.ask("GET", path)["series"]
        return sum(window["fields"]["temp"]["count"] for each in series for window in each["windows"])

    again = list(native.fleet.readings(range(2)))
    for system in (native, hourglass):
        system.insert("plant", START_S, again)
        system.settle()
    hourglass.server.run_job("seal")
    rows = [("readings stored again when sent twice", native.database.plant.count_documents({}) - count, total() - count)]
    rng = random.Random(3)
    corrected = [(rng.randrange(len(native.fleet.names)), rng.randrange(1440), 99.5, 1.5) for _ in range(CORRECTIONS)]
    before = lab.cpu(hourglass.pids)
    hourglass.insert("plant", START_S, corrected)
    hourglass.settle()
    hourglass.server.run_job("seal")
    cost = (lab.cpu(hourglass.pids) - before) / CORRECTIONS * 1000
    rows.append(("CPU ms per corrected reading of a sealed day", "refused", cost))
    with hourglass.database.watch() as changes:
        hourglass.insert("plant", START_S, corrected[:1])
        hourglass.settle()
        rows.append(("change streams work", "refused", changes.try_next() is not None))
    statement = f"DELETE FROM climate WHERE time >= {START_S}s AND time < {START_S + DAY_S}s"
    before = lab.cpu(hourglass.pids)
    hourglass.server.ask("POST", f"/query?db=plant&q={quote(statement)}")
    rows.append(("CPU ms to delete the first day of all sensors", "refused", (lab.cpu(hourglass.pids) - before) * 1000))
    rows.append(("readings left", "", total()))
    lab.show("Changes", [native.title, hourglass.title], rows)


def main():
    parser = lab.options(__doc__)
    parser.add_argument("--days", type=int, default=7)
    options = parser.parse_args()
    minutes = options.days * 1440
    fleet = Fleet(options.sensors, minutes, seed=1)
    with lab.Lab(options) as servers:
        native = Native(servers, fleet)
        hourglass = Hourglass(servers, fleet)
        version = native.client.server_info()["version"]
        print(f"mongod {version}, pymongo {pymongo.version}, {options.sensors} sensors, {options.days} days")
        for system in (native, hourglass):
            for name in ("plant", "live"):
                system.create(name)
        rows = measure_loads(native, hourglass, fleet, minutes)
        lab.show("Cost", [native.title, hourglass.title], rows)
        measure_queries([native, hourglass], options.days)
        change(native, hourglass, options.sensors * minutes)
        lab.show("A time-series collection, tried", ["result"], [*refusals(native), ("expire readings (TTL)", expires(native))])


def measure_loads(native, hourglass, fleet, minutes):
    """Loads history by large batches and live readings minute by minute; returns rows of CPU and bytes per reading."""
    systems = [native, hourglass]
    count, live_count = len(fleet.names) * minutes, len(fleet.names) * LIVE_MINUTES
    days = ([list(fleet.readings(range(at, at + BATCH_MINUTES))) for at in range(day, day + 1440, BATCH_MINUTES)]
            for day in range(0, minutes, 1440))
    cpu, wall = load(systems, "plant", START_S, days)
    before = lab.cpu(hourglass.pids)
    hourglass.server.run_job("seal")
    sealing = lab.cpu(hourglass.pids) - before
    live = Fleet(len(fleet.names), LIVE_MINUTES, seed=2)
    live_start = int(time.time()) // 3600 * 3600 - LIVE_MINUTES * 60
    hours = ([list(live.readings([minute])) for minute in range(at, at + 60)] for at in range(0, LIVE_MINUTES, 60))
    live_cpu, live_wall = load(systems, "live", live_start, hours)
    assert native.database.plant.count_documents({}) == count
    rows = [(f"CPU µs per reading, {BATCH_MINUTES} of each sensor per batch", *(each / count * 1e6 for each in cpu)),
            ("and with sealing", cpu[0] / count * 1e6, (cpu[1] + sealing) / count * 1e6),
            ("CPU µs per reading, 1 of each sensor per batch, stored at once", *(each / live_count * 1e6 for each in live_cpu)),
            ("wall µs per reading with the client, the first", *(each / count * 1e6 for each in wall)),
            ("wall µs per reading with the client, the last", *(each / live_count * 1e6 for each in live_wall))]
    for name, readings in (("plant", count), ("live", live_count)):
        stored = [lab.sizes(system.database, system.collections(name)) for system in systems]
        rows.append((f"bytes per reading, {name}: data and indexes", *(used / readings for _, used, _ in stored)))
        rows.append((f"of these, indexes, {name}", *(indexes / readings for _, _, indexes in stored)))
        rows.append((f"files, {name}", *(files / readings for files, _, _ in stored)))
        buckets = native.database[f"system.buckets.{name}"]
        compressed = buckets.count_documents({"control.version": 2})
        rows.append((f"compressed buckets, {name}", f"{compressed:,} of {buckets.count_documents({}):,}", ""))
    return rows


if __name__ == "__main__":
    main()
