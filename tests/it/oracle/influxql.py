"""The rules of InfluxQL over plain rows: a statement, its text, and its answer."""

import dataclasses
import datetime
import re
import zoneinfo
from fractions import Fraction

import folds
from folds import DAY, SECOND, Near, fold, is_number, transform

TRANSFORMS = ["derivative", "non_negative_derivative", "difference", "non_negative_difference", "moving_average",
              "cumulative_sum", "elapsed"]


@dataclasses.dataclass
class Select:
    """A SELECT statement. `columns` has pairs of an expression and an alias or `None`.

    An expression is `("field", name)`, `("tag", name)`, `("call", name, inner, argument)`, `("number", value)` or
    `("math", operator, left, right)`. A condition is `("and", left, right)`, `("or", left, right)`,
    `("compare", is_tag, name, operator, value)` or `("match", is_tag, name, operator, pattern)`.
    """

    columns: list
    source: object
    where: object = None
    start: int = None
    end: int = None
    width: int = None
    shift: int = 0
    zone: str = None
    tags: list = dataclasses.field(default_factory=list)
    fill: object = None
    descending: bool = False
    limit: int = None
    offset: int = 0
    slimit: int = None
    soffset: int = 0


@dataclasses.dataclass
class Row:
    time: int
    # The place of the series among those with the same time.
    place: int
    tags: dict
    fields: dict


# Text.


def quote(name):
    return name if re.fullmatch(r"[a-z]\w*", name) and name not in ("time", "n") else f'"{name}"'


def expression_text(expression):
    kind = expression[0]
    if kind in ("field", "tag"):
        return quote(expression[1])
    if kind == "number":
        return str(expression[1])
    if kind == "math":
        return f"{expression_text(expression[2])} {expression[1]} {expression_text(expression[3])}"
    _, name, inner, argument = expression
    if name == "count_distinct":
        return f"count(distinct({expression_text(inner)}))"
    arguments = argument if isinstance(argument, tuple) else () if argument is None else (argument,)
    is_tag = name in ("top", "bottom")
    more = "".join(f", {quote(one) if is_tag and isinstance(one, str) else one}" for one in arguments)
    return f"{name}({expression_text(inner)}{more})"


def constant_text(value):
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else repr(value)


def condition_text(condition):
    if condition[0] in ("and", "or"):
        return f"({condition_text(condition[1])} {condition[0].upper()} {condition_text(condition[2])})"
    _, _, name, operator, value = condition
    return f"{quote(name)} {operator} " + (f"/{value}/" if condition[0] == "match" else constant_text(value))


def statement_text(select):
    columns = ", ".join(expression_text(one) + (f" AS {alias}" if alias else "") for one, alias in select.columns)
    source = f"({statement_text(select.source)})" if isinstance(select.source, Select) else ", ".join(select.source)
    where = [] if select.where is None else [condition_text(select.where)]
    if select.start is not None:
        where.append(f"time >= {select.start}")
    if select.end is not None:
        where.append(f"time < {select.end}")
    text = f"SELECT {columns} FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")
    groups = [quote(tag) if tag != "*" else tag for tag in select.tags]
    if select.width:
        shift = f", {select.shift // SECOND}s" if select.shift else ""
        groups.insert(0, f"time({select.width // SECOND}s{shift})")
    text += f" GROUP BY {', '.join(groups)}" if groups else ""
    text += f" fill({select.fill})" if select.fill is not None else ""
    text += " ORDER BY time DESC" if select.descending else ""
    for word, number in [("LIMIT", select.limit), ("OFFSET", select.offset), ("SLIMIT", select.slimit),
                         ("SOFFSET", select.soffset)]:
        text += f" {word} {number}" if number else ""
    return text + (f" tz('{select.zone}')" if select.zone else "")


# Conditions and windows.


def is_met(condition, row):
    kind = condition[0]
    if kind == "and":
        return is_met(condition[1], row) and is_met(condition[2], row)
    if kind == "or":
        return is_met(condition[1], row) or is_met(condition[2], row)
    _, is_tag, name, operator, value = condition
    # A missing tag is an empty text, and nothing compares with a missing field.
    found = row.tags.get(name, "") if is_tag else row.fields.get(name)
    if kind == "match":
        return isinstance(found, str) and (re.search(value, found) is not None) == (operator == "=~")
    kinds = [(is_number(one), isinstance(one, str)) for one in (found, value)]
    if found is None or kinds[0] != kinds[1]:
        return False
    return {"=": found == value, "!=": found != value, "<": found < value, "<=": found <= value, ">": found > value,
            ">=": found >= value}[operator]


