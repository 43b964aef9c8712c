"""Folds over the points of one field, written from the documentation. A point is a pair of a time in ns and a value."""

import math
from fractions import Fraction

SECOND = 10**9
MILLISECOND = 10**6
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
UNITS = {"1s": SECOND, "10s": 10 * SECOND, "1m": MINUTE, "1h": HOUR}


class Near:
    """A number that is not promised to the last bit; `scale` is the size of the numbers that it was computed from."""

    def __init__(self, value, scale=0.0):
        self.value = float(value)
        self.bound = 1e-12 * max(abs(self.value), abs(float(scale)))

    def __eq__(self, other):
        return is_number(other) and abs(float(other) - self.value) <= self.bound

    def __repr__(self):
        return f"~{self.value!r}"


class OneOf:
    """One of several values, where the documentation leaves open which."""

    def __init__(self, values):
        self.values = list(values)

    def __eq__(self, other):
        return any(same(value, other) for value in self.values)

    def __repr__(self):
        return f"one of {self.values!r}"


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(expected, actual):
    """Returns true if both are equal and of one type; `1` and `1.0` are one number."""
    if isinstance(expected, (Near, OneOf)):
        return expected == actual
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(same(expected[key], actual[key]) for key in expected)
    if isinstance(expected, (list, tuple)) and isinstance(actual, list):
        return len(expected) == len(actual) and all(same(*pair) for pair in zip(expected, actual))
    if is_number(expected) and is_number(actual):
        # Whole floats are written without an exponent, so JSON's number may be between two floats.
        return expected == (float(actual) if isinstance(expected, float) else actual)
    return type(expected) is type(actual) and expected == actual


def exact_sum(values):
    """Returns the sum of integers, or the exact sum of numbers rounded once."""
    if all(isinstance(value, int) for value in values):
        return sum(values)
    return float(sum(map(Fraction, values)))


def scale_of(values):
    return max((abs(float(value)) for value in values), default=0.0)


def mean(points):
    values = [value for _, value in points]
    return float(sum(map(Fraction, values))) / len(values)


def stddev(points):
    values = [Fraction(value) for _, value in points]
    if len(values) < 2:
        return None
    middle = sum(values) / len(values)
    variance = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    # The root of a fraction to full precision.
    scaled = math.isqrt(variance.numerator * 2**240 // variance.denominator)
    return Near(Fraction(scaled, 2**120), scale_of(values) * 1e-3)


def median(points):
    """Returns the middle value as a float, or the mean of the two middle ones."""
    values = sorted(value for _, value in points)
    half = len(values) // 2
    if len(values) % 2 == 1:
        return float(values[half])
    return Near((Fraction(values[half - 1]) + Fraction(values[half])) / 2, scale_of(values) * 1e-3)


def mode(points):
    """Returns the most frequent value. Of equally frequent ones, by value, a greater one wins as in InfluxDB: if it
    occurs more than once, and first before the last occurrence of the other."""
    found = {}
    for time, value in sorted(points):
        times = found.setdefault(value, [])
        times.append(time)
    best = None
    for value in sorted(found):
        times = found[value]
        if best is None or len(times) > len(found[best]) or (
                len(times) == len(found[best]) > 1 and times[0] <= found[best][-1]):
            best = value
    return best


def percentile_place(count, percent):
    return math.floor(Fraction(count) * Fraction(str(percent)) / 100 + Fraction(1, 2)) - 1


def percentile(points, percent):
    """Returns the time and value by the nearest rank, or `None`. Equal values leave the time open."""
    values = sorted(value for _, value in points)
    place = percentile_place(len(values), percent)
    if not 0 <= place < len(values):
        return None
    times = [time for time, value in points if value == values[place]]
    return (times[0] if len(times) == 1 else OneOf(times), values[place])


def first(points):
    """Returns the first point; of those at one time the greatest number or text, or `False`."""
    time = min(time for time, _ in points)
    values = [value for other, value in points if other == time]
    return (time, min(values) if isinstance(values[0], bool) else max(values))


def last(points):
    time = max(time for time, _ in points)
    return (time, max(value for other, value in points if other == time))


def extreme(points, pick):
    value = pick(value for _, value in points)
    return min((time, other) for time, other in points if other == value)


def spread(points):
    values = [value for _, value in points]
    if all(isinstance(value, int) for value in values):
        return max(values) - min(values)
    return float(max(values)) - float(min(values))


def distinct(points):
    """Returns the different values by their first times."""
    seen = []
    for _, value in points:
        if not any(same(known, value) for known in seen):
            seen.append(value)
    return seen


def ranking(points, count, highest):
    """Returns the `count` highest or lowest points in order of time; of equal values the earliest."""
    chosen = sorted(points, key=lambda point: (-point[1] if highest else point[1], point[0]))[:count]
    return sorted(chosen, key=lambda point: point[0])


def integral(points, unit):
    """Returns the area under a line through the points."""
    total = Fraction(0)
    scale = 0.0
    for (start, low), (end, high) in zip(points, points[1:]):
        area = (Fraction(low) + Fraction(high)) / 2 * Fraction(end - start, unit)
        total += area
        scale = max(scale, abs(float(area)))
    return Near(total, scale)


SELECTORS = {
    "first": first,
    "last": last,
    "min": lambda points: extreme(points, min),
    "max": lambda points: extreme(points, max),
}
AGGREGATES = {
    "count": len,
    "sum": lambda points: exact_sum([value for _, value in points]),
    "mean": mean,
    "spread": spread,
    "stddev": stddev,
    "median": median,
    "mode": mode,
    "count_distinct": lambda points: len(distinct(points)),
}


def fold(name, points, argument=None):
    """Returns the time (`None` for an aggregate) and value of a function over points, `None` without a value."""
    if name == "percentile":
        return percentile(points, argument) or (None, None)
    if name == "integral":
        return (None, integral(points, UNITS[argument or "1s"]))
    if name in SELECTORS:
        return SELECTORS[name](points)
    return (None, AGGREGATES[name](points))


def transform(name, points, argument=None, unit=SECOND):
    """Returns the points of a transformation of points in order of time."""
    made = []
    if name == "cumulative_sum":
        total = 0
        scale = 0.0
        for time, value in points:
            is_whole = isinstance(value, int) and isinstance(total, int)
            total = total + value if is_whole else Fraction(total) + Fraction(value)
            scale = max(scale, abs(float(total)))
            made.append((time, total if isinstance(total, int) else Near(total, scale * 1e-1)))
        return made
    if name == "moving_average":
        for end in range(argument, len(points) + 1):
            values = [value for _, value in points[end - argument:end]]
            made.append((points[end - 1][0], Near(sum(map(Fraction, values)) / argument, scale_of(values))))
        return made
    for (before, low), (time, high) in zip(points, points[1:]):
        if name == "elapsed":
            made.append((time, int((time - before) // unit)))
            continue
        difference = high - low if isinstance(high, int) and isinstance(low, int) else float(high) - float(low)
        if name.startswith("non_negative") and difference < 0:
            continue
        if name.endswith("derivative"):
            if time == before:
                continue
            difference = Near(Fraction(difference) * unit / (time - before))
        made.append((time, difference))
    return made
