// One for all tabs of a browser: loads what any visible tab wants, once, and sends it to each of them. Browsers allow
// six connections to a host, and the node should not answer each tab. Samples are asked for; changes of objects come
// by one stream of server-sent events.
const PERIOD_MS = { node: 1_000, queues: 2_500 };
const FULL_PERIOD_MS = 60_000; // numbers of consumers and policies change without messages
const TAB_SILENCE_MS = 150_000; // a hidden tab may run its timers once a minute
const since = { node: 0, queues: 0 };
const due = { node: 0, queues: 0 };
const busy = { node: false, queues: false };
let fullAt = 0;
const tabs = new Map(); // port → { topics, seenAt }

export function attach(port) {
  port.onmessage = ({ data }) => {
    if (data.topics === null) {
      tabs.delete(port);
      return;
    }
    tabs.set(port, { topics: new Set(data.topics), seenAt: Date.now() });
    tick();
  };
  port.start?.();
}

// ── changes ───────────────────────────────────────────────────────────────────────────────────────

const SUBJECTS = ["queue", "exchange", "binding", "policy", "operator_policy", "vhost", "user", "permission", "topic_permission", "connection", "channel", "consumer", "alarm"];
const VERBS = ["created", "changed", "deleted", "opened", "closed", "blocked", "unblocked", "set", "cleared"];
const CHANGES_DELAY_MS = 250; // a client that starts causes many changes
const RETRY_MS = 10_000;
let source = null;
let sourceDue = 0;
const changed = new Set();
let changesTimer = 0;

function followChanges() {
  const isWanted = wanting("changes").length > 0;
  if (!isWanted && source !== null) {
    source.close();
    source = null;
  } else if (isWanted && source === null && Date.now() >= sourceDue) {
    const address = new URL("../../api/events", import.meta.url);
    address.searchParams.set("types", SUBJECTS.join(","));
    source = new EventSource(address);
    for (const subject of SUBJECTS) {
      for (const verb of VERBS) source.addEventListener(`${subject}.${verb}`, () => note([subject]));
    }
    source.addEventListener("stream.burst", ({ data }) => note([JSON.parse(data).type.split(".")[0]]));
    for (const name of ["stream.reset", "stream.skipped"]) source.addEventListener(name, () => note(SUBJECTS));
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return; // it connects again by itself
      source = null;
      sourceDue = Date.now() + RETRY_MS;
    };
  }
}

function note(subjects) {
  for (const each of subjects) changed.add(each);
  changesTimer ||= setTimeout(() => {
    changesTimer = 0;
    send("changes", { topic: "changes", status: "live", subjects: [...changed] });
    changed.clear();
  }, CHANGES_DELAY_MS);
}

// ── samples ───────────────────────────────────────────────────────────────────────────────────────

globalThis.onconnect = (event) => attach(event.ports[0]);

function wanting(topic) {
  return [...tabs].filter(([, tab]) => tab.topics.has(topic)).map(([port]) => port);
}

async function load(topic) {
  busy[topic] = true;
  due[topic] = Date.now() + PERIOD_MS[topic] - 50;
  const address = new URL(`../../api/samples/${topic}`, import.meta.url);
  const isFull = topic === "queues" && Date.now() - fullAt > FULL_PERIOD_MS;
  if (!isFull) address.searchParams.set("since", since[topic] || Date.now() - 2_000);
  try {
    const response = await fetch(address, { headers: { "x-csrf-token": "none" } });
    if (response.status === 401) {
      send(topic, { topic, status: "signed-out" });
      tabs.clear();
      return;
    }
    if (!response.ok) throw new Error(String(response.status));
    const data = await response.json();
    if (isFull) fullAt = Date.now();
    send(topic, { topic, status: "live", since: since[topic], data });
    since[topic] = topic === "node" ? data.at[data.at.length - 1] ?? since.node : data.at;
  } catch {
    send(topic, { topic, status: "lost" });
    due[topic] = Date.now() + 2_000;
  } finally {
    busy[topic] = false;
  }
}

function send(topic, message) {
  for (const port of wanting(topic)) port.postMessage(message);
}

function tick() {
  const now = Date.now();
  for (const [port, tab] of tabs) if (now - tab.seenAt > TAB_SILENCE_MS) tabs.delete(port);
  followChanges();
  for (const topic of Object.keys(PERIOD_MS)) {
    if (!busy[topic] && now >= due[topic] && wanting(topic).length) load(topic);
  }
}

setInterval(tick, 100);
