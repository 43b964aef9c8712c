"""Random SHOW statements and their answers."""

from folds import OneOf
from influxql import condition_text, is_met, quote, Row
from questions import TAGS


class Lists:
    """A source of statements for one world."""

    def __init__(self, questions):
        self.questions = questions
        self.random = questions.random

    def question(self, reader):
        """Returns a statement and the expected series."""
        kind = self.random.choice([self.measurements, self.series, self.tag_keys, self.tag_values, self.field_keys,
                                   self.cardinality])
        return kind(reader)

    def condition(self, measurement):
        """Returns a condition on tags, and its text."""
        if self.random.random() < 0.5:
            return None, ""
        tag = self.random.choice(TAGS[measurement])
        if self.random.random() < 0.3:
            condition = ("match", True, tag, "=~", self.random.choice(["^[ab]$", "e", "u"]))
        else:
            value = self.random.choice(["a", "eu", "x", "r1"])
            condition = ("compare", True, tag, self.random.choice(["=", "!="]), value)
        return condition, f" WHERE {condition_text(condition)}"

    def chosen(self, reader, measurement, condition):
        return [(sensor, name, tags) for sensor, name, tags in reader.chosen(measurement)
                if condition is None or is_met(condition, Row(0, 0, tags, {}))]

    def measurements(self, reader):
        """A condition here selects by the values of a tag that a measurement has, as in InfluxDB."""
        condition, text = self.condition(self.random.choice(self.questions.measurements))
        names = sorted(reader.sensors)
        if condition is not None:
            kind, _, tag, operator, value = condition
            is_equal = (kind, True, tag, "=" if kind == "compare" else "=~", value)
            names = [name for name in names if tag in reader.tag_keys(name)
                     and bool(self.chosen_with(reader, name, tag, is_equal)) == (operator in ("=", "=~"))]
        return f"SHOW MEASUREMENTS{text}", table("measurements", ["name"], [[name] for name in names])

    def chosen_with(self, reader, measurement, tag, condition):
        return [one for one in self.chosen(reader, measurement, condition) if tag in one[2]]

    def series(self, reader):
        measurement = self.random.choice(self.questions.measurements)
        condition, text = self.condition(measurement)
        keys = sorted(reader.world.shown_key(sensor) for sensor, *_ in self.chosen(reader, measurement, condition))
        return f"SHOW SERIES FROM {measurement}{text}", table(None, ["key"], [[key] for key in keys])

    def tag_keys(self, reader):
        measurement = self.random.choice(self.questions.measurements)
        condition, text = self.condition(measurement)
        keys = sorted({key for *_, tags in self.chosen(reader, measurement, condition) for key in tags})
        return f"SHOW TAG KEYS FROM {measurement}{text}", table(measurement, ["tagKey"], [[key] for key in keys])

    def tag_values(self, reader):
        measurement = self.random.choice(self.questions.measurements)
        condition, text = self.condition(measurement)
        keys = self.random.choice([TAGS[measurement], TAGS[measurement][:1]])
        named = f"= {quote(keys[0])}" if len(keys) == 1 else f"IN ({', '.join(map(quote, keys))})"
        pairs = sorted({(key, tags[key]) for *_, tags in self.chosen(reader, measurement, condition)
                        for key in keys if key in tags})
        shown = table(measurement, ["key", "value"], [list(pair) for pair in pairs])
        return f"SHOW TAG VALUES FROM {measurement} WITH KEY {named}{text}", shown

    def field_keys(self, reader):
        measurement = self.random.choice([name for name in self.questions.measurements if name != "wide"])
        rows = [[field, field_type(reader, measurement, field, family)]
                for field, family in sorted(reader.fields(measurement).items())]
        return f"SHOW FIELD KEYS FROM {measurement}", table(measurement, ["fieldKey", "fieldType"], rows)

    def cardinality(self, reader):
        measurement = self.random.choice(self.questions.measurements)
        kind = self.random.choice(["SERIES", "MEASUREMENT", "TAG KEY"])
        if kind == "MEASUREMENT":
            return "SHOW MEASUREMENT EXACT CARDINALITY", table(None, ["count"], [[len(reader.sensors)]])
        if kind == "SERIES":
            count = len(list(reader.chosen(measurement)))
            shown = table(measurement, ["count"], [[count]] if count else [])
            return f"SHOW SERIES EXACT CARDINALITY FROM {measurement}", shown
        count = len(reader.tag_keys(measurement))
        shown = table(measurement, ["count"], [[count]] if count else [])
        return f"SHOW TAG KEY EXACT CARDINALITY FROM {measurement}", shown


def field_type(reader, measurement, field, family):
    """Returns InfluxDB's name of a type: numbers without any float are integers."""
    if family != "number":
        return family
    values = [fields[field] for sensor, *_ in reader.chosen(measurement)
              for fields in sensor.data.values() if field in fields]
    if all(isinstance(value, float) for value in values):
        return "float"
    # Only a sample tells the type of a field of both.
    return "integer" if all(isinstance(value, int) for value in values) else OneOf(["integer", "float"])


def table(name, columns, rows):
    return [{"name": name, "tags": None, "columns": columns, "values": rows}] if rows else []
