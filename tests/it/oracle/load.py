"""Seeded readings that reach every stored form, and random changes between rounds of questions."""

import time

from folds import DAY, HOUR, MINUTE
from world import BACKFILL, CLOCKS, COLUMNS, FUTURE, MONTHS

# Stored keys; some are shown under other names.
ALPHA = ["alfa,host=a,region=euro", "alfa,host=b,region=us", "alfa,host=c", "alfa,host=d,region=euro", "alfa,region=ap"]
BETA = ["beta,host=a,unit=x", "beta,host=a,unit=y", "beta,host=b,unit=x", "beta,hst=c,unit=y"]
GAMMA = ["gamma,unit=old"]
DELTA = ["delta,host=a,rack=r1", "delta,host=b,rack=r1", "delta,host=b,rack=r2"]
WIDE = "wide,host=w"
RENAMES = [
    {"kind": "measurement", "from": "alfa", "to": "alpha"},
    {"kind": "tag_value", "tag": "region", "from": "euro", "to": "eu"},
    {"kind": "tag_key", "from": "hst", "to": "host"},
    {"kind": "sensor", "from": "gamma,unit=old", "to": "gamma,unit=new,zone=z"},
]
# The sensors of worlds whose readings expire.
EXPIRING = ["alpha,host=a", "alpha,host=b"]
# Set and removed between rounds.
TOGGLED = {"kind": "tag_value", "tag": "region", "from": "us", "to": "usa"}
FIELDS = {
    "alfa": ["f", "g", "i", "n", "k", "x", "b", "s"],
    "beta": ["f", "i", "k", "b"],
    "gamma": ["f", "g", "i", "s"],
    "delta": ["f", "i", "k"],
}
SEALS = ["seal", "seal", "flush", "nothing"]


