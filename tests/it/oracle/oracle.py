"""Asks a server random questions, and compares its answers with a plain model of the readings.

    python oracle.py --server URL --questions 5000 --seed 1

The server has small pages, flushes and seals on request only, and no tokens: see tests/it/oracle.rs. Prints each
mismatch, and the number of questions by stored form. With `--reference URL` of an InfluxDB 1.x, its answer is printed
beside a mismatch in InfluxQL.
"""

import argparse
import json
import random
import re
import sys
import time
from urllib.parse import quote

import influxql
from folds import DAY, same
from influxql import Select
from lists import Lists
from load import Loader, load_all
from native import Native
from questions import Questions
from reader import Reader
from reference import Reference
from world import Client, World

# Questions between two rounds of changes.
ROUND = 100


class Oracle:
    """Questions to one server and their judgement."""

    def __init__(self, options):
        self.options = options
        self.client = Client(options.server)
        self.random = random.Random(options.seed)
        self.balance = {}
        self.kinds = {}
        self.empty = 0
        self.mismatches = 0
        self.asked = 0
        self.worlds = []

    def world(self, name):
        world = World(self.client, f"{name}{self.options.seed}", self.random)
        self.client.expect("POST", "/query", {"q": f'CREATE DATABASE "{world.name}"'})
        return world

    def run(self):
        main = Loader(self.world("main"), self.options.small)
        today = time.time_ns() // DAY * DAY
        periods = [(today - 12 * DAY, 12), (today - 9 * DAY, 3)]
        expiring = [(Loader(self.world(name), self.options.small), {"readings": "8d", **more})
                    for name, more in [("gone", {}), ("kept", {"summaries": "inf"})]]
        load_all(main, expiring)
        self.worlds = [(main.world, Questions(self.random), 8)]
        for loader, _ in expiring:
            questions = Questions(self.random, periods, ["alpha"], ["f", "g", "i", "k", "s"], True)
            self.worlds.append((loader.world, questions, 1))
        while self.asked < self.options.questions:
            print(f"{self.asked} questions, {self.mismatches} mismatches", file=sys.stderr)
            self.round(min(ROUND, self.options.questions - self.asked))
            changes = main.change()
            print(f"changes: {', '.join(changes)}", file=sys.stderr)
        return self.report()

    def round(self, count):
        readers = {}
        for world, questions, _ in self.worlds:
            if world.expired_before is not None:
                world.await_expiry()
            readers[world.name] = Reader(world), world.documents(), questions
        weights = [weight for *_, weight in self.worlds]
        for _ in range(count):
            world = self.random.choices(self.worlds, weights)[0][0]
            reader, documents, questions = readers[world.name]
            self.asked += 1
            kind = self.random.random()
            if kind < 0.55:
                self.ask_select(reader, documents, questions)
            elif kind < 0.92:
                self.ask_native(reader, documents, Native(questions))
            else:
                self.ask_list(reader, Lists(questions))

    def ask_select(self, reader, documents, questions):
        select = questions.select()
        text = influxql.statement_text(select)
        expected = influxql.answer(select, reader)
        parameters = {"db": reader.world.name, "epoch": "ns", "q": text}
        _, _, body = self.client.send("GET", "/query", parameters)
        actual = series_of(json.loads(body))
        self.count("select", not expected)
        inner = select
        while isinstance(inner.source, Select):
            inner = inner.source
        chosen = [sensor for name in inner.source for sensor in reader.chosen(name)]
        self.weigh(documents, chosen, inner.start, inner.end)
        if not same(expected, actual):
            self.complain(reader, text, expected, actual if actual is not None else body)

    def ask_list(self, reader, lists):
        text, expected = lists.question(reader)
        _, _, body = self.client.send("GET", "/query", {"db": reader.world.name, "epoch": "ns", "q": text})
        self.count("show", not expected)
        actual = series_of(json.loads(body))
        if not same(expected, actual):
            self.complain(reader, text, expected, actual if actual is not None else body)

    def ask_native(self, reader, documents, native):
        path, parameters, expected, chosen, start, end = native.question(reader)
        actual = self.fetch(path, parameters)
        self.count(path.removeprefix("/api/v1/").split("/")[0], not expected)
        self.weigh(documents, chosen, start, end)
        if not same(expected, actual):
            self.complain(None, f"{path} {parameters}", expected, actual)

    def fetch(self, path, parameters):
        """Returns an answer in the form of the expected ones, of all parts."""
        found = {}
        cursor = None
        while True:
            pairs = parameters + ([("cursor", cursor)] if cursor else [])
            query = "&".join(quote(name, safe="") + (f"={quote(str(value), safe='')}" if value is not None else "")
                             for name, value in pairs)
            status, _, body = self.client.send("GET", f"{path}?{query}")
            if status != 200:
                return body
            answer = json.loads(body)
            if problem := take(path, answer, found, dict(parameters)):
                return problem
            cursor = answer.get("next")
            if not cursor:
                return found

    def count(self, kind, is_empty):
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.empty += is_empty

    def weigh(self, documents, chosen, start, end):
        """Counts a question for each stored form that its sensors have in its range."""
        start = -(2**63) if start is None else start
        end = 2**63 if end is None else end
        forms = {form for sensor, *_ in chosen for form, low, high in documents.get(sensor.key(), [])
                 if low < end and start < high}
        for form in forms:
            self.balance[form] = self.balance.get(form, 0) + 1

    def complain(self, reader, question, expected, actual):
        self.mismatches += 1
        if self.mismatches > self.options.shown:
            return
        print(f"MISMATCH seed {self.options.seed}, question {self.asked}: {question}")
        place = first_difference(expected, actual)
        print(f"  at {place}\n  expected {cut(expected, 400)}\n  actual   {cut(actual, 400)}")
        if self.options.reference and reader is not None:
            print(f"  influxd  {cut(Reference(self.options.reference, reader).ask(question))}")

    def report(self):
        _, _, metrics = self.client.send("GET", "/metrics")
        totals = re.search(r"^hourglass_query_daily_totals_total (\S+)", metrics, re.M)
        self.balance["months"] = int(float(totals.group(1))) if totals else 0
        print(json.dumps({"questions": self.asked, "mismatches": self.mismatches, "empty": self.empty,
                          "kinds": self.kinds, "forms": self.balance}))
        return 1 if self.mismatches else 0