def window_start(select, time):
    if select.zone is None:
        return (time - select.shift) // select.width * select.width + select.shift
    # Only whole days have a zone here.
    zone = zoneinfo.ZoneInfo(select.zone)
    local = datetime.datetime.fromtimestamp(time // SECOND, zone)
    days = select.width // DAY
    ordinal = (local.toordinal() - datetime.date(1970, 1, 1).toordinal()) // days * days
    return midnight(ordinal, zone)


def midnight(day, zone):
    date = datetime.date(1970, 1, 1) + datetime.timedelta(days=day)
    return int(datetime.datetime(date.year, date.month, date.day, tzinfo=zone).timestamp()) * SECOND


def window_starts(select, start, end):
    """Returns the starts of all windows of a range."""
    starts = []
    at = window_start(select, start)
    while at < end:
        starts.append(at)
        at = next_window(select, at)
    return starts


def next_window(select, at):
    if select.zone is None:
        return at + select.width
    return window_start(select, at + select.width + select.width // 4)


# Answers.


def answer(select, reader):
    """Returns the series of a statement: name, tags or `None`, columns, and rows."""
    if isinstance(select.source, Select):
        sources = inner_rows(select.source, reader, select)
    else:
        sources = [(name, reader.rows(name, select), reader.tag_keys(name)) for name in sorted(set(select.source))]
    columns = ["time", *column_names(select.columns)]
    series = []
    for name, rows, tag_keys in sources:
        keys = tag_keys if select.tags == ["*"] else sorted(select.tags)
        # SLIMIT counts every series of the chosen sensors, also without readings in the range.
        groups = {values: [] for values in reader.groups(name, keys, select.where)} if select.slimit else {}
        for row in rows:
            if select.where is None or is_met(select.where, row):
                groups.setdefault(tuple(row.tags.get(key, "") for key in keys), []).append(row)
        for values in sorted(groups):
            shown = group_rows(select, groups[values], reader) if groups[values] else []
            tags = dict(zip(keys, values)) if keys else None
            series.append({"name": name, "tags": tags, "columns": columns, "values": shown})
    series = series[select.soffset:][:select.slimit]
    if select.descending:
        series.reverse()
    for one in series:
        one["values"] = one["values"][select.offset:][:select.limit]
    return [one for one in series if one["values"]]


def column_names(columns):
    names = []
    for expression, alias in columns:
        name = alias or expression[1].removesuffix("_distinct")
        names.append(name)
        if expression[0] == "call" and name in ("top", "bottom") and isinstance(expression[3], tuple):
            names.extend(expression[3][:-1])
    return names


def inner_rows(inner, reader, outer):
    """Returns the rows of a subquery, whose range is also bounded by the outer one."""
    bounded = dataclasses.replace(inner)
    if outer.start is not None and inner.start is None:
        bounded.start = outer.start
    if outer.end is not None and inner.end is None:
        bounded.end = outer.end
    found = {}
    for place, series in enumerate(answer(bounded, reader)):
        rows = found.setdefault(series["name"], [])
        for time, *values in series["values"]:
            if (outer.start is not None and time < outer.start) or (outer.end is not None and time >= outer.end):
                continue
            tags = dict(series["tags"] or {})
            fields = {}
            for (expression, _), name, value in zip(inner.columns, series["columns"][1:], values):
                if expression[0] == "tag":
                    tags[name] = value or ""
                elif value is not None:
                    fields[name] = value
            rows.append(Row(time, place, tags, fields))
    for rows in found.values():
        rows.sort(key=lambda row: (row.time, row.place))
    keys = sorted(set(inner.tags)) if inner.tags != ["*"] else None
    return [(name, rows, keys if keys is not None else sorted({key for row in rows for key in row.tags}))
            for name, rows in sorted(found.items())]


def calls_of(expression):
    if expression[0] == "call":
        return [expression]
    return calls_of(expression[2]) + calls_of(expression[3]) if expression[0] == "math" else []


def group_rows(select, rows, reader):
    """Returns the rows of one series in the asked order."""
    calls = [call for expression, _ in select.columns for call in calls_of(expression)]
    if not calls:
        shown = raw_rows(select, rows)
    elif calls[0][1] in ("distinct", "top", "bottom") or (calls[0][1] in TRANSFORMS and not select.width):
        shown = many_rows(select, calls[0], rows)
    else:
        shown = folded_rows(select, calls, rows, reader)
    return shown[::-1] if select.descending else shown


def raw_rows(select, rows):
    shown = []
    for row in rows:
        values = [value_of(expression, row, {}) for expression, _ in select.columns]
        names = [name for expression, _ in select.columns for name in fields_of(expression)]
        if any(row.fields.get(name) is not None for name in names):
            shown.append([row.time, *values])
    return shown


def fields_of(expression):
    if expression[0] == "field":
        return [expression[1]]
    return fields_of(expression[2]) + fields_of(expression[3]) if expression[0] == "math" else []


def value_of(expression, row, results):
    kind = expression[0]
    if kind == "field":
        return row.fields.get(expression[1])
    if kind == "tag":
        return row.tags.get(expression[1], "") or None
    if kind == "number":
        return expression[1]
    if kind == "call":
        return results.get(repr(expression))
    left = value_of(expression[2], row, results)
    right = value_of(expression[3], row, results)
    if left is None or right is None:
        return None
    return calculate(expression[1], left, right)


def calculate(operator, left, right):
    scale = max(abs(float(one.value if isinstance(one, Near) else one)) for one in (left, right))
    is_near = isinstance(left, Near) or isinstance(right, Near)
    left, right = (one.value if isinstance(one, Near) else one for one in (left, right))
    if operator == "/":
        result = 0.0 if right == 0 else float(left) / float(right)
    elif operator == "*":
        result = left * right
        scale = abs(result)
    else:
        result = left + right if operator == "+" else left - right
    return Near(result, scale) if is_near else result


def points_of(rows, name):
    return [(row.time, row.fields[name]) for row in rows if row.fields.get(name) is not None]


def many_rows(select, call, rows):
    """Returns the rows of functions with several rows for each window."""
    _, name, inner, argument = call
    if name in TRANSFORMS:
        unit = folds.UNITS[argument] if isinstance(argument, str) else SECOND if name != "elapsed" else 1
        return [list(point) for point in transform(name, points_of(rows, inner[1]), argument, unit)]
    windows = {}
    for row in rows:
        windows.setdefault(window_start(select, row.time) if select.width else select.start or 0, []).append(row)
    shown = []
    for start in sorted(windows):
        points = points_of(windows[start], inner[1])
        if name == "distinct":
            shown.extend([start, value] for value in folds.distinct(points))
            continue
        *tags, count = argument if isinstance(argument, tuple) else (argument,)
        if tags:
            # The best point of each value of the tag, then the best of these.
            best = {}
            for row in windows[start]:
                if row.fields.get(inner[1]) is not None:
                    best.setdefault(row.tags.get(tags[0], ""), []).append((row.time, row.fields[inner[1]]))
            best = [(*folds.ranking(points, 1, name == "top")[0], tag) for tag, points in best.items()]
            chosen = folds.ranking([(time, value) for time, value, _ in best], count, name == "top")
            shown.extend([time, value, next(tag for other, _, tag in best if other == time) or None]
                         for time, value in chosen)
            continue
        chosen = folds.ranking(points, count, name == "top")
        for time, value in chosen:
            row = next(row for row in windows[start] if row.time == time and row.fields.get(inner[1]) is not None)
            others = [value_of(expression, row, {}) for expression, _ in select.columns[1:]]
            shown.append([time, value, *others])
    return shown


def folded_rows(select, calls, rows, reader):
    """Returns one row for each window, or one for the range."""
    if not select.width:
        return total_row(select, calls, rows, reader)
    emitted = {repr(call): windowed(select, call, rows, reader) for call in calls}
    times = sorted({time for points in emitted.values() for time in points})
    shown = []
    for time in times:
        # A number also fills columns that have no value in this series.
        missing = (None, select.fill if is_number(select.fill) else None)
        results = {call: points.get(time, missing)[1] for call, points in emitted.items()}
        row = reader_row(select, calls, emitted, rows, time)
        shown.append([time, *(value_of(expression, row, results) for expression, _ in select.columns)])
    return shown


def reader_row(select, calls, emitted, rows, time):
    """Returns the selected reading, whose fields and tags stand beside a selector."""
    empty = Row(time, 0, {}, {})
    if all(expression[0] not in ("field", "tag") for expression, _ in select.columns):
        return empty
    chosen, value = emitted[repr(calls[0])].get(time, (None, None))
    name = calls[0][2][1]
    return next((row for row in rows if row.time == chosen and row.fields.get(name) == value), empty)


def total_row(select, calls, rows, reader):
    results = {}
    times = {}
    for call in calls:
        _, name, inner, argument = call
        points = reader.points(select, rows, inner[1], None)
        if points:
            times[repr(call)], results[repr(call)] = fold(name, points, argument)
            if times[repr(call)] is None and results[repr(call)] is None and name == "percentile":
                del results[repr(call)]
    if not results:
        return []
    is_selector = len(calls) == 1 and calls[0][1] in [*folds.SELECTORS, "percentile"]
    chosen = times[repr(calls[0])] if is_selector else None
    shown_time = chosen if is_selector else select.start or 0
    name = calls[0][2][1]
    row = next((row for row in rows if is_selector and row.time == chosen and row.fields.get(name) is not None),
               Row(0, 0, {}, {}))
    return [[shown_time, *(value_of(expression, row, results) for expression, _ in select.columns)]]


def windowed(select, call, rows, reader):
    """Returns the time of the selected reading and the value of each window, after fill and transformation."""
    _, name, inner, argument = call
    if name not in TRANSFORMS:
        return filled(select, call, rows, reader, select.start)
    reach = select.start - extra_windows(call) * select.width
    found = [(time, value) for time, (_, value) in sorted(filled(select, inner, rows, reader, reach).items())
             if value is not None]
    points = [(time, value.value if isinstance(value, Near) else value) for time, value in found]
    unit = folds.UNITS[argument] if isinstance(argument, str) else select.width if "derivative" in name else 1
    shown = transform(name, points, argument, unit)
    if any(isinstance(value, Near) for _, value in found):
        scale = folds.scale_of([value for _, value in points])
        shown = [(time, value if isinstance(value, Near) else Near(value, scale)) for time, value in shown]
    return {time: (None, value) for time, value in shown}


def extra_windows(call):
    """Returns the number of windows before the range that a transformation of windows reads, as InfluxDB does."""
    return 1 if call[1] in TRANSFORMS and call[1] != "cumulative_sum" else 0


def filled(select, call, rows, reader, start):
    _, name, inner, argument = call
    windows = {}
    for row in rows:
        if row.time >= start:
            windows.setdefault(window_start(select, row.time), []).append(row)
    found = {}
    for at, inside in windows.items():
        points = reader.points(select, inside, inner[1], (at, next_window(select, at)))
        if points:
            result = fold(name, points, argument)
            if result != (None, None) or name != "percentile":
                found[at] = result
    if not found or select.fill == "none":
        return found
    starts = window_starts(select, start, select.end)
    order = starts[::-1] if select.descending else starts
    shown = {}
    previous = None
    for at in order:
        if at in found:
            shown[at] = found[at]
            previous = found[at][1]
        elif select.fill == "previous":
            shown[at] = (None, previous)
        elif select.fill == "linear":
            shown[at] = (None, linear(select, found, at))
        elif is_number(select.fill):
            shown[at] = (None, select.fill)
        else:
            shown[at] = (None, 0 if name in ("count", "count_distinct") else None)
    return shown


def linear(select, found, at):
    """Returns the value on a line between the windows before and after, by local time; `None` without both values."""
    before = max((one for one in found if one < at), default=None)
    after = min((one for one in found if one > at), default=None)
    if before is None or after is None or found[before][1] is None or found[after][1] is None:
        return None
    low, high = found[before][1], found[after][1]
    plain = [one.value if isinstance(one, Near) else one for one in (low, high)]
    start, middle, end = (local_time(select, one) for one in (before, at, after))
    exact = Fraction(plain[0]) + (Fraction(plain[1]) - Fraction(plain[0])) * Fraction(middle - start, end - start)
    if isinstance(low, int) and isinstance(high, int) and abs(exact) < 2**53:
        return int(exact)
    return Near(exact, max(abs(float(one)) for one in plain))


def local_time(select, time):
    if select.zone is None:
        return time
    return time + int(datetime.datetime.fromtimestamp(time // SECOND, zoneinfo.ZoneInfo(select.zone))
                      .utcoffset().total_seconds()) * SECOND
