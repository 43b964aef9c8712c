"""Random InfluxQL statements over what a loader wrote."""

from folds import DAY, HOUR, MINUTE, SECOND
from influxql import TRANSFORMS, Select
from world import BACKFILL, CLOCKS, COLUMNS, FUTURE, MONTHS

TAGS = {"alpha": ["host", "region"], "beta": ["host", "unit"], "gamma": ["unit", "zone"], "delta": ["host", "rack"],
        "wide": ["host"]}
NUMBERS = {"alpha": ["f", "g", "i", "n", "k", "x"], "beta": ["f", "i", "k"], "gamma": ["f", "g", "i"],
           "delta": ["f", "i", "k"], "wide": ["c0", "c7", "c1001"]}
OTHERS = {"alpha": ["b", "s", "f@string"], "beta": ["b"], "gamma": ["s"], "delta": [], "wide": []}
# The starts of periods with readings, and their days.
PERIODS = {
    "alpha": [(MONTHS, 31), (CLOCKS, 2), (COLUMNS, 1), (BACKFILL, 2), (BACKFILL, 2), (FUTURE, 1)],
    "beta": [(MONTHS, 31), (CLOCKS, 2), (COLUMNS, 1), (BACKFILL, 2), (FUTURE, 1)],
    "gamma": [(MONTHS, 31), (FUTURE, 1)],
    "delta": [(CLOCKS, 2), (FUTURE, 1)],
    "wide": [(MONTHS, 1)],
}
# Functions that are defined for readings of several sensors at one time, as `beta` has them.
UNORDERED = ["count", "sum", "mean", "min", "max", "spread", "stddev", "median", "count_distinct", "first", "last"]
AGGREGATES = [*UNORDERED, "mode", "percentile", "integral"]
SELECTORS = ["min", "max", "first", "last"]
MEASUREMENTS = ["alpha", "alpha", "alpha", "beta", "beta", "gamma", "delta", "wide"]
WIDTHS = [5 * MINUTE, 7 * MINUTE, 30 * MINUTE, HOUR, HOUR, 90 * MINUTE, 6 * HOUR, DAY, DAY, 7 * DAY]
FILLS = [None, None, "null", "none", "none", "previous", "linear", 7, -3]


