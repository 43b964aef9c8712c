"""Runs ClickHouse in this process, by PyPI's chdb: a statement per line, as a JSON string, and an answer per line."""
import json
import sys
import time

import chdb
from chdb import session

opened = session.Session(sys.argv[1])
opened.query("CREATE DATABASE IF NOT EXISTS history ENGINE = Atomic")
opened.query("USE history")
engine = str(opened.query("SELECT version()", "TSV")).strip()
print(json.dumps({"text": f"{engine}, chdb {chdb.__version__}"}), flush=True)
for line in sys.stdin:
    started = time.perf_counter()
    try:
        answer = {"text": str(opened.query(json.loads(line), "TSV"))}
    except Exception as error:
        answer = {"error": str(error)}
    answer["seconds"] = time.perf_counter() - started
    print(json.dumps(answer), flush=True)