class Loader:
    """Makes readings and changes of one world. Sensors of all measurements but `beta` have times of their own."""

    def __init__(self, world, is_small):
        self.world = world
        self.random = world.random
        # The minutes between readings of dense days, and the sparse days of each sensor.
        self.dense = 5 if is_small else 4
        self.days = 31 if is_small else 62

    def value(self, name):
        number = self.random.randrange(-16_000, 16_000)
        if name == "f":
            return number / 8 if self.random.random() < 0.5 else number / 7
        if name == "g":
            return self.random.uniform(-1, 1) * 10.0 ** self.random.randrange(-9, 13)
        if name == "n":
            return self.random.randrange(-3 * 10**16, 3 * 10**16)
        if name == "k":
            return self.random.randrange(5)
        if name == "x":
            return number if self.random.random() < 0.5 else number / 4
        if name == "b":
            return number % 3 == 0
        if name == "s":
            return f"text {number % 7}" if self.random.random() < 0.7 else f"a, b = {number}"
        return number

    def reading(self, key, at, share=0.75):
        names = FIELDS[key.split(",")[0]]
        fields = {name: self.value(name) for name in names if self.random.random() < share}
        fields = fields or {"f": self.value("f")}
        return key, self.own_time(key, at), fields

    def own_time(self, key, at):
        """Moves a time by a few nanoseconds, so that it differs from those of other sensors of the measurement."""
        keys = ALPHA if key in ALPHA else DELTA if key in DELTA else GAMMA
        return at if key in BETA else at - at % 1000 + keys.index(key)

    def every(self, key, start, end, step, share=0.75):
        """Returns readings about every `step`, some at whole windows."""
        lines = []
        at = start
        while at < end:
            moved = at if key in BETA or self.random.random() < 0.2 else at + self.random.randrange(step // 2)
            lines.append(self.reading(key, moved, share))
            at += step
        return lines

    def load_history(self):
        world = self.world
        world.configure({"drift": "keep"})
        for entry in RENAMES:
            world.rename(entry)
        # Two whole months, then sealed days around a change of clocks.
        for key in ALPHA[:2] + BETA[:1] + GAMMA:
            world.write(self.every(key, MONTHS, MONTHS + self.days * DAY, 4 * HOUR if key in GAMMA else 11 * HOUR))
        for key in ALPHA[:2] + ALPHA[3:4] + BETA + DELTA:
            step = 17 * MINUTE if key in ALPHA[3:] + DELTA else self.dense * MINUTE
            world.write(self.every(key, CLOCKS, CLOCKS + 2 * DAY + 5 * HOUR, max(step, self.dense * MINUTE)))
        world.write([(WIDE, MONTHS + number * HOUR, {f"c{field}": number + field / 2 for field in range(at, at + 200)})
                     for number, at in enumerate([0, 200, 400, 600, 800, 1000 - 176, 0])])
        # Values of another type are kept beside their field.
        world.write([(key, MONTHS + 20 * DAY + number * HOUR + 7, {"f": "broken", "i": number}) for key in ALPHA[:2]
                     for number in range(9)])

    def load_columns(self):
        world = self.world
        world.configure({"seal_form": "columns"})
        for key in ALPHA[:2] + BETA[:2]:
            world.write(self.every(key, COLUMNS, COLUMNS + DAY, self.dense * MINUTE))

    def load_rest(self):
        world = self.world
        world.configure({"seal_form": "packed"})
        # Backfill of some hours becomes chunks, single late readings become pages beside sealed days.
        for key in ALPHA + BETA[1:]:
            world.write(self.every(key, BACKFILL, BACKFILL + 2 * DAY, 23 * MINUTE))
        world.flush()
        self.backfill()
        self.late()
        # Days that are not over: pages with overflow, then readings in memory.
        for key in ALPHA + BETA + DELTA:
            world.write(self.every(key, FUTURE, FUTURE + 20 * HOUR, 6 * MINUTE if key in ALPHA[:2] else 40 * MINUTE))
        world.flush()
        for key in ALPHA[1:] + BETA[2:] + GAMMA:
            world.write(self.every(key, FUTURE + 18 * HOUR, FUTURE + 30 * HOUR, 31 * MINUTE))
        self.correct()
        self.delete_range()

    # Changes.

    def change(self):
        """Makes some random changes, and returns their names."""
        names = self.random.sample(["fresh", "correct", "backfill", "late", "delete_range", "delete_value", "drift",
                                    "drop", "toggle"], 4)
        for name in names:
            getattr(self, name)()
        ending = self.random.choice(SEALS)
        if ending != "nothing":
            getattr(self.world, ending)()
        # Some changes stay in memory.
        self.fresh()
        self.correct()
        return [*names, ending]

    def key(self):
        return self.random.choice(ALPHA * 2 + BETA + GAMMA + DELTA)

    def fresh(self):
        start = FUTURE + self.random.randrange(40) * HOUR
        self.world.write(self.every(self.key(), start, start + 3 * HOUR, 13 * MINUTE))

    def correct(self):
        """Writes single fields of existing readings again."""
        lines = []
        for _ in range(30):
            key = self.key()
            sensor = self.world.sensors.get(key)
            if sensor and sensor.data:
                lines.append((key, self.random.choice(sensor.times()), self.reading(key, 0, 0.3)[2]))
        self.world.write(lines)

    def backfill(self):
        day = BACKFILL + self.random.randrange(3) * DAY
        start = day + self.random.randrange(12) * HOUR
        self.world.flush()
        for key in self.random.sample(ALPHA + BETA, 3):
            self.world.write(self.every(key, start, start + 6 * HOUR, 7 * MINUTE))
        self.world.flush()

    def late(self):
        start = self.random.choice([MONTHS + 10 * DAY, CLOCKS, COLUMNS, BACKFILL]) + self.random.randrange(24) * HOUR
        self.world.flush()
        for key in self.random.sample(ALPHA + BETA, 3):
            self.world.write(self.every(key, start, start + HOUR, 3 * MINUTE))
        self.world.flush()

    def delete_range(self):
        start = self.random.choice([MONTHS, CLOCKS, COLUMNS, BACKFILL, FUTURE]) + self.random.randrange(36) * HOUR
        start += self.random.choice([0, 17 * MINUTE])
        end = start + self.random.choice([HOUR, 5 * HOUR, 26 * HOUR])
        measurement = self.random.choice(["alpha", "alpha", "beta", "delta"])
        host = self.random.choice(["a", "b", "d"])
        statement = f"DELETE FROM {measurement} WHERE host = '{host}' AND time >= {start} AND time < {end}"
        self.world.delete(statement, lambda tags, time, _: tags.get("host") == host and start <= time < end)

    def delete_value(self):
        least = self.random.randrange(1200, 1990)
        start = self.random.choice([MONTHS, CLOCKS, COLUMNS, BACKFILL, FUTURE])
        statement = f"DELETE FROM alpha WHERE f > {least} AND time >= {start} AND time < {start + 20 * DAY}"
        self.world.delete(statement, lambda _, time, fields: start <= time < start + 20 * DAY
                          and fields.get("f") is not None and fields["f"] > least)

    def drift(self):
        key = self.random.choice(ALPHA[:2])
        start = self.random.choice([COLUMNS, FUTURE]) + self.random.randrange(20) * HOUR
        self.world.write([(key, self.own_time(key, start + number * MINUTE), {"f": "wrong", "k": True, "i": number})
                          for number in range(8)])

    def drop(self):
        """Drops a sensor and writes one again."""
        host = self.random.choice(["a", "b"])
        self.world.delete(f"DROP SERIES FROM delta WHERE host = '{host}'", lambda tags, *_: tags.get("host") == host)
        start = CLOCKS + self.random.randrange(24) * HOUR
        self.world.write(self.every(self.random.choice(DELTA), start, start + 9 * HOUR, 9 * MINUTE))

    def toggle(self):
        if TOGGLED in self.world.renames:
            self.world.remove_rename(TOGGLED)
        else:
            self.world.rename(dict(TOGGLED))


    # Worlds whose readings expire.

    def load_recent(self):
        """Writes the days before today."""
        today = time.time_ns() // DAY * DAY
        for place, key in enumerate(EXPIRING):
            lines = [(key, at - at % 1000 + place, {name: value for name, value in fields.items() if name in "fgiks"})
                     for _, at, fields in self.every(ALPHA[0], today - 12 * DAY, today - DAY, 37 * MINUTE)]
            self.world.write([line for line in lines if line[2]])

    def expire(self, settings):
        """Writes some late readings, then lets the older days expire."""
        today = time.time_ns() // DAY * DAY
        start = today - 4 * DAY + 5
        self.world.write([(EXPIRING[0], start + number * HOUR, {"f": number / 3}) for number in range(40)])
        self.world.configure(settings)
        self.world.has_summaries = settings.get("summaries") == "inf"


def load_all(main, expiring):
    """Loads the world of all forms, and worlds whose older days expire by the given settings."""
    main.load_history()
    for loader, _ in expiring:
        loader.load_recent()
    main.world.seal()
    main.load_columns()
    for loader, settings in expiring:
        loader.expire(settings)
    main.world.seal()
    main.load_rest()
    for loader, _ in expiring:
        loader.world.await_expiry()
