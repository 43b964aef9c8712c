// Access: tokens, and how long each database keeps its readings.

import { databases, get, post, put, rights } from "./api.js";
import { button, card, dialog, empty, failure, field, h, show, table, title, toast } from "./dom.js";
import { ago, visible } from "./format.js";
import { format } from "./state.js";

export function access(place, { caller, database }) {
  const [tokens, kept] = [h("div"), h("div")];
  const all = rights(caller, database).everything;
  show(place, title("Access and retention", "Who may do what, and how long readings are kept."),
    all && card("Tokens", tokens), card("Databases", kept));
  if (all) drawTokens(tokens, caller, database);
  drawDatabases(kept, caller);
  return null;
}

async function drawTokens(place, caller, database) {
  if (!caller.name) {
    show(place, empty("This service needs no token.", h("p", null, "The first one is made in a terminal, since from then on every device needs one: ", h("code", null, "hourglass token add --name NAME --admin '*'"))));
    return;
  }
  try {
    const { tokens } = await get("/api/v1/tokens");
    const again = () => drawTokens(place, caller, database);
    const rows = tokens.map((token) => [
      token.name,
      h("span", { class: token.state === "valid" ? "badge good" : "badge" }, token.state),
      may(token.scopes),
      token.used ? ago(token.used) : "never",
      token.state === "valid" && token.name !== caller.name ? button("Revoke", () => revoke(token.name, again), { class: "danger", "aria-label": `Revoke ${token.name}` }) : "",
    ]);
    show(place, table("Tokens", ["Name", "State", "May", "Used", "Action"], rows),
      h("p", { class: "hint" }, "A device's token is made with its snippet: ", h("a", { href: format("connect", new URLSearchParams({ db: database })) }, "Connect a device"),
        ". One that may do anything else than write is made in a terminal: ", h("code", null, "hourglass token add --name NAME --read DATABASE"), "."));
  } catch (error) {
    show(place, failure(error));
  }
}

function may({ write, read, admin, metrics, tags }) {
  const parts = [["write", write], ["read", read], ["administer", admin]].filter(([, globs]) => globs.length).map(([what, globs]) => `${what} ${globs.map(visible).join(", ")}`);
  if (metrics) parts.push("see metrics");
  for (const [key, stored] of Object.entries(tags)) parts.push(`only ${visible(key)} ${visible(stored)}`);
  return parts.join("; ");
}

function revoke(name, done) {
  const problem = h("div");
  const close = dialog(`Revoke ${name}?`, h("p", null, "Whoever uses it is refused from now on. This cannot be undone."), problem, h("div", { class: "actions" }, button("Revoke it", async () => {
    try {
      await post(`/api/v1/tokens/${encodeURIComponent(name)}/revoke`, {});
      close();
      done();
    } catch (error) {
      show(problem, failure(error));
    }
  }, { class: "danger" })));
}

async function drawDatabases(place, caller) {
  try {
    const names = (await databases()).filter((name) => rights(caller, name).manage);
    const all = await Promise.all(names.map((name) => get(`/api/v1/databases/${encodeURIComponent(name)}`)));
    const again = () => drawDatabases(place, caller);
    const rows = all.map((found) => [
      visible(found.name), lasts(found.kept), lasts(found.summaries_kept ?? found.kept), found.policies.length ? found.policies.map((policy) => visible(policy.name ?? policy)).join(", ") : "–",
      button("Change", () => retain(found.name, again), { "aria-label": `Change how long ${visible(found.name)} keeps readings` }),
    ]);
    show(place, rows.length ? table("Databases", ["Database", "Readings", "Summaries", "Policies", "Action"], rows) : empty("There is no database yet."));
  } catch (error) {
    show(place, failure(error));
  }
}

function lasts(kept) {
  if (kept === null || kept === undefined) return "–";
  return kept === "inf" ? "for ever" : visible(kept);
}

/** What would go, of readings or of summaries, in one sentence; null if nothing would. The service may not have been able to count it. */
function gone({ readings, sensors, before, oldest }, areSummaries) {
  const of = sensors ? ` (${sensors} sensors, from ${oldest})` : "";
  if (readings === null) return areSummaries ? `It is not known of how many readings before ${before} the summaries would go${of}.` : `It is not known how many readings before ${before} would go${of}.`;
  return readings ? `${areSummaries ? "The summaries of " : ""}${readings} readings of ${sensors} sensors before ${before} would go.` : null;
}

/** Sets how long readings are kept, after telling what would go. */
async function retain(name, done) {
  const path = `/api/v1/databases/${encodeURIComponent(name)}`;
  let found;
  try {
    found = await get(path);
  } catch (error) {
    toast(error.message);
    return;
  }
  const kept = h("input", { value: found.readings ?? "", autocomplete: "off", spellcheck: "false" });
  const summaries = h("input", { value: found.summaries ?? "", autocomplete: "off", spellcheck: "false" });
  const answer = h("div", { "aria-live": "polite" });
  // What is not sent stays as it is.
  const wanted = () => ({ readings: kept.value.trim() || null, summaries: summaries.value.trim() || null });
  const close = dialog(`How long ${visible(found.name)} keeps readings`, field("Keep readings for", kept, `A duration such as 30d or 52w, or inf; empty for what the configuration says${found.readings ? "" : `, which is ${lasts(found.kept)}`}.`),
    field("Keep summaries for", summaries, `Of each hour and day, exact. Not shorter; empty for what the configuration says, by default as long as readings${found.summaries ? "" : `: now ${lasts(found.summaries_kept ?? found.kept)}`}.`), answer, h("div", { class: "actions" },
    button("What would go?", async () => {
      try {
        const told = await put(path, wanted(), { parameters: { dry_run: "true" } });
        const lines = [gone(told, false), told.summaries && gone(told.summaries, true)].filter(Boolean);
        show(answer, (lines.length ? lines : ["Nothing would go now."]).map((text) => h("p", null, text)));
      } catch (error) {
        show(answer, failure(error));
      }
    }),
    button("Set", async () => {
      try {
        await put(path, wanted());
        close();
        toast("It is set.");
        done();
      } catch (error) {
        show(answer, failure(error));
      }
    }, { class: "primary" })));
}
