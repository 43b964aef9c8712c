"""Decodes the readings of sealed days, which sealed-days.md describes: packed ones byte by byte, and columns.
usage: python3 sealed_days.py [--json] [FILE]

FILE, or standard input, holds the bytes of `readings` alone, or documents of `<db>.days` as Extended JSON, one per line,
as mongoexport writes them. Prints line protocol, or with --json an object per reading; times are nanoseconds.
"""
import base64, calendar, itertools, json, struct, sys, time
from urllib.parse import unquote

def decompressed(frame, length):
    try:
        from compression import zstd  # Python 3.14
        return zstd.decompress(frame)
    except ImportError:
        import zstandard  # from PyPI
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=length)

class Unsigned(int): pass  # which line protocol writes differently from a signed one

class Bytes:
    def __init__(self, data): self.data, self.at = data, 0
    def take(self, count):
        self.at += count
        if self.at > len(self.data): raise ValueError("the bytes end too early")
        return self.data[self.at - count:self.at]
    def varint(self):
        byte = self.take(1)[0]
        return byte if byte < 128 else byte - 128 | self.varint() << 7
    def counted(self): return self.take(self.varint())
    def sums(self, count, total=0):  # of zigzag differences, modulo 2^64
        for _ in range(count):
            difference = self.varint()
            total = (total + (difference >> 1 ^ -(difference & 1)) + 2**63) % 2**64 - 2**63
            yield total

def run(data):
    head = data.varint()
    kind, count = head & 7, (head >> 3) + 1
    power = 10 ** data.take(1)[0] if kind == 1 else 1
    if kind == 0: return [None] * count
    if kind == 1: return [number / power for number in data.sums(count)]  # the double nearest to the decimal
    if kind == 2: return [struct.unpack(">d", data.counted().ljust(8, b"\0"))[0] for _ in range(count)]
    if kind == 3: return list(data.sums(count))
    if kind == 4: return [Unsigned(data.varint()) for _ in range(count)]
    if kind == 5: return [data.take(1) == b"\1" for _ in range(count)]
    return [data.counted().decode() for _ in range(count)]

def decode(packed):  # the bytes of `readings`, to [(time, {field: value}), …]
    sealed = Bytes(packed)
    if sealed.take(1) != b"\1": raise ValueError("these are not readings of a sealed day of form 1")
    length = sealed.varint()
    data = Bytes(decompressed(packed[sealed.at:], length))
    names = [data.counted().decode() for _ in range(data.varint())]
    if (count := data.varint()) == 0: return []
    unit = 10 ** (9 - 3 * data.take(1)[0])  # nanoseconds in a s, ms, µs or ns
    rows = [(time * unit, {}) for time in itertools.accumulate(data.sums(count))]
    for name in names:
        column = []
        while len(column) < count: column += run(data)
        for (_, fields), value in zip(rows, column):
            if value is not None: fields[name] = value
    return rows

def plain(value):  # a value of Extended JSON, relaxed or canonical; of a date its milliseconds
    if not isinstance(value, dict): return value
    (kind, value), = value.items()
    if kind != "$date": return {"$numberDouble": float, "$numberDecimal": Unsigned}.get(kind, int)(value)
    if isinstance(value, dict): return plain(value)
    seconds, _, rest = value.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) * 1000 + int(rest.ljust(3, "0"))

def columns(readings):  # `readings` that are columns, as `decode` does
    rests = readings.get("ns", itertools.repeat(0))
    rows = [(plain(at) * 10**6 + plain(rest), {}) for at, rest in zip(readings["at"], rests)]
    for key, column in readings["fields"].items():
        for (_, fields), value in zip(rows, column):
            if value is not None: fields[unquote(key)] = plain(value)
    return rows

def rows_of(day):
    readings = day.get("packed", day["readings"])
    return columns(readings) if "at" in readings else decode(base64.b64decode(readings["$binary"]["base64"]))

def line(sensor, time, fields):
    def text(value):
        if isinstance(value, str): return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(value, (bool, float)): return repr(value).lower()
        return f"{value}{'u' if isinstance(value, Unsigned) else 'i'}"
    name = lambda field: "".join("\\" + c if c in ",= " else c for c in field)
    return f"{sensor} {','.join(f'{name(field)}={text(value)}' for field, value in fields.items())} {time}"

if __name__ == "__main__":
    files = [each for each in sys.argv[1:] if each != "--json"]
    data = open(files[0], "rb").read() if files else sys.stdin.buffer.read()
    documents = [] if data.startswith(b"\1") else map(json.loads, data.splitlines())
    days = [(day["sensor"], rows_of(day)) for day in documents]
    for sensor, rows in days or [("readings", decode(data))]:
        for at, fields in rows:
            as_json = json.dumps({"sensor": sensor, "time": at, "fields": fields})
            print(as_json if "--json" in sys.argv else line(sensor, at, fields))
