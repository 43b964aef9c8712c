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
    show(place, empty("This service needs no token.", h("p", null, "The first one is made in a terminal, since from then on every device needs one: ", h("code", null, "hourglass token create --name NAME --admin '*'"))));
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
        ". One that may do anything else than write is made in a terminal: ", h("code", null, "hourglass token create --name NAME --read DATABASE"), "."));
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
      visible(found.name), lasts(found.readings ?? found.kept), lasts(found.summaries), found.policies.length ? found.policies.map((policy) => visible(policy.name ?? policy)).join(", ") : "–",
      button("Change", () => retain(found, again), { "aria-label": `Change how long ${visible(found.name)} keeps readings` }),
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

/** Sets how long readings are kept, after telling what would go. */
function retain(found, done) {
  const kept = h("input", { value: found.readings ?? found.kept ?? "inf", autocomplete: "off", spellcheck: "false" });
  const summaries = h("input", { value: found.summaries === found.readings ? "" : found.summaries ?? "", autocomplete: "off", spellcheck: "false" });
  const told = h("div", { "aria-live": "polite" });
  const path = `/api/v1/databases/${encodeURIComponent(found.name)}`;
  // All of them: what is left out would be reset.
  const wanted = () => ({ readings: kept.value.trim(), summaries: summaries.value.trim() || null, default: found.default, seal_form: found.seal_form });
  const close = dialog(`How long ${visible(found.name)} keeps readings`, field("Keep readings for", kept, "A duration such as 30d or 52w, or inf."),
    field("Keep summaries for", summaries, "Of each hour and day, exact. Not shorter; empty for as long as readings."), told, h("div", { class: "actions" },
    button("What would go?", async () => {
      try {
        const gone = await put(path, wanted(), { parameters: { dry_run: "true" } });
        const lines = [gone.readings && `${gone.readings} readings of ${gone.sensors} sensors before ${gone.before} would go.`,
          gone.summaries?.readings && `With their summaries: ${gone.summaries.readings} readings of ${gone.summaries.sensors} sensors before ${gone.summaries.before}.`].filter(Boolean);
        show(told, (lines.length ? lines : ["Nothing would go now."]).map((text) => h("p", null, text)));
      } catch (error) {
        show(told, failure(error));
      }
    }),
    button("Set", async () => {
      try {
        await put(path, wanted());
        close();
        toast("It is set.");
        done();
      } catch (error) {
        show(told, failure(error));
      }
    }, { class: "primary" })));
}
