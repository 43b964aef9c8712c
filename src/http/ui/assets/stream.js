// The stream of acknowledged readings. It uses `fetch`, because an EventSource cannot send a token, and reconnects with the id of the last reading.

import { Failure, send } from "./api.js";

/** Default pause before reconnecting, in milliseconds. */
const PAUSE = 1500;

/** Splits a stream of text into server-sent events. */
export class EventParser {
  constructor() {
    this.rest = "";
  }

  /** Adds received text and returns the events that it completes: `{ event, id, data }`. */
  push(text) {
    const blocks = (this.rest + text).split("\n\n");
    this.rest = blocks.pop();
    return blocks.map(parseEvent).filter((event) => event.data !== null);
  }
}

function sentence(text) {
  return `${text[0]?.toUpperCase() ?? ""}${text.slice(1)}${/[.?!]$/.test(text) ? "" : "."}`;
}

function parseEvent(block) {
  const event = { event: "message", id: null, data: null };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") event.data = event.data === null ? value : `${event.data}\n${value}`;
    else if (name === "event" || name === "id") event[name] = value;
  }
  return event;
}

/**
 * Listens until the returned function is called. Calls `onEvent` with one of: `readings` (a list), `missed` (a number, or null if unknown), `state`
 * (`open`, `hidden`, or `waiting` with a reason `reason`), `ended` (the reason of the service), or `error`, after which it stops. Disconnects while the page
 * is hidden. When it is shown again, it fetches the readings that the service still has.
 */
export function listen(parameters, onEvent) {
  let isStopped = false;
  let lastId = "";
  let controller = null;

  async function readStream() {
    controller = new AbortController();
    const headers = lastId ? { "Last-Event-ID": lastId } : {};
    const answer = await send("GET", "/api/v1/tail", { parameters, headers, signal: controller.signal });
    onEvent({ state: "open" });
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    const parser = new EventParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const readings = [];
      for (const event of parser.push(decoder.decode(value, { stream: true }))) {
        if (event.id) lastId = event.id;
        const data = JSON.parse(event.data);
        if (event.event === "message") readings.push(data);
        else if (event.event === "missed") onEvent({ missed: data.readings });
        else if (event.event === "end") onEvent({ ended: data.reason });
      }
      if (readings.length) onEvent({ readings });
    }
  }

  async function run() {
    while (!isStopped) {
      if (document.hidden) {
        onEvent({ state: "hidden" });
        await new Promise((shown) => document.addEventListener("visibilitychange", shown, { once: true }));
        continue;
      }
      let reason = "The connection ended.";
      let pause = PAUSE;
      try {
        await readStream();
      } catch (error) {
        if (isStopped) return;
        if (error instanceof Failure) {
          if (error.status >= 400 && error.status < 500 && !error.retryAfter) {
            onEvent({ error });
            return;
          }
          reason = sentence(error.message);
          pause = error.retryAfter * 1000 || PAUSE;
        }
      }
      if (isStopped || document.hidden) continue;
      onEvent({ state: "waiting", reason: `${reason} Reconnecting …` });
      await new Promise((passed) => setTimeout(passed, pause));
    }
  }

  const hide = () => document.hidden && controller?.abort();
  document.addEventListener("visibilitychange", hide);
  run();
  return () => {
    isStopped = true;
    document.removeEventListener("visibilitychange", hide);
    controller?.abort();
  };
}

/**
 * Runs `work` in only one tab of this browser, the one shown last. Calls `onLost` when another tab takes over. Returns a function that ends it.
 */
export function runInOneTab(work, onLost) {
  // The Web Locks API needs TLS or localhost, so tabs coordinate over a channel.
  const channel = new BroadcastChannel("hourglass-tail");
  const claim = () => document.hidden || channel.postMessage("listening");
  const end = work();
  const stop = () => {
    document.removeEventListener("visibilitychange", claim);
    channel.close();
    end();
  };
  channel.addEventListener("message", () => {
    // A hidden tab has no stream. It claims the stream again when it is shown.
    if (document.hidden) return;
    stop();
    onLost();
  });
  document.addEventListener("visibilitychange", claim);
  claim();
  return stop;
}
