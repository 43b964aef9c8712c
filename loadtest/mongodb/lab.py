"""Private servers on loopback, with data in a temporary folder, and the CPU time that they take."""
import argparse, contextlib, http.client, json, pathlib, random, signal, socket, subprocess, sys, tempfile, time

import pymongo

# Maximum time for a start, a request or a stop.
WAIT_S = 60
TIME_MAX_S = 3600


def cpu(pids):
    """Returns the CPU seconds of processes so far, by the clock ids of clock_getcpuclockid(3)."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


def free_port():
    while True:
        port = random.randrange(41_000, 60_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def shown(cell):
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:.3g}"


def show(title, columns, rows):
    """Prints a Markdown table."""
    print(f"\n**{title}**\n\n| | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for cells in rows:
        print(f"| {' | '.join(map(shown, cells))} |")
    sys.stdout.flush()


class Lab(contextlib.ExitStack):
    """Owns the processes and the folder, and removes them however the script ends."""

    def __init__(self, options):
        super().__init__()
        self.options = options
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
            signal.signal(each, lambda number, _: sys.exit(f"ended by {signal.Signals(number).name}"))
        signal.alarm(TIME_MAX_S)
        folder = tempfile.TemporaryDirectory(prefix="hourglass-mongodb-", dir=options.folder)
        self.folder = pathlib.Path(self.enter_context(folder))

    def spawn(self, name, arguments):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.callback(stop, process)
        return process

    def mongod(self, name):
        """Starts a replica set of one mongod with default settings, a fixed cache and quick TTL deletions."""
        data = self.folder / name
        data.mkdir()
        port = free_port()
        parameters = ["diagnosticDataCollectionEnabled=false", "shutdownTimeoutMillisForSignaledShutdown=100",
                      "ttlMonitorSleepSecs=1", "minSnapshotHistoryWindowInSeconds=0"]
        set_parameters = [word for parameter in parameters for word in ("--setParameter", parameter)]
        process = self.spawn(name, [
            self.options.mongod, "--replSet", "lab", "--bind_ip", "127.0.0.1", "--port", str(port), "--dbpath", data,
            "--nounixsocket", "--wiredTigerCacheSizeGB", "1", *set_parameters])
        connect = lambda: self.enter_context(pymongo.MongoClient(
            "127.0.0.1", port, directConnection=True, serverSelectionTimeoutMS=WAIT_S * 1000, socketTimeoutMS=TIME_MAX_S * 1000))
        admin = connect().admin
        admin.command("replSetInitiate", {"_id": "lab", "members": [{"_id": 0, "host": f"127.0.0.1:{port}"}]})
        await_true(lambda: admin.command("hello")["isWritablePrimary"])
        # Only a client that connects to a replica set has sessions.
        return connect(), process.pid

    def hourglass(self, mongo, configuration):
        """Starts hourglass on a mongod."""
        file = self.folder / "hourglass.toml"
        file.write_text(configuration)
        address = f"127.0.0.1:{free_port()}"
        store = "mongodb://{}:{}/hourglass?directConnection=true".format(*mongo.address)
        process = self.spawn("hourglass", [self.options.hourglass, "serve", "--config", file, "--data-dir", self.folder / "data",
                                           "--listen", address, "--store", store])
        server = Hourglass(address, process)
        self.callback(server.connection.close)
        await_true(lambda: server.is_ready() or process.poll() is not None)
        if process.poll() is not None:
            sys.exit((self.folder / "hourglass.log").read_text())
        return server


def stop(process):
    process.terminate()
    try:
        process.wait(WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def await_true(check):
    deadline = time.monotonic() + WAIT_S
    while not check():
        if time.monotonic() > deadline:
            sys.exit(f"a server or job took more than {WAIT_S} s")
        time.sleep(0.05)


class Hourglass:
    def __init__(self, address, process):
        self.connection = http.client.HTTPConnection(address, timeout=TIME_MAX_S)
        self.process = process

    def end(self):
        stop(self.process)

    def is_ready(self):
        try:
            return self.send("GET", "/ready")[0] == 200
        except OSError:
            self.connection.close()
            return False

    def send(self, method, path, body=None, headers={}):
        self.connection.request(method, path, body, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def ask(self, method, path, body=None, headers={}):
        """Sends a request until it is accepted, and returns the answer."""
        while True:
            status, text = self.send(method, path, body, headers)
            if status < 300:
                return json.loads(text or "null")
            if status != 503:
                sys.exit(f"{method} {path}: {status} {text[:500]}")
            time.sleep(0.05)

    def run_job(self, name):
        """Runs a job until nothing is left to do."""
        path = f"/api/v1/jobs/{name}/run"
        deadline = time.monotonic() + TIME_MAX_S
        run = ""
        while time.monotonic() < deadline:
            status, text = self.send("POST", path + run)
            answer = json.loads(text)
            if status == 200 and not answer["left"]:
                return answer["progress"]
            # 202: it still runs. Work that must wait for the WAL is left to later runs.
            time.sleep(0 if status == 202 else 1)
            run = f"?run={answer['run']}" if status == 202 else ""
        sys.exit(f"the job {name} does not end")


def sizes(database, names):
    """Returns the bytes of the files of some collections, of the data and indexes in them, and of the indexes alone."""
    database.client.admin.command("fsync")
    stats = [database.command("collStats", name) for name in names]
    files, data = sum(each["totalSize"] for each in stats), sum(each["storageSize"] - each["freeStorageSize"] for each in stats)
    details = [detail["block-manager"] for each in stats for detail in each.get("indexDetails", {}).values()]
    indexes = sum(each["file size in bytes"] - each["file bytes available for reuse"] for each in details)
    return files, data + indexes, indexes


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--hourglass", default="target/dist/hourglass", help="the hourglass to run")
    parser.add_argument("--mongod", default="target/mongod/fiftyone/db/bin/mongod", help="the mongod to run, 6.0 or newer")
    parser.add_argument("--folder", default="target", help="parent folder of the temporary data")
    parser.add_argument("--sensors", type=int, default=200)
    return parser
