"""Compares ways to lay out the same data in MongoDB: embedded or referenced, one document or several.

Takes the documents that hourglass wrote, stores the same data in the other form beside them, and asks both. Prints the
documents that MongoDB examines, the bytes of the answer, and mongod's CPU time. Needs pymongo."""
import time

import pymongo
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

import lab
from native import DAY_S, START_S, Fleet, Hourglass, date

HOURS = 12
WRITTEN_PAGES = 20
WRITE_ROUNDS = 5
RAW = CodecOptions(document_class=RawBSONDocument)


def examined(plan):
    """Adds up the documents that an explained command examined."""
    if isinstance(plan, dict):
        return plan["executionStats"]["totalDocsExamined"] if "executionStats" in plan else sum(map(examined, plan.values()))
    return sum(map(examined, plan)) if isinstance(plan, list) else 0


class Layouts:
    def __init__(self, hourglass):
        self.database = hourglass.database
        self.mongod = hourglass.pids[:1]

    def ask(self, name, *commands, times=200):
        """Returns a row about a question that takes these commands one after the other."""
        documents = 0
        for command in commands:
            plan = self.database.command("explain", command, verbosity="executionStats")
            documents += examined(plan)
        answers = [self.database.command(command, codec_options=RAW) for command in commands]
        returned = sum(len(each.raw) for answer in answers for each in answer["cursor"]["firstBatch"])
        before = lab.cpu(self.mongod)
        for _ in range(times):
            for command in commands:
                self.database.command(command, codec_options=RAW)
        return name, documents, f"{returned:,}", (lab.cpu(self.mongod) - before) / times * 1000

    def write(self, name, page, change):
        """Returns a row about a change of a page, made to many at once: mongod's CPU time and the bytes of the oplog."""
        collection = self.database["writes"]
        collection.drop()
        collection.insert_many([page | {"_id": number} for number in range(WRITTEN_PAGES)])
        oplog = self.oplog()
        before = lab.cpu(self.mongod)
        for attempt in range(WRITE_ROUNDS):
            collection.bulk_write([change(number, attempt) for number in range(WRITTEN_PAGES)], ordered=False)
        cpu = lab.cpu(self.mongod) - before
        writes = WRITE_ROUNDS * WRITTEN_PAGES
        return name, cpu / writes * 1e6, (self.oplog() - oplog) / writes

    def oplog(self):
        written = {"ns": f"{self.database.name}.writes", "op": {"$in": ["i", "u"]}}
        total = {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}
        return sum(each["bytes"] for each in self.database.client.local["oplog.rs"].aggregate([{"$match": written}, total]))


def find(collection, condition, fields=None):
    return {"find": collection, "filter": condition, "batchSize": 100_000} | ({"projection": fields} if fields else {})


def aggregate(collection, *stages):
    return {"aggregate": collection, "pipeline": list(stages), "cursor": {"batchSize": 100_000}}


def compare_reads(layouts, fleet, start):
    """Asks for pages or single documents, copies or references, groups or sensors, days in one document or two."""
    ask = layouts.ask
    database = layouts.database
    sensor = f"climate,sensor={fleet.names[7]}"
    hour = date(start + 6 * 3600)
    of_hour = {"sensor": sensor, "ts": {"$gte": hour, "$lt": date(start + 7 * 3600)}}
    mean = {"$group": {"_id": {"$dateTrunc": {"date": "$ts", "unit": "hour"}}, "mean": {"$avg": "$temp"}}}
    in_site = [each["_id"] for each in database["live.sensors"].find({"meta.site": "site7"})]
    join = {"$lookup": {"from": "live.sensors", "localField": "sensor", "foreignField": "_id", "as": "of"}}
    id_of_hour = {"$regex": f"^{hour:%Y-%m-%dT%H} "}
    newest_of = lambda key: [{"$sort": {"sensor": -1, key: -1}}, {"$group": {"_id": "$sensor", "of": {"$first": "$$ROOT"}}}]
    day_of_one = {"sensor": sensor, "start": date(START_S)}
    id_of_day = {"$regex": f"^{date(START_S):%Y-%m-%d} "}
    return [
        ask("a question without an answer", find("live.sensors", {"_id": "none"})),
        ask("readings of a sensor and hour: 1 page", find("live.buckets", {"sensor": sensor, "start": hour})),
        ask("60 documents", find("readings", of_hour)),
        ask("12 hourly means of a sensor: summaries in pages", find("live.buckets", {"sensor": sensor}, {"summary": 1})),
        ask("from readings in pages", aggregate("live.buckets", {"$match": {"sensor": sensor}}, {"$unwind": "$readings"},
                                                {"$replaceWith": "$readings"}, mean)),
        ask("from 720 documents", aggregate("readings", {"$match": {"sensor": sensor}}, mean)),
        ask("latest of all sensors: in their documents", find("live.sensors", {}, {"latest": 1})),
        ask("in their newest pages", aggregate("live.buckets", *newest_of("start"))),
        ask("in single documents", aggregate("readings", *newest_of("ts"))),
        ask("latest of a site: its group's document", find("live.groups", {"group": "site", "value": "site7"})),
        ask("documents of its sensors", find("live.sensors", {"meta.site": "site7"}, {"latest": 1})),
        ask("pages of a site and hour: by the copied name", find("live.buckets", {"meta.site": "site7", "start": hour})),
        ask("sensors first, then their pages", find("live.sensors", {"meta.site": "site7"}, {"_id": 1}),
            find("live.buckets", {"sensor": {"$in": in_site}, "start": hour})),
        ask("`$lookup` for each page of the hour",
            aggregate("live.buckets", {"$match": {"_id": id_of_hour}}, join, {"$match": {"of.meta.site": "site7"}})),
        ask("hourly summaries of all sensors and a day: whole days", find("plant.days", {"_id": id_of_day}, {"hours": 1})),
        ask("days without readings", find("summaries", {"_id": id_of_day}, {"hours": 1})),
        ask("readings and summaries of a sensor and day: whole day", find("plant.days", day_of_one)),
        ask("two documents", find("summaries", day_of_one), find("packed", {"_id": f"{date(START_S):%Y-%m-%d} {sensor}"})),
    ]


