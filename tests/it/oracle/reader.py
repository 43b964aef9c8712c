"""Rows of a world as queries see them: shown names, without what has expired."""

import bisect
import re

import influxql
from folds import DAY, HOUR, is_number
from influxql import Row

# Functions that summaries of expired readings answer; the last two for one sensor in each series only.
KEPT = ["count", "sum", "mean", "min", "max", "spread"]
ENDS = ["first", "last"]


class Reader:
    """The rows of a world between two changes."""

    def __init__(self, world):
        self.world = world
        self.expired_before = world.expired_before
        self.sensors = {}
        for sensor in sorted(world.listed(), key=world.shown_key):
            measurement, tags = world.shown(sensor)
            self.sensors.setdefault(measurement, []).append((sensor, tags))
        self.cache = {}

    def all_rows(self, name):
        """Returns all rows of a measurement in order of time, and their times."""
        if name not in self.cache:
            rows = [Row(time, place, tags, fields) for place, (sensor, tags) in enumerate(self.sensors.get(name, []))
                    for time, fields in sensor.data.items()]
            rows.sort(key=lambda row: (row.time, row.place))
            self.cache[name] = rows, [row.time for row in rows]
        return self.cache[name]

    def rows(self, name, select):
        rows, times = self.all_rows(name)
        start, end = select.start, select.end
        calls = [call for expression, _ in select.columns for call in influxql.calls_of(expression)]
        if start is not None and select.width:
            start -= max([influxql.extra_windows(call) for call in calls], default=0) * select.width
        if self.expired_before is not None and not self.reads_summaries(name, select, calls):
            start = max(self.expired_before, start if start is not None else self.expired_before)
        low = 0 if start is None else bisect.bisect_left(times, start)
        high = len(times) if end is None else bisect.bisect_left(times, end)
        return rows[low:high]

    def tag_keys(self, name):
        return sorted({key for _, tags in self.sensors.get(name, []) for key in tags})

    def reads_summaries(self, name, select, calls):
        """Returns true if the summaries of expired readings answer this statement."""
        if not self.world.has_summaries or not calls or (select.where and names_field(select.where)):
            return False
        if any(expression[0] in ("field", "tag") for expression, _ in select.columns):
            return False
        if select.width and self.cuts_hours(select):
            return False
        keys = self.tag_keys(name) if select.tags == ["*"] else select.tags
        groups = self.groups(name, keys, select.where, list)
        is_single = len(groups) == len(set(groups))
        return all(call[1] in KEPT or (call[1] in ENDS and is_single) for call in calls)

    def cuts_hours(self, select):
        """Returns true if a window cuts an hour whose readings have expired."""
        start = -(-(select.start if select.start is not None else self.expired_before - 60 * DAY) // HOUR) * HOUR
        end = min(self.expired_before, select.end if select.end is not None else self.expired_before) // HOUR * HOUR
        inside = [at for at in influxql.window_starts(select, start, end) if start < at < end] if start < end else []
        if select.zone is None:
            return bool(inside) and (select.width % HOUR != 0 or select.shift % HOUR != 0)
        return any(at % HOUR for at in inside)

    def groups(self, name, keys, where, kind=set):
        """Returns the values of these tags of each sensor that a condition on tags chooses."""
        return kind(tuple(tags.get(key, "") for key in keys) for _, tags in self.sensors.get(name, [])
                    if where is None or names_field(where) or influxql.is_met(where, Row(0, 0, tags, {})))

    def points(self, select, rows, name, window):
        """Returns the points of a field; of an expired hour only if all of it is asked for, and only numbers."""
        points = influxql.points_of(rows, name)
        if self.expired_before is None:
            return points
        start = max([bound for bound in (window and window[0], select.start) if bound is not None], default=-(2**63))
        end = min([bound for bound in (window and window[1], select.end) if bound is not None], default=2**63)
        return [(time, value) for time, value in points if time >= self.expired_before
                or (is_number(value) and start <= time // HOUR * HOUR and time // HOUR * HOUR + HOUR <= end)]

    def fields(self, name):
        """Returns the fields of a measurement with their families."""
        return {field: family for sensor, _ in self.sensors.get(name, []) for field, family in sensor.fields.items()}

    def chosen(self, measurement=None, tests=()):
        """Returns the sensors of a measurement with tags by tests such as `("host", "=", "a")`."""
        for name, sensors in sorted(self.sensors.items()):
            for sensor, tags in sensors:
                if measurement in (None, name) and all(passes(tags, test) for test in tests):
                    yield sensor, name, tags


def passes(tags, test):
    key, operator, value = test
    found = tags.get(key, "")
    if operator in ("=", "!="):
        return (found == value) == (operator == "=")
    return (re.search(value, found) is not None) == (operator == "=~")


def names_field(condition):
    if condition[0] in ("and", "or"):
        return names_field(condition[1]) or names_field(condition[2])
    return not condition[1]
