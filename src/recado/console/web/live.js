// Live data: the totals of the node every second, and the rows of all queues. Views subscribe and read the stores
// `nodeSeries` and `queueStore`; where the data comes from is known only here and in the worker.
import { endSession, get, onReach, session } from "./api.js";
import { useEffect, useReducer, useState } from "./lib.js";

const SAMPLES_MAX = 3_600;
const SPARK_COUNT = 60;

export const connection = { status: "connecting" };
const wanted = new Map(); // topic → number of views
const listeners = new Map(); // topic → functions
const changeListeners = new Set();
let port = null;
let connecting = null;

// ── the link to the worker ────────────────────────────────────────────────────────────────────────

async function connect() {
  const url = new URL("./live-worker.js", import.meta.url);
  if (globalThis.SharedWorker) {
    const policy = globalThis.trustedTypes?.createPolicy("recado-worker", { createScriptURL: () => url.href });
    try {
      const worker = new SharedWorker(policy ? policy.createScriptURL("") : url.href, { type: "module", name: "recado" });
      port = worker.port;
    } catch {
      port = null;
    }
  }
  if (port === null) {
    // Without shared workers each tab loads for itself.
    const channel = new MessageChannel();
    const { attach } = await import("./live-worker.js");
    attach(channel.port1);
    port = channel.port2;
  }
  port.onmessage = ({ data }) => receive(data);
  port.start?.();
  announce();
}

function announce() {
  if (port === null) return;
  const visible = document.visibilityState === "visible" && session.user !== null;
  const topics = visible ? [...wanted].filter(([, views]) => views > 0).map(([topic]) => topic).concat("changes") : [];
  port.postMessage({ topics });
}

document.addEventListener("visibilitychange", announce);
addEventListener("pagehide", () => port?.postMessage({ topics: null }));
addEventListener("pageshow", announce);
setInterval(announce, 10_000);

function receive(message) {
  if (message.status === "signed-out") {
    endSession();
    return;
  }
  setStatus(message.status);
  if (message.status !== "live") return;
  if (message.topic === "changes") {
    for (const each of changeListeners) each(message.subjects);
  } else if (message.topic === "node") nodeSeries.add(message.since, message.data);
  else queueStore.add(message.since, message.data);
}

function setStatus(status) {
  if (connection.status === status) return;
  connection.status = status;
  publish("status");
}

onReach(setStatus);

function publish(topic) {
  for (const each of listeners.get(topic) ?? []) each();
}

// Render again when the data of a topic changes.
export function useLive(topic) {
  const [, again] = useReducer((number) => number + 1, 0);
  useEffect(() => {
    if (!listeners.has(topic)) listeners.set(topic, new Set());
    listeners.get(topic).add(again);
    if (topic !== "status") {
      wanted.set(topic, (wanted.get(topic) ?? 0) + 1);
      connecting ??= connect();
      announce();
    }
    return () => {
      listeners.get(topic).delete(again);
      if (topic !== "status") {
        wanted.set(topic, wanted.get(topic) - 1);
        announce();
      }
    };
  }, [topic]);
}

// Connect for the changes, also on pages without live figures.
export function followChanges() {
  connecting ??= connect();
}

// Start again after another user has signed in.
export function resetLive() {
  nodeSeries.clear();
  queueStore.clear();
  announce();
}

// ── totals of the node ────────────────────────────────────────────────────────────────────────────

class NodeSeries {
  constructor() {
    this.clear();
  }

  clear() {
    this.columns = null;
    this.loading = null;
  }

  get newestAt() {
    const times = this.columns?.at;
    return times?.length ? times[times.length - 1] : 0;
  }

  async add(since, data) {
    if (this.columns === null || since > this.newestAt) {
      // The first samples of this tab, or some are missing: load what the node has.
      if (this.loading === null) {
        this.loading = get(`api/samples/node?since=${this.newestAt}`)
          .then((missing) => this.append(missing), () => {})
          .finally(() => (this.loading = null));
      }
      await this.loading;
    }
    this.append(data);
    publish("node");
  }

  append(data) {
    if (this.columns === null) this.columns = Object.fromEntries(Object.keys(data).map((name) => [name, []]));
    if (data.at.length && this.newestAt > data.at[data.at.length - 1] + 60_000) return; // the node's clock was set
    const first = data.at.findIndex((each) => each > this.newestAt);
    if (first < 0) return;
    for (const [name, values] of Object.entries(this.columns)) {
      values.push(...data[name].slice(first));
      if (values.length > SAMPLES_MAX + 300) values.splice(0, values.length - SAMPLES_MAX);
    }
  }

  last(name) {
    const values = this.columns?.[name];
    return values?.length ? values[values.length - 1] : null;
  }

  // The rate of a counter over the newest seconds.
  rate(name, seconds = 2) {
    return rateOf(this.columns?.at, this.columns?.[name], seconds);
  }
}

function rateOf(times, values, seconds) {
  if (!times || times.length < 2) return null;
  const last = times.length - 1;
  let first = last - 1;
  while (first > 0 && times[last] - times[first] < seconds * 900) first -= 1;
  const elapsed = (times[last] - times[first]) / 1000;
  return elapsed > 0 ? Math.max(0, (values[last] - values[first]) / elapsed) : 0;
}

// The rates of a counter at each time; null before the first and where the node was restarted.
export function ratesOf(times, values) {
  const rates = new Array(times.length);
  rates[0] = null;
  for (let index = 1; index < times.length; index += 1) {
    const change = values[index] - values[index - 1];
    rates[index] = change < 0 ? null : (change * 1000) / (times[index] - times[index - 1]);
  }
  return rates;
}

