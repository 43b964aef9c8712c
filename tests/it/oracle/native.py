"""Random questions to `/api/v1`, and their answers by docs/reference/http-api.md."""

import json

import folds
import influxql
from folds import DAY, HOUR, MILLISECOND, MINUTE, is_number
from influxql import Select
from questions import TAGS

NUMBER_FUNCTIONS = ["count", "min", "max", "sum", "avg", "first", "last", "stddev", "median", "mode", "p5", "p50",
                    "p95"]
TEXT_FUNCTIONS = ["count", "first", "last", "mode"]
# Functions that summaries of expired readings answer.
KEPT = ["count", "min", "max", "sum", "avg"]
# The same where each series has one sensor.
ENDS = ["first", "last"]
STEPS = {"15m": 15 * MINUTE, "1h": HOUR, "90m": 90 * MINUTE, "6h": 6 * HOUR, "1d": DAY, "7d": 7 * DAY}


class Native:
    """A source of questions for one world."""

    def __init__(self, questions):
        self.questions = questions
        self.random = questions.random

    def question(self, reader):
        """Returns the path, the parameters and the expected answer."""
        kinds = [self.readings, self.readings, self.summary, self.summary, self.summary, self.histogram, self.latest,
                 self.lists, self.sensors]
        kind = self.random.choice(kinds)
        path, parameters, expected, chosen, start, end = kind(reader)
        return path, [("db", reader.world.name), *parameters], expected, chosen, start, end

    def selection(self, reader, needs_measurement=False):
        """Returns parameters that choose sensors, and the sensors."""
        measurement = self.random.choice(self.questions.measurements)
        if not needs_measurement and self.random.random() < 0.3:
            found = list(reader.chosen(measurement))
            if found:
                sensor = self.random.choice(found)
                return [("sensor", reader.world.shown_key(sensor[0]))], [sensor]
        parameters = [("measurement", measurement)]
        tests = []
        for _ in range(self.random.choice([0, 0, 1, 2])):
            test = (self.random.choice(TAGS[measurement]), self.random.choice(["=", "!=", "=~", "!~"]), "")
            value = self.random.choice(["^[ab]$", "e", "^u"] if "~" in test[1] else ["a", "b", "eu", "us", "x", "r1"])
            tests.append((test[0], test[1], value))
            name, text = {"=": ("", value), "!=": ("!", value), "=~": ("", "~" + value), "!~": ("!~", value)}[test[1]]
            # In a request, `tag.host!=a` is the name `tag.host!`, and `tag.host!~a` has no value.
            parameters.append((f"tag.{test[0]}{name}", text) if name != "!~" else (f"tag.{test[0]}!~{value}", None))
        return parameters, list(reader.chosen(measurement, tests))

    def range(self, chosen):
        start, end = self.questions.range(False, chosen[0][1] if chosen else None)
        parameters = [("precision", "ns"), ("epoch", "ns")]
        parameters += [("from", start)] if start is not None else []
        parameters += [("to", end)] if end is not None else []
        return start, end, parameters

    def points(self, reader, sensor, start, end, reads_expired=False):
        """Returns the times and fields of a sensor in a range."""
        floor = None if reads_expired else reader.expired_before
        return [(time, sensor.data[time]) for time in sensor.times() if (start is None or time >= start)
                and (end is None or time < end) and (floor is None or time >= floor)]

    def readings(self, reader):
        parameters, chosen = self.selection(reader)
        start, end, more = self.range(chosen)
        parameters += more
        fields = None
        if self.random.random() < 0.4 and chosen:
            known = sorted(reader.fields(chosen[0][1]))
            fields = self.random.sample(known, min(len(known), 2))
            parameters.append(("fields", ",".join(fields)))
        is_descending = self.random.random() < 0.3
        parameters += [("order", "desc")] if is_descending else []
        parameters.append(("limit", self.random.choice([7, 100, 1000, 100000])))
        expected = {}
        for sensor, _, tags in chosen:
            shown = []
            for time, values in self.points(reader, sensor, start, end):
                kept = {name: value for name, value in values.items() if fields is None or name in fields}
                if kept:
                    shown.append({"ts": time, **kept})
            if shown:
                expected[reader.world.shown_key(sensor)] = (tags, shown[::-1] if is_descending else shown)
        return "/api/v1/readings", parameters, expected, chosen, start, end

    def summary(self, reader):
        parameters, chosen = self.selection(reader)
        start, end, more = self.range(chosen)
        parameters += more
        measurement = chosen[0][1] if chosen else None
        known = reader.fields(measurement)
        step = self.random.choice([name for name, width in STEPS.items()
                                   if start is None or end is None or (end - start) // width < 500])
        select = Select([], [], None, start, end, STEPS[step], zone=None)
        parameters.append(("step", step))
        if step == "1d" and self.random.random() < 0.5:
            select.zone = self.random.choice(["Europe/Berlin", "America/St_Johns"])
            parameters.append(("tz", select.zone))
        functions = None
        if self.random.random() < 0.7:
            functions = self.random.sample(NUMBER_FUNCTIONS, self.random.choice([1, 2, 4]))
            if self.questions.is_expiring and self.random.random() < 0.6:
                functions = self.random.sample(KEPT, 2)
            parameters.append(("agg", ",".join(functions)))
        fields = None
        if known and (self.random.random() < 0.6 or measurement == "wide"):
            fields = self.random.sample(sorted(known), min(len(known), 2))
            parameters.append(("fields", ",".join(fields)))
        groups = self.random.choice([None, "none", "*", *TAGS.get(measurement, [])])
        parameters += [("group_by", groups)] if groups else []
        fill = self.random.choice(["none", "none", "null", "7"]) if start is not None and end is not None else "none"
        if fields is None or any(known.get(field) != "number" for field in fields):
            fill = "none"
        parameters += [("fill", fill)] if fill != "none" else []
        has_texts = functions is not None or fields is not None
        functions = functions or KEPT
        ends = [self.series_of(reader, *one, groups)[0] for one in chosen]
        kept = KEPT + (ENDS if len(ends) == len(set(ends)) else [])
        reads_expired = reader.world.has_summaries and all(name in kept for name in functions) and (
            not reader.cuts_hours(select))
        series = {}
        for sensor, name, tags in chosen:
            key, label = self.series_of(reader, sensor, name, tags, groups)
            rows = series.setdefault(key, (label, []))[1]
            rows.extend(influxql.Row(time, 0, tags, values)
                        for time, values in self.points(reader, sensor, start, end, reads_expired))
        expected = {}
        for key, (label, rows) in series.items():
            rows.sort(key=lambda row: row.time)
            windows = self.windows(reader, select, rows, functions, fields or sorted(known), known, has_texts, fill)
            if windows:
                expected[key] = (label, windows)
        return "/api/v1/summary", parameters, expected, chosen, start, end

    def series_of(self, reader, sensor, measurement, tags, groups):
        """Returns the key of a sensor's series, and its tags."""
        if groups in (None, "none"):
            return reader.world.shown_key(sensor), tags
        label = {groups: tags[groups]} if groups in tags else {}
        return json.dumps([measurement, label]), label

    def windows(self, reader, select, rows, functions, fields, known, has_texts, fill):
        grouped = {}
        for row in rows:
            grouped.setdefault(influxql.window_start(select, row.time), []).append(row)
        shown = {}
        filled_fields = set()
        for at in grouped:
            end = influxql.next_window(select, at)
            figures = {}
            for field in fields:
                is_text = known[field] != "number"
                names = [name for name in functions if not is_text or name in TEXT_FUNCTIONS]
                points = reader.points(select, grouped[at], field, (at, end))
                shown_figures = {name: figure(name, points) for name in names} if points else {}
                # Without fill, a field without any value is not shown, such as the deviation of one reading.
                is_shown = any(value is not None for value in shown_figures.values()) or (fill != "none" and points)
                if (has_texts or not is_text) and is_shown:
                    figures[field] = shown_figures
                    filled_fields.add(field)
            if figures:
                shown[at] = figures
        if fill != "none" and shown:
            for at in influxql.window_starts(select, select.start, select.end):
                figures = shown.setdefault(at, {})
                # A field without values in the whole series is not filled, but shown.
                figures.update({field: dict.fromkeys(functions) for field in set(fields) - filled_fields})
                for field in filled_fields - figures.keys():
                    filler = 7 if fill == "7" else None
                    figures[field] = {name: 0 if name == "count" and fill == "null" else filler for name in functions}
        start = select.start if select.start is not None else -(2**63)
        end = select.end if select.end is not None else 2**63
        return [{"start": max(at, start), "end": min(influxql.next_window(select, at), end), "fields": shown[at]}
                for at in sorted(shown)]

    def histogram(self, reader):
        parameters, chosen = self.selection(reader)
        start, end = self.questions.range(True, chosen[0][1] if chosen else None)
        if reader.expired_before is not None:
            # Expired days have no counts of these bounds.
            start = max(start, reader.expired_before)
            end = max(end, start + HOUR)
        measurement = chosen[0][1] if chosen else "alpha"
        field = self.random.choice(self.questions.fields_of(measurement))
        bounds = sorted(self.random.sample([-2000, -500.5, 0, 1, 3, 100, 1000, 1999.25], 3))
        percentiles = self.random.choice([[], [50], [5, 95]])
        parameters += [("field", field), ("bounds", ",".join(map(str, bounds))), ("precision", "ns"), ("epoch", "ns"),
                       ("from", start), ("to", end)]
        parameters += [("percentiles", ",".join(map(str, percentiles)))] if percentiles else []
        select = Select([], [], None, start, end, None)
        step = self.random.choice([None, "1h", "1d"] if end - start < 20 * DAY else [None, "1d"])
        if step:
            parameters.append(("step", step))
            select.width = STEPS[step]
        expected = {}
        for sensor, _, tags in chosen:
            grouped = {}
            for time, values in self.points(reader, sensor, start, end):
                if is_number(values.get(field)):
                    at = influxql.window_start(select, time) if step else start
                    grouped.setdefault(at, []).append(values[field])
            if grouped:
                expected[reader.world.shown_key(sensor)] = (tags, [
                    self.counts(at, select, grouped[at], bounds, percentiles) for at in sorted(grouped)])
        return "/api/v1/histogram", parameters, expected, chosen, start, end

    def counts(self, at, select, values, bounds, percentiles):
        places = sorted(sum(bound <= value for bound in bounds) for value in values)
        end = min(at + select.width, select.end) if select.width else select.end
        window = {"start": max(at, select.start), "end": end, "count": len(values),
                  "counts": [places.count(place) for place in range(len(bounds) + 1)], "unplaced": 0}
        if percentiles:
            shown = window["percentiles"] = {}
            for percent in percentiles:
                rank = folds.percentile_place(len(values), percent)
                place = places[max(rank, 0)]
                shown[str(percent)] = {"approximate": True, "from": bounds[place - 1] if place else None,
                                       "to": bounds[place] if place < len(bounds) else None}
        return window

    def latest(self, reader):
        parameters, chosen = self.selection(reader)
        parameters += [("epoch", "ns")]
        expected = {}
        for sensor, _, tags in chosen:
            times = reader.world.live_times(sensor)
            if times:
                expected[reader.world.shown_key(sensor)] = (tags, [{"ts": times[-1], **sensor.data[times[-1]]}])
        return "/api/v1/latest", parameters, expected, chosen, None, None

    def sensors(self, reader):
        chosen = list(reader.chosen())
        parameters = [("epoch", "ns"), ("limit", self.random.choice([2, 1000]))]
        if self.random.random() < 0.5:
            text = self.random.choice(["alpha", "HOST=a", "eu", "unit"])
            parameters.append(("contains", text))
            chosen = [one for one in chosen if text.lower() in reader.world.shown_key(one[0]).lower()]
        expected = {}
        for sensor, measurement, tags in chosen:
            times = reader.world.live_times(sensor)
            latest = {"ts": times[-1], **sensor.data[times[-1]]} if times else None
            seen = times[-1] // MILLISECOND * MILLISECOND if times else None
            expected[reader.world.shown_key(sensor)] = (tags, {
                "measurement": measurement, "fields": sensor.fields, "last_seen": seen, "latest": latest})
        return "/api/v1/sensors", parameters, expected, chosen, None, None

    def lists(self, reader):
        everyone = list(reader.chosen())
        measurement = self.random.choice(self.questions.measurements)
        some = list(reader.chosen(measurement))
        tag = self.random.choice(TAGS[measurement])
        kind = self.random.choice(["measurements", "tags", "values", "fields"])
        if kind == "measurements":
            return "/api/v1/measurements", [], tally(name for _, name, _ in everyone), everyone, None, None
        of_one = [("measurement", measurement)]
        if kind == "tags":
            return "/api/v1/tags", of_one, tally(key for _, _, tags in some for key in tags), some, None, None
        if kind == "values":
            values = (tags[tag] for _, _, tags in some if tag in tags)
            return f"/api/v1/tags/{tag}", of_one, tally(values), some, None, None
        fields = (name for sensor, _, _ in some for name in sensor.fields)
        return "/api/v1/fields", of_one, tally(fields), some, None, None


def tally(names):
    counts = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def figure(name, points):
    if name.startswith("p") and name[1:].isdigit():
        found = folds.percentile(points, int(name[1:]))
        return found and found[1]
    return folds.fold("mean" if name == "avg" else name, points)[1]
