"""An InfluxDB 1.x with the readings of a world, asked where the model and a server disagree."""

import json

from folds import is_number
from world import Client, format_value, key_of


class Reference:
    """The readings of a world under their shown names. Mixed numbers are floats there."""

    loaded = None

    def __init__(self, url, reader):
        self.client = Client(url)
        self.reader = reader

    def ask(self, text):
        if Reference.loaded is not self.reader:
            self.load()
            Reference.loaded = self.reader
        _, _, body = self.client.send("GET", "/query", {"db": "oracle", "epoch": "ns", "q": text})
        return json.loads(body)["results"][0].get("series", body)

    def load(self):
        for statement in ["DROP DATABASE oracle", "CREATE DATABASE oracle"]:
            self.client.expect("POST", "/query", {"q": statement})
        lines = []
        for sensor, name, tags in self.reader.chosen():
            for time in self.reader.world.live_times(sensor):
                values = {field: float(value) if field in ("x", *(f"c{n}" for n in range(1100))) and is_number(value)
                          else value for field, value in sensor.data[time].items()}
                text = ",".join(f"{field}={format_value(value)}" for field, value in values.items())
                lines.append(f"{key_of(name, tags)} {text} {time}")
        for start in range(0, len(lines), 5000):
            self.client.expect("POST", "/write", {"db": "oracle"}, "\n".join(lines[start:start + 5000]))