export const nodeSeries = new NodeSeries();

// ── rows of all queues ────────────────────────────────────────────────────────────────────────────

class QueueStore {
  constructor() {
    this.clear();
  }

  clear() {
    this.rows = new Map();
    this.at = 0;
    this.loading = null;
    this.version = 0;
  }

  get isLoaded() {
    return this.at > 0;
  }

  async add(since, data) {
    if (data.since === null) this.replace(data);
    else if (this.at === 0 || data.since > this.at) await this.reload();
    else if (data.since === this.at) this.update(data);
    publish("queues");
  }

  reload() {
    this.loading ??= get("api/samples/queues")
      .then((data) => this.replace(data), () => {})
      .finally(() => {
        this.loading = null;
        publish("queues");
      });
    return this.loading;
  }

  replace(data) {
    if (data.at < this.at) return;
    const isLater = data.at > this.at;
    const before = this.rows;
    this.rows = new Map();
    for (const row of data.rows) {
      const queue = readRow(data.columns, row);
      const earlier = before.get(queue.key);
      if (isLater) this.rows.set(queue.key, follow(earlier, queue));
      else this.rows.set(queue.key, earlier ? Object.assign(queue, { spark: earlier.spark }) : queue);
    }
    this.at = data.at;
    this.version += 1;
  }

  update(data) {
    if (data.at === this.at) return;
    const changed = new Map();
    for (const row of data.rows) {
      const queue = readRow(data.columns, row);
      changed.set(queue.key, queue);
    }
    for (const [vhost, name] of data.removed) this.rows.delete(keyOf(vhost, name));
    for (const [key, queue] of this.rows) {
      if (changed.has(key)) continue;
      queue.publish_rate = queue.deliver_get_rate = queue.ack_rate = 0;
      extend(queue.spark, queue.messages);
    }
    for (const [key, queue] of changed) this.rows.set(key, follow(this.rows.get(key), queue));
    this.at = data.at;
    this.version += 1;
  }
}

// Give a row the sparkline of the row before.
function follow(before, queue) {
  if (!before) return queue;
  queue.spark = before.spark;
  extend(queue.spark, queue.messages);
  return queue;
}

// A sparkline that never changed has one value: most queues are idle, and 20,000 of them take little memory so.
function extend(spark, value) {
  if (spark.length === 1) {
    if (spark[0] === value) return;
    while (spark.length < SPARK_COUNT - 1) spark.push(spark[0]);
  }
  spark.push(value);
  if (spark.length > SPARK_COUNT) spark.shift();
  if (spark[0] === value && spark.every((each) => each === value)) spark.length = 1;
}

export const keyOf = (vhost, name) => `${vhost}\n${name}`;

function readRow(columns, row) {
  const queue = {};
  for (let index = 0; index < columns.length; index += 1) queue[columns[index]] = row[index];
  queue.key = keyOf(queue.vhost, queue.name);
  queue.search = queue.name.toLowerCase();
  queue.messages = queue.messages_ready + queue.messages_unacknowledged;
  queue.spark = [queue.messages];
  return queue;
}

export const queueStore = new QueueStore();

// ── other data ────────────────────────────────────────────────────────────────────────────────────

// Which events make a list out of date, by the segments of its path.
const SUBJECTS_OF = {
  connections: ["connection"],
  channels: ["channel"],
  consumers: ["consumer"],
  exchanges: ["exchange", "binding"],
  queues: ["queue"],
  bindings: ["binding"],
  policies: ["policy"],
  "operator-policies": ["operator_policy"],
  vhosts: ["vhost", "permission"],
  users: ["user", "permission", "topic_permission"],
  permissions: ["permission"],
  nodes: ["alarm"],
};
const RELOAD_PAUSE_MS = 1_000; // between two loads because of events

function isOutdated(path, subjects) {
  const segments = path.split("?")[0].split("/");
  return segments.some((each) => SUBJECTS_OF[each]?.some((subject) => subjects.includes(subject)));
}

// Load a path now, when an event concerns it, and every `period` ms while the page is visible. Returns { data, error, reload }.
export function useLoaded(path, period = 5_000) {
  const [state, setState] = useState({ path: null, data: null, error: null });
  const [turn, reload] = useReducer((number) => number + 1, 0);
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    let timer = 0;
    let loadedAt = 0;
    const load = async () => {
      loadedAt = Date.now();
      try {
        if (document.visibilityState === "visible") {
          const data = await get(path, { signal: abort.signal });
          setState({ path, data, error: null });
        }
      } catch (error) {
        if (error.name === "AbortError") return;
        setState((before) => ({ path, data: before.path === path ? before.data : null, error }));
      }
      if (period && !abort.signal.aborted) timer = setTimeout(load, period);
    };
    const hear = (subjects) => {
      if (!period || !isOutdated(path, subjects)) return;
      clearTimeout(timer);
      timer = setTimeout(load, Math.max(0, loadedAt + RELOAD_PAUSE_MS - Date.now()));
    };
    changeListeners.add(hear);
    load();
    return () => {
      changeListeners.delete(hear);
      abort.abort();
      clearTimeout(timer);
    };
  }, [path, period, turn]);
  const isCurrent = state.path === path;
  return { data: isCurrent ? state.data : null, error: isCurrent ? state.error : null, reload };
}
