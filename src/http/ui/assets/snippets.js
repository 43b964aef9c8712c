// Snippets that send readings to this service. Pure functions from strings to strings. Every name is quoted for its language.

import { c, javascript, json, python, shell, toml, yaml } from "./quote.js";

/** The environment variable that holds the token if the snippet does not. */
const VARIABLE = "HOURGLASS_TOKEN";

/**
 * `write` takes `{ origin, database, measurement, sensor, token }`. `token` is `null` without authentication, a string to put into the snippet, or
 * `undefined` for an environment variable. `needs` is the scope of the token, if not write. `isOne` is true if the snippet sends as one sensor.
 */
export const SNIPPETS = [
  { id: "curl", name: "curl", write: curl, isOne: true },
  { id: "python", name: "Python", write: pythonScript, isOne: true },
  { id: "javascript", name: "JavaScript", write: javascriptModule, isOne: true },
  { id: "arduino", name: "Arduino, ESP32", write: arduino, isOne: true },
  { id: "esphome", name: "ESPHome", write: esphome, isOne: true },
  { id: "home-assistant", name: "Home Assistant", write: homeAssistant },
  { id: "node-red", name: "Node-RED", write: nodeRed, isOne: true },
  { id: "telegraf", name: "Telegraf", write: telegraf },
  { id: "prometheus", name: "Prometheus", write: prometheus, needs: "metrics" },
  { id: "grafana", name: "Grafana", write: grafana, needs: "read" },
];

function url({ origin, database }) {
  return `${origin}/api/v1/readings?db=${encodeURIComponent(database)}`;
}

function reading({ measurement, sensor }, value = 22.5) {
  return { measurement, tags: { sensor }, fields: { value } };
}

function curl(to) {
  const header = to.token === null ? "" : ` \\\n  -H ${to.token ? shell(`Authorization: Token ${to.token}`) : `"Authorization: Token $${VARIABLE}"`}`;
  return `curl ${shell(url(to))}${header} \\\n  -d ${shell(JSON.stringify(reading(to)))}\n`;
}

function pythonScript(to) {
  const { measurement, sensor, token } = to;
  const header = token === null ? "" : `, "Authorization": "Token " + ${token ? python(token) : `os.environ["${VARIABLE}"]`}`;
  return `import json, os, urllib.request

url = ${python(url(to))}
headers = {"Content-Type": "application/json"${header}}
reading = {"measurement": ${python(measurement)}, "tags": {"sensor": ${python(sensor)}}, "fields": {"value": 22.5}}
request = urllib.request.Request(url, json.dumps(reading).encode(), headers)
print(urllib.request.urlopen(request).status)  # 200: stored durably
`;
}

function javascriptModule(to) {
  const { measurement, sensor, token } = to;
  const header = token === null ? "" : `, Authorization: "Token " + ${token ? javascript(token) : `process.env.${VARIABLE}`}`;
  return `const answer = await fetch(${javascript(url(to))}, {
  method: "POST",
  headers: { "Content-Type": "application/json"${header} },
  body: JSON.stringify({ measurement: ${javascript(measurement)}, tags: { sensor: ${javascript(sensor)} }, fields: { value: 22.5 } }),
});
console.log(answer.status); // 200: stored durably
`;
}

function arduino(to) {
  const { token } = to;
  const header = token === null ? "" : `\n  http.addHeader("Authorization", "Token " ${token ? c(token) : "HOURGLASS_TOKEN"});`;
  const define = token === undefined ? `#define ${VARIABLE} "hg_..."\n` : "";
  const [before, after] = JSON.stringify(reading(to, 0.5)).split(/0\.5(?=\}\}$)/);
  return `#include <WiFi.h>
#include <HTTPClient.h>
${define}
void setup() {
  WiFi.begin("network", "password");
  while (WiFi.status() != WL_CONNECTED) delay(100);
}

void loop() {
  HTTPClient http;
  http.begin(${c(url(to))});
  http.addHeader("Content-Type", "application/json");${header}
  String body = ${c(before)};
  body += String(analogRead(34));
  body += ${c(after)};
  int status = http.POST(body);  // 200: stored durably. Otherwise send it again.
  http.end();
  delay(10000);
}
`;
}

