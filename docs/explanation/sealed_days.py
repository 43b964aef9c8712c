"""Decodes the readings of sealed days, which stored-forms.md describes: plain ones, packed ones byte by byte, and columns.
usage: python3 sealed_days.py [--json] [FILE]
FILE, or standard input, holds the bytes of `sealed` alone, or documents of `<db>.days` as Extended JSON, one per line,
as mongoexport writes them. Prints line protocol, or with --json an object per reading; times are nanoseconds."""
import base64, calendar, io, itertools, json, struct, sys, time
from urllib.parse import unquote
try: from compression.zstd import decompress  # Python 3.14
except ImportError:
    from zstandard import ZstdDecompressor  # from PyPI
    decompress = lambda frame: ZstdDecompressor().decompressobj().decompress(frame)
class Unsigned(int): pass  # which line protocol writes differently from a signed one
class Bytes(io.BytesIO):
    def take(self, count):
        if len(taken := self.read(count)) < count: raise ValueError("the bytes end too early")
        return taken
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
    if kind == 0: return [None] * count
    if kind == 1: return [n / power for power in [10 ** data.take(1)[0]] for n in data.sums(count)]  # the nearest doubles
    if kind == 2: return [struct.unpack(">d", data.counted().ljust(8, b"\0"))[0] for _ in range(count)]
    if kind == 3: return list(data.sums(count))
    if kind == 4: return [Unsigned(data.varint()) for _ in range(count)]
    if kind == 5: return [data.take(1) == b"\1" for _ in range(count)]
    return [data.counted().decode() for _ in range(count)]
def cells(data):
    while True: yield from run(data)
def rows_of(times, columns):  # [(time, {field: value}), …]
    rows = [(at, {}) for at in times]
    for name, column in columns:
        for (_, fields), value in zip(rows, column):
            if value is not None: fields[name] = value
    return rows
def unpacked(packed):  # the bytes of `sealed`
    sealed = Bytes(packed)
    if (form := sealed.take(1)) not in (b"\1", b"\2"): raise ValueError("these are not readings of a sealed day")
    sealed.varint()  # how many bytes the frame has once it is decompressed
    data = Bytes(decompress(sealed.read()))
    bounded = [data.counted() for _ in range(data.varint())] if form == b"\2" else []  # fields with distributions
    for _ in bounded: data.take(8 * data.varint())  # the bounds
    names = [data.counted().decode() for _ in range(data.varint())]
    if (count := data.varint()) == 0: return []
    unit = 10 ** (9 - 3 * data.take(1)[0])  # nanoseconds in a s, ms, µs or ns
    times = [at * unit for at in itertools.accumulate(data.sums(count))]
    return rows_of(times, [(name, list(itertools.islice(cells(data), count))) for name in names])
def plain(value):  # a value of Extended JSON, relaxed or canonical; of a date its milliseconds
    if not isinstance(value, dict): return value
    (kind, value), = value.items()
    if kind != "$date": return {"$numberDouble": float, "$numberDecimal": Unsigned}.get(kind, int)(value)
    if isinstance(value, dict): return plain(value)
    seconds, _, rest = value.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")) * 1000 + int(rest.ljust(3, "0"))
def decoded(day):
    form = day.get("form", day.get("kind"))  # the name in version 1
    if form == "expired": return []
    if form == "plain": return rows_of_plain(day["readings"])
    held = next(day[name] for name in ("sealed", "packed", "columns", "readings") if name in day)
    if "$binary" in held: return unpacked(base64.b64decode(held["$binary"]["base64"]))
    times = zip(held["at"], held.get("ns", itertools.repeat(0)))
    cells = ((unquote(key), map(plain, column)) for key, column in held["fields"].items())
    return rows_of([plain(at) * 10**6 + plain(rest) for at, rest in times], cells)
def rows_of_plain(readings):
    time_of = lambda one: plain(one.pop("ts")) * 10**6 + plain(one.pop("ns", 0))
    return [(time_of(one), {unquote(key): plain(value) for key, value in one.items()}) for one in readings]
def line(sensor, time, fields):
    def text(value):
        if isinstance(value, str): return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(value, (bool, float)): return repr(value).lower()
        return f"{value}{'u' if isinstance(value, Unsigned) else 'i'}"
    name = lambda field: "".join("\\" + c if c in ",= " else c for c in field)
    return f"{sensor} {','.join(f'{name(field)}={text(value)}' for field, value in fields.items())} {time}"
if __name__ == "__main__":
    is_json, files = "--json" in sys.argv, [each for each in sys.argv[1:] if each != "--json"]
    data = open(files[0], "rb").read() if files else sys.stdin.buffer.read()
    days = ((day["sensor"], decoded(day)) for day in map(json.loads, data.splitlines()))
    for sensor, rows in [("readings", unpacked(data))] if data.startswith(b"\1") else days:
        for at, fields in rows:
            print(json.dumps({"sensor": sensor, "time": at, "fields": fields}) if is_json else line(sensor, at, fields))