def take(path, answer, found, parameters):
    """Adds a part of an answer to those before."""
    kind = path.split("/")[3]
    if kind in ("measurements", "tags", "fields"):
        name = "value" if path.count("/") == 4 else kind[:-1]
        for entry in answer[name + "s"]:
            found[entry[name]] = entry["sensors"]
        return None
    if kind == "sensors":
        for entry in answer["sensors"]:
            kept = {name: entry[name] for name in ("measurement", "fields", "last_seen", "latest")}
            found[entry["sensor"]] = [entry["tags"], kept]
        return None
    rows = {"readings": "readings", "latest": "readings"}.get(kind, "windows")
    count = 0
    for entry in answer["series"]:
        key = entry.get("sensor") or json.dumps([entry["measurement"], entry["tags"]])
        known = found.setdefault(key, [entry["tags"], []])
        known[1].extend(entry[rows])
        count += len(entry[rows])
    # A named sensor is listed without readings, too.
    for key in [key for key, (_, shown) in found.items() if not shown]:
        del found[key]
    if kind == "readings" and count > int(parameters["limit"]):
        return f"{count} readings in one part"
    return None


def series_of(answer):
    """Returns the series of an answer to one statement, `None` for an error."""
    result = answer.get("results", [{}])[0]
    if "error" in result or "error" in answer:
        return None
    return [{"name": one.get("name"), "tags": one.get("tags"), "columns": one["columns"], "values": one["values"]}
            for one in result.get("series", [])]


def first_difference(expected, actual, place=""):
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in sorted(expected.keys() | actual.keys(), key=str):
            if key not in expected or key not in actual:
                return f"{place}.{key} is {'missing' if key in expected else 'new'}"
            if not same(expected[key], actual[key]):
                return first_difference(expected[key], actual[key], f"{place}.{key}")
    if isinstance(expected, (list, tuple)) and isinstance(actual, list):
        for number, pair in enumerate(zip(expected, actual)):
            if not same(*pair):
                return first_difference(*pair, f"{place}[{number}]")
        return f"{place} has {len(actual)} entries, not {len(expected)}"
    return f"{place}: {cut(actual, 200)}, not {cut(expected, 200)}"


def cut(value, length=700):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= length else text[:length] + " …"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--questions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="fewer readings")
    parser.add_argument("--shown", type=int, default=20, help="mismatches that are printed")
    parser.add_argument("--reference", help="the URL of an InfluxDB 1.x")
    sys.exit(Oracle(parser.parse_args()).run())


if __name__ == "__main__":
    main()