class Questions:
    """A source of statements for one world."""

    def __init__(self, random, periods=None, measurements=MEASUREMENTS, fields=None, is_expiring=False):
        self.random = random
        self.periods = periods
        self.measurements = measurements
        self.allowed = fields
        self.is_expiring = is_expiring

    def pick(self, choices):
        return self.random.choice(choices)

    def once_in(self, number):
        return self.random.randrange(number) == 0

    def select(self):
        if self.is_expiring:
            return self.pick([self.windows, self.windows, self.totals, self.raw])()
        makers = [self.raw, self.raw, self.windows, self.windows, self.windows, self.windows, self.totals, self.totals,
                  self.raw_transformed, self.windows_transformed, self.ranked, self.distinct, self.beside, self.math,
                  self.nested, self.nested]
        return self.pick(makers)()

    # Parts.

    def fields_of(self, measurement, numbers=True):
        fields = NUMBERS[measurement] + ([] if numbers else OTHERS[measurement])
        return [field for field in fields if self.allowed is None or field in self.allowed]

    def range(self, whole=True, measurement=None):
        """Returns a start and an end; without `whole`, one or both may be missing."""
        period, days = self.pick(self.periods or PERIODS.get(measurement, PERIODS["alpha"]))
        start = period + self.random.randrange(-12, days * 24) * HOUR
        length = self.pick([HOUR, 3 * HOUR, 13 * HOUR, DAY, 2 * DAY, 5 * DAY, 40 * DAY])
        if period == MONTHS:
            length = max(length, DAY)
        if self.once_in(3):
            start = start // DAY * DAY
        if self.once_in(3):
            start += self.random.randrange(HOUR)
        if self.once_in(12):
            start, length = MONTHS - DAY, 200 * DAY
        end = start + length + (self.random.randrange(HOUR) if self.once_in(3) else 0)
        if not whole:
            start = None if self.once_in(5) else start
            end = None if self.once_in(5) else end
        return start, end

    def condition(self, measurement):
        if self.is_expiring:
            return ("compare", True, "host", self.pick(["=", "!="]), "a") if self.once_in(3) else None
        if self.once_in(2):
            return None
        condition = self.comparison(measurement)
        if self.once_in(2):
            condition = (self.pick(["and", "or"]), condition, self.comparison(measurement))
        return condition

    def comparison(self, measurement):
        if self.once_in(2):
            tag = self.pick(TAGS[measurement])
            value = self.pick(["a", "b", "c", "eu", "us", "x", "r1", "new", ""])
            if self.once_in(3):
                return ("match", True, tag, self.pick(["=~", "!~"]), self.pick(["^[ab]$", "e", "u", "^a"]))
            return ("compare", True, tag, self.pick(["=", "=", "!="]), value)
        field = self.pick(self.fields_of(measurement, numbers=False))
        if field == "b":
            return ("compare", False, field, self.pick(["=", "!="]), self.pick([True, False]))
        if field in ("s", "f@string"):
            if self.once_in(2):
                return ("match", False, field, self.pick(["=~", "!~"]), self.pick(["text [0-3]", "=", "broken"]))
            return ("compare", False, field, self.pick(["=", "!="]), self.pick(["text 3", "broken", ""]))
        value = self.pick([0, 2, 100.5, -500, 1000, 9007199254740993 if field == "n" else 7])
        return ("compare", False, field, self.pick(["=", "!=", "<", "<=", ">", ">="]), value)

    def grouping(self, measurement):
        return self.pick([[], [], [self.pick(TAGS[measurement])], list(TAGS[measurement]), ["*"]])

    def shape(self, select):
        """Sets order and limits."""
        select.descending = self.once_in(4)
        if self.once_in(4):
            select.limit = self.random.randrange(1, 12)
            select.offset = self.random.randrange(5) if self.once_in(2) else 0
        if self.once_in(8) and select.tags:
            select.slimit = self.random.randrange(1, 4)
            select.soffset = self.random.randrange(3) if self.once_in(2) else 0
            # A condition on a field may choose sensors by their tags, too.
            select.where = None
        return select

    def window(self, select):
        """Sets windows, not too many of them."""
        select.width = self.pick([width for width in WIDTHS if (select.end - select.start) // width < 800])
        choice = self.random.randrange(5)
        if choice == 0 and select.width <= DAY:
            select.shift = self.pick([3 * MINUTE, -3 * MINUTE, 17 * SECOND, HOUR])
        elif choice == 1 and select.width == DAY:
            select.zone = self.pick(["Europe/Berlin", "America/St_Johns", "Asia/Kolkata"])
        return select

    def argument(self, name):
        if name == "percentile":
            return self.pick([0.5, 5, 25, 50, 62.5, 90, 99, 100])
        if name in ("derivative", "non_negative_derivative", "integral", "elapsed"):
            return self.pick([None, "1s", "1m", "1h"])
        return self.random.randrange(2, 5) if name == "moving_average" else None

    def call(self, measurement, names):
        name = self.pick(names)
        is_any = name in ("count", "first", "last", "mode", "count_distinct") and not self.is_expiring
        field = self.pick(self.fields_of(measurement, numbers=not is_any))
        return ("call", name, ("field", field), self.argument(name))

    def functions(self, measurement):
        if self.is_expiring:
            return ["count", "sum", "mean", "min", "max", "spread", "count", "sum", "first", "last", "median", "stddev"]
        return UNORDERED if measurement == "beta" else AGGREGATES

    def base(self, columns, measurement, whole=True):
        start, end = self.range(whole, measurement)
        return Select(columns, [measurement], self.condition(measurement), start, end, tags=self.grouping(measurement))

    # Statements.

    def raw(self):
        measurement = self.pick(self.measurements)
        fields = self.fields_of(measurement, numbers=False)
        count = min(len(fields), self.pick([1, 1, 2, 3]))
        columns = [(("field", field), None) for field in self.random.sample(fields, count)]
        if self.once_in(3):
            columns.append((("tag", self.pick(TAGS[measurement])), None))
        return self.shape(self.base(columns, measurement, whole=False))

    def windows(self):
        measurement = self.pick(self.measurements)
        names = [name for name in self.functions(measurement) if name != "integral"]
        count = self.pick([1, 1, 2, 3])
        columns = [(self.call(measurement, names), f"c{place}" if count > 1 else None) for place in range(count)]
        select = self.window(self.base(columns, measurement))
        select.fill = self.pick(FILLS)
        if any(call[2][1] in ("b", "s", "f@string", "x") for call, _ in columns):
            select.fill = self.pick([None, "none", "previous"])
        return self.shape(select)

    def totals(self):
        measurement = self.pick(self.measurements)
        count = 2 if self.is_expiring else self.pick([1, 1, 2, 3])
        columns = [(self.call(measurement, self.functions(measurement)), f"c{place}" if count > 1 else None)
                   for place in range(count)]
        return self.shape(self.base(columns, measurement, whole=False))

    def unique_measurement(self):
        return self.pick([name for name in self.measurements if name != "beta"])

    def raw_transformed(self):
        measurement = self.unique_measurement()
        select = self.shape(self.base([(self.call(measurement, TRANSFORMS), None)], measurement, whole=False))
        select.descending = False
        return select

    def windows_transformed(self):
        measurement = self.unique_measurement()
        inner = self.call(measurement, ["count", "sum", "mean", "min", "max", "last", "median"])
        if inner[2][1] in OTHERS[measurement]:
            inner = ("call", "mean", ("field", "f"), None)
        name = self.pick([name for name in TRANSFORMS if name != "elapsed"])
        select = self.window(self.base([(("call", name, inner, self.argument(name)), None)], measurement))
        select.fill = self.pick([None, "none", "previous", 7])
        if inner[2][1] == "x":
            select.fill = "none"
        select.zone = None
        self.shape(select)
        select.descending = False
        return select

    def ranked(self):
        measurement = self.unique_measurement()
        name = self.pick(["top", "bottom"])
        field = self.pick(self.fields_of(measurement))
        count = self.random.randrange(1, 5)
        argument = (self.pick(TAGS[measurement]), count) if self.once_in(3) else count
        columns = [(("call", name, ("field", field), argument), None)]
        if not isinstance(argument, tuple) and self.once_in(2):
            other = self.pick(self.fields_of(measurement, numbers=False))
            columns.append((("field", other), "beside"))
        select = self.base(columns, measurement)
        if isinstance(argument, tuple):
            select.tags = []
        elif self.once_in(2):
            self.window(select)
        return select

    def distinct(self):
        measurement = self.unique_measurement()
        known = self.fields_of(measurement, numbers=False)
        field = self.pick([name for name in ("k", "s", "b", "i", "c0") if name in known])
        select = self.base([(("call", "distinct", ("field", field), None), None)], measurement)
        return self.window(select) if self.once_in(2) else select

    def beside(self):
        """A selector beside fields and tags of its reading."""
        measurement = self.unique_measurement()
        columns = [(("call", self.pick(SELECTORS), ("field", self.pick(self.fields_of(measurement))), None), "c0")]
        columns.append((("field", self.pick(self.fields_of(measurement, numbers=False))), "c1"))
        columns.append((("tag", self.pick(TAGS[measurement])), "c2"))
        select = self.base(columns, measurement)
        if self.once_in(2):
            self.window(select).fill = "none"
        return self.shape(select)

    def math(self):
        measurement = self.pick(self.measurements)
        if self.once_in(3):
            left, right = (("field", self.pick(self.fields_of(measurement))) for _ in range(2))
            right = self.pick([right, ("number", 3), ("number", 0.5)])
            columns = [(("math", self.pick(["+", "-", "*"]), left, right), "m")]
            return self.shape(self.base(columns, measurement, whole=False))
        names = ["count", "sum", "mean", "spread", "median"]
        calls = [self.call(measurement, names) for _ in range(2)]
        columns = [(("math", self.pick(["+", "-", "*"]), calls[0], self.pick([calls[1], ("number", 3)])), "m")]
        select = self.base(columns, measurement)
        if self.once_in(2):
            self.window(select).fill = self.pick([None, "none"])
        return self.shape(select)

    def nested(self):
        """A function of a subquery's windows, or a condition on its columns."""
        measurement = self.unique_measurement()
        tags = TAGS[measurement]
        inner_tags = self.pick([tags, [tags[0]], ["*"]])
        field = self.pick([name for name in self.fields_of(measurement) if name != "x"])
        if self.once_in(3):
            inner = self.base([(("field", field), "v")], measurement)
            inner.tags = list(inner_tags)
        else:
            names = ["count", "sum", "mean", "min", "max", "last"]
            inner = self.base([(("call", self.pick(names), ("field", field), None), "v")], measurement)
            inner.tags = list(inner_tags)
            self.window(inner).fill = "none"
        names = ["count", "sum", "mean", "min", "max", "spread", "median", "stddev"]
        outer = Select([(("call", self.pick(names), ("field", "v"), None), "w")], inner)
        if not inner.width:
            # The rows of windows may be before the range.
            outer.start = inner.start
            outer.end = inner.end
        outer.tags = [tags[0]] if self.once_in(2) else []
        if self.once_in(3):
            outer.where = ("compare", False, "v", self.pick([">", "<="]), self.pick([0, 10, 500.5]))
        if outer.start is not None and self.once_in(2):
            self.window(outer).fill = "none"
            outer.zone = None
        return outer
