// Access: tokens, and the retention of each database.

import { databases, get, patch, post, rights } from "./api.js";
import { button, card, dialog, empty, failure, field, h, show, table, title, toast } from "./dom.js";
import { ago, visible } from "./format.js";
import { format } from "./state.js";

export function access(container, { caller, database }) {
  const tokens = h("div");
  const databaseList = h("div");
  const all = rights(caller, database).everything;
  show(container, title("Access and retention", "Tokens, and the retention period of each database."),
    all && card("Tokens", tokens), card("Databases", databaseList));
  if (all) drawTokens(tokens, caller, database);
  drawDatabases(databaseList, caller);
  return null;
}

async function drawTokens(container, caller, database) {
  if (!caller.name) {
    show(container, empty("This service requires no token.", h("p", null, "Create the first token in a terminal. From then on every device needs a token: ", h("code", null, "hourglass token add --name NAME --admin '*'"))));
    return;
  }
  try {
    const { tokens } = await get("/api/v1/tokens");
    const redraw = () => drawTokens(container, caller, database);
    const rows = tokens.map((token) => [
      token.name,
      h("span", { class: token.state === "valid" ? "badge good" : "badge" }, token.state),
      rightsText(token.scopes),
      token.used ? ago(token.used) : "never",
      token.state === "valid" && token.name !== caller.name ? button("Revoke", () => revoke(token.name, redraw), { class: "danger", "aria-label": `Revoke ${token.name}` }) : "",
    ]);
    show(container, table("Tokens", ["Name", "State", "Rights", "Last used", "Action"], rows),
      h("p", { class: "hint" }, "Create a token for a device together with its snippet: ", h("a", { href: format("connect", new URLSearchParams({ db: database })) }, "Connect a device"),
        ". Create tokens with other rights in a terminal: ", h("code", null, "hourglass token add --name NAME --read DATABASE"), "."));
  } catch (error) {
    show(container, failure(error));
  }
}

function rightsText({ write, read, admin, metrics, tags, ingest }) {
  const parts = [["write", write], ["read", read], ["administer", admin]].filter(([, globs]) => globs.length).map(([what, globs]) => `${what} ${globs.map(visible).join(", ")}`);
  if (metrics) parts.push("see metrics");
  if (ingest) parts.push(`write through ${visible(ingest.mapping)} to ${visible(ingest.database)}`);
  for (const [key, stored] of Object.entries(tags)) parts.push(`only ${visible(key)} ${visible(stored)}`);
  return parts.join("; ");
}

function revoke(name, done) {
  const problem = h("div");
  const close = dialog(`Revoke ${name}?`, h("p", null, "Requests with this token will be refused. This cannot be undone."), problem, h("div", { class: "actions" }, button("Revoke token", async () => {
    try {
      await post(`/api/v1/tokens/${encodeURIComponent(name)}/revoke`, {});
      close();
      done();
    } catch (error) {
      show(problem, failure(error));
    }
  }, { class: "danger" })));
}

async function drawDatabases(container, caller) {
  try {
    const names = (await databases()).filter((name) => rights(caller, name).manage);
    const all = await Promise.all(names.map((name) => get(`/api/v1/databases/${encodeURIComponent(name)}`)));
    const redraw = () => drawDatabases(container, caller);
    const rows = all.map((found) => [
      visible(found.name), retentionText(found.kept), retentionText(found.summaries_kept ?? found.kept), found.policies.length ? found.policies.map((policy) => visible(policy.name ?? policy)).join(", ") : "–",
      button("Change", () => retain(found.name, redraw), { "aria-label": `Change the retention of ${visible(found.name)}` }),
    ]);
    show(container, rows.length ? table("Databases", ["Database", "Readings", "Summaries", "Policies", "Action"], rows) : empty("No databases yet."));
  } catch (error) {
    show(container, failure(error));
  }
}

function retentionText(duration) {
  if (duration === null || duration === undefined) return "–";
  return duration === "inf" ? "for ever" : visible(duration);
}

/** Describes the readings or summaries that a change would delete; null if none. The count is null if the service could not determine it. */
function deletionText({ readings, sensors, before, oldest }, areSummaries) {
  const details = sensors ? ` (${sensors} sensors, from ${oldest})` : "";
  if (readings === null) return `${areSummaries ? "The summaries of an" : "An"} unknown number of readings before ${before} would be deleted${details}.`;
  return readings ? `${areSummaries ? "The summaries of " : ""}${readings} readings of ${sensors} sensors before ${before} would be deleted.` : null;
}

/** Opens a dialog that previews and changes the retention of a database. */
async function retain(name, done) {
  const path = `/api/v1/databases/${encodeURIComponent(name)}`;
  let found;
  try {
    found = await get(path);
  } catch (error) {
    toast(error.message);
    return;
  }
  const readings = h("input", { value: found.readings ?? "", autocomplete: "off", spellcheck: "false" });
  const summaries = h("input", { value: found.summaries ?? "", autocomplete: "off", spellcheck: "false" });
  const answer = h("div", { "aria-live": "polite" });
  // The service keeps settings that are not sent.
  const wanted = () => ({ readings: readings.value.trim() || null, summaries: summaries.value.trim() || null });
  const close = dialog(`Retention of ${visible(found.name)}`, field("Keep readings for", readings, `A duration such as 30d or 52w, or inf. Leave empty for the configured default${found.readings ? "" : ` (${retentionText(found.kept)})`}.`),
    field("Keep summaries for", summaries, `Exact hourly and daily summaries, kept at least as long as readings. Leave empty for the configured default${found.summaries ? "" : ` (${retentionText(found.summaries_kept ?? found.kept)})`}.`), answer, h("div", { class: "actions" },
    button("Preview", async () => {
      try {
        const preview = await patch(path, wanted(), { parameters: { dry_run: "true" } });
        const lines = [deletionText(preview, false), preview.summaries && deletionText(preview.summaries, true)].filter(Boolean);
        show(answer, (lines.length ? lines : ["Nothing would be deleted now."]).map((text) => h("p", null, text)));
      } catch (error) {
        show(answer, failure(error));
      }
    }),
    button("Save", async () => {
      try {
        await patch(path, wanted());
        close();
        toast("Retention saved.");
        done();
      } catch (error) {
        show(answer, failure(error));
      }
    }, { class: "primary" })));
}
