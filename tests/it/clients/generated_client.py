"""Generates a client from /openapi.json, writes and reads with it, and prints what it saw as JSON.

Usage: generated_client.py URL FOLDER
"""

import io
import json
import pathlib
import subprocess
import sys
import urllib.request

url, folder = sys.argv[1], pathlib.Path(sys.argv[2])
(folder / "openapi.json").write_bytes(urllib.request.urlopen(f"{url}/openapi.json").read())
# Bodies that are no JSON are sent as they are. As JSON, because YAML includes it.
types = ["text/plain", "text/csv", "application/x-ndjson", "application/x-protobuf"]
config = {"content_type_overrides": dict.fromkeys(types, "application/octet-stream"), "post_hooks": []}
(folder / "config.yml").write_text(json.dumps(config))
command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta=none", "--path=openapi.json"]
command += ["--output-path=hourglass_client", "--config=config.yml", "--fail-on-warning"]
made = subprocess.run(command, cwd=folder, capture_output=True, text=True)
if made.returncode != 0 or "WARNING" in made.stdout.upper():
    raise SystemExit(f"{made.stdout}\n{made.stderr}")

sys.path.insert(0, str(folder))
from hourglass_client import Client  # noqa: E402
from hourglass_client.api.default import delete_readings, get_databases, get_readings, post_readings, post_write  # noqa: E402
from hourglass_client.models import WrittenReading  # noqa: E402
from hourglass_client.types import File  # noqa: E402

paths = json.loads((folder / "openapi.json").read_text())["paths"]
modules = [module.stem for module in (folder / "hourglass_client/api/default").glob("*.py") if module.stem != "__init__"]
client = Client(base_url=url)
reading = WrittenReading.from_dict({"sensor": "made", "ts": "2026-01-15T14:00:00Z", "value": 21.5})
ack = post_readings.sync(client=client, body=reading, db="made")
line = File(payload=io.BytesIO(b"made,sensor=line value=3 1768485600"))
written = post_write.sync_detailed(client=client, body=line, db="made", precision=post_write.PostWritePrecision.S)
found = get_readings.sync(client=client, db="made", measurement="made")
preview = delete_readings.sync(client=client, db="made", measurement="made", dry_run=delete_readings.DeleteReadingsDryRun.TRUE)
print(json.dumps({
    "operations": sum(len(methods) for methods in paths.values()),
    "generated": len(modules),
    "ack": ack.to_dict(),
    "written": written.status_code,
    "found": found.to_dict(),
    "preview": preview.to_dict(),
    "databases": [database.name for database in get_databases.sync(client=client).databases],
}))