def compare_writes(layouts):
    """Rewrites pages of several sizes, or appends to their arrays."""
    reading = lambda minute: {"ts": date(START_S + minute), "temp": 20.5, "humidity": 50.5}
    rows = []
    for count in (60, 3_600, 36_000):
        page = {"readings": [reading(minute) for minute in range(count)]}
        # MongoDB skips a replacement that changes nothing.
        replace = lambda number, attempt: pymongo.ReplaceOne({"_id": number}, page | {"rev": attempt})
        rows.append(layouts.write(f"rewrite a page of {count:,} readings", page, replace))
        for new in (1, 60):
            added = {"$push": {"readings": {"$each": [reading(count + minute) for minute in range(new)]}}}
            append = lambda number, _: pymongo.UpdateOne({"_id": number}, added)
            rows.append(layouts.write(f"`$push` {new} to such a page", page, append))
    return rows


def main():
    options = lab.options(__doc__).parse_args()
    history, live = Fleet(options.sensors, 2 * 1440, 1), Fleet(options.sensors, HOURS * 60, 2)
    start = int(time.time()) // 3600 * 3600 - HOURS * 3600
    with lab.Lab(options) as servers:
        hourglass = Hourglass(servers, live)
        database = hourglass.database
        for name in ("plant", "live"):
            hourglass.create(name)
        for at in range(0, 2 * 1440, 60):
            hourglass.insert("plant", START_S, history.readings(range(at, at + 60)))
        for at in range(0, HOURS * 60, 60):
            hourglass.insert("live", start, live.readings(range(at, at + 60)))
        hourglass.settle()
        for job in ("seal", "index", "group", "refresh"):
            hourglass.server.run_job(job)
        documents = [{"sensor": f"climate,sensor={live.names[number]}", "ts": date(start + minute * 60),
                      "temp": temp, "humidity": humidity}
                     for number, minute, temp, humidity in live.readings(range(HOURS * 60))]
        database.readings.insert_many(documents)
        database.readings.create_index([("sensor", 1), ("ts", 1)])
        database["plant.days"].aggregate([{"$unset": "sealed"}, {"$out": "summaries"}])
        database["plant.days"].aggregate([{"$project": {"sealed": 1}}, {"$out": "packed"}])
        for keys in ([("sensor", 1), ("start", 1)], [("chunkOf", 1)], [("meta.site", 1), ("start", 1)]):
            database.summaries.create_index(keys)
        version = hourglass.client.server_info()["version"]
        print(f"mongod {version}, {options.sensors} sensors, {len(documents):,} readings in pages and singly")
        rows = []
        forms = [("readings in hour pages", ["live.buckets"], len(documents)),
                 ("one document per reading", ["readings"], len(documents)),
                 ("days, whole", ["plant.days"], options.sensors * 2880),
                 ("days, summaries and readings apart", ["summaries", "packed"], options.sensors * 2880)]
        for name, collections, readings in forms:
            _, used, indexes = lab.sizes(database, collections)
            count = sum(database[each].count_documents({}) for each in collections)
            rows.append((name, f"{count:,}", used / readings, indexes / readings))
        lab.show("Size", ["documents", "bytes per reading", "of these, indexes"], rows)
        layouts = Layouts(hourglass)
        # Its background work would count as mongod's time.
        hourglass.server.end()
        lab.show("Reads", ["documents examined", "bytes returned", "CPU ms of mongod"], compare_reads(layouts, live, start))
        lab.show("Writes", ["CPU µs of mongod", "oplog bytes"], compare_writes(layouts))


if __name__ == "__main__":
    main()