function esphome(to) {
  const { measurement, sensor, token } = to;
  // The name is only a label. ESPHome substitutes variables after a `$`.
  const label = sensor.replaceAll("$", "_");
  const header = token === null ? "" : `\n              Authorization: ${token ? yaml(`Token ${token}`) : "!secret hourglass_authorization"}`;
  // An ESP8266 cannot check certificates, and ESPHome wants that confirmed even without TLS.
  const check = to.origin.startsWith("https:") ? "" : "\n  verify_ssl: false";
  return `http_request:
  useragent: esphome${check}

sensor:
  - platform: wifi_signal
    name: ${yaml(label)}
    update_interval: 10s
    on_value:
      then:
        - http_request.post:
            url: ${yaml(url(to))}
            request_headers:
              Content-Type: application/json${header}
            body: !lambda |-
              return std::string(${c(`{"measurement":${JSON.stringify(measurement)},"tags":{"sensor":${JSON.stringify(sensor)}},"fields":{"value":`)}) + to_string(x) + "}}";
`;
}

function homeAssistant({ origin, database, token }) {
  const { hostname, port, protocol } = new URL(origin);
  const login = token === null ? "" : `\n  username: hourglass\n  password: ${token ? yaml(token) : "!secret hourglass_token"}`;
  return `influxdb:
  api_version: 1
  host: ${yaml(hostname)}
  port: ${port || (protocol === "https:" ? 443 : 80)}
  ssl: ${protocol === "https:"}
  database: ${yaml(database)}${login}
  max_retries: 10
`;
}

function nodeRed(to) {
  const headers = to.token === null ? [] : [{ keyType: "other", keyValue: "Authorization", valueType: to.token ? "other" : "env", valueValue: to.token ? `Token ${to.token}` : "HOURGLASS_AUTHORIZATION" }];
  const body = { measurement: to.measurement, tags: { sensor: to.sensor }, fields: { value: 0 } };
  const nodes = [
    { id: "hg1", type: "inject", x: 140, y: 80, name: "every 10 s", repeat: "10", payload: "22.5", payloadType: "num", wires: [["hg2"]] },
    { id: "hg2", type: "function", x: 320, y: 80, name: "a reading", func: `const value = msg.payload;\nmsg.payload = ${json(JSON.stringify(body))};\nmsg.payload = JSON.parse(msg.payload);\nmsg.payload.fields.value = value;\nreturn msg;`, outputs: 1, wires: [["hg3"]] },
    { id: "hg3", type: "http request", x: 500, y: 80, name: "hourglass", method: "POST", ret: "obj", url: url(to), headers, wires: [[]] },
  ];
  return `${JSON.stringify(nodes, null, 2)}\n`;
}

function telegraf({ origin, database, token }) {
  const login = token === null ? "" : `\n  username = "telegraf"\n  password = ${token ? toml(token) : `"$${VARIABLE}"`}`;
  return `[[outputs.influxdb]]
  urls = [${toml(origin)}]
  database = ${toml(database)}
  skip_database_creation = true${login}

[[inputs.cpu]]
[[inputs.mem]]
`;
}

function prometheus({ origin, token }) {
  const { host, protocol } = new URL(origin);
  const login = token === null ? "" : `\n    authorization:\n      type: Token\n      credentials${token ? `: ${yaml(token)}` : "_file: /etc/prometheus/hourglass-token"}`;
  return `# Metrics of this service, not readings of your devices. If status.listen is set, use that address.
scrape_configs:
  - job_name: hourglass
    scheme: ${protocol.replace(":", "")}${login}
    static_configs:
      - targets: [${yaml(host)}]
`;
}

function grafana({ origin, database, token }) {
  // Grafana expands variables in values, and reads `$$` as a dollar sign.
  const text = (value) => yaml(value.replaceAll("$", "$$$$"));
  const login = token === null ? "" : `\n      httpHeaderName1: Authorization\n    secureJsonData:\n      httpHeaderValue1: ${token ? text(`Token ${token}`) : `Token $${VARIABLE}`}`;
  return `# /etc/grafana/provisioning/datasources/hourglass.yaml
apiVersion: 1
datasources:
  - name: hourglass
    type: influxdb
    access: proxy
    url: ${text(origin)}
    jsonData:
      version: InfluxQL
      dbName: ${text(database)}
      httpMode: POST${login}
`;
}
