// Queues: the list, and one queue with its charts, messages, bindings, consumers and what can be done to it.
import { at, get, isPolicymaker, post, put, remove } from "../api.js";
import { Chart, RangePicker, Sparkline } from "../chart.js";
import {
  Arguments, AreaField, Badge, CheckField, confirm, Empty, exchangeLabel, exchangeSegment, Features, Form, Loading, Name, notify, openDialog, Page, Panel,
  parseJsonField, Problem, SelectField, Tabs, TextField, Tile,
} from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { queueStore, ratesOf, useLive, useLoaded } from "../live.js";
import { go, href, setQuery } from "../router.js";
import { FilterField, parseSort, sortRows, Table } from "../table.js";
import { Bindings } from "./bindings.js";
import { LiveTab } from "./live-tap.js";
import { MessagesTab, PublishForm } from "./messages.js";
import { UnackedTab } from "./unacked.js";
import { takeSnapshot } from "./snapshots.js";
import { useVhosts, VhostFilter } from "./vhosts.js";

// ── the list ──────────────────────────────────────────────────────────────────────────────────────

const amount = (value) => html`<span class=${value === 0 ? "zero" : ""}>${format.count(value)}</span>`;
const speed = (value) => html`<span class=${value === 0 ? "zero" : ""}>${format.rate(value)}</span>`;

const COLUMNS = [
  { id: "name", label: "Name", value: (queue) => queue.search, cell: (queue) => html`<a href=${href(["queues", queue.vhost, queue.name])}><${Name}>${queue.name}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (queue) => queue.vhost, cell: (queue) => html`<${Name} muted=${true}>${queue.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "type", label: "Type", value: (queue) => queue.type, width: "w-xs", hide: "hide-l" },
  { id: "features", label: "Features", title: "D durable, A auto-delete, E exclusive, + arguments", value: (queue) => queue.features, cell: (queue) => html`<span class="muted" title=${describeFeatures(queue.features)}>${queue.features}</span>`, width: "w-s", hide: "hide-l" },
  { id: "policy", label: "Policy", value: (queue) => queue.policy ?? "", cell: (queue) => (queue.policy ? html`<${Name}>${queue.policy}<//>` : ""), width: "w-m", hide: "hide-xl" },
  { id: "consumers", label: "Consumers", number: true, value: (queue) => queue.consumers, cell: (queue) => amount(queue.consumers), width: "w-s", hide: "hide-m" },
  { id: "ready", label: "Ready", number: true, value: (queue) => queue.messages_ready, cell: (queue) => amount(queue.messages_ready), width: "w-s" },
  { id: "unacked", label: "Unacked", number: true, value: (queue) => queue.messages_unacknowledged, cell: (queue) => amount(queue.messages_unacknowledged), width: "w-s", hide: "hide-s" },
  { id: "publish", label: "Publish", number: true, value: (queue) => queue.publish_rate, cell: (queue) => speed(queue.publish_rate), width: "w-s", hide: "hide-s" },
  { id: "deliver", label: "Deliver", number: true, value: (queue) => queue.deliver_get_rate, cell: (queue) => speed(queue.deliver_get_rate), width: "w-s", hide: "hide-s" },
  { id: "ack", label: "Ack", number: true, value: (queue) => queue.ack_rate, cell: (queue) => speed(queue.ack_rate), width: "w-s", hide: "hide-xl" },
  { id: "trend", label: "Trend", sortable: false, value: () => 0, cell: (queue) => html`<${Sparkline} values=${queue.spark} label="Messages of ${queue.name}" />`, width: "w-s", hide: "hide-s" },
];
const OPTIONAL = ["vhost", "type", "features", "policy", "consumers", "unacked", "publish", "deliver", "ack", "trend"];

function describeFeatures(letters) {
  const words = { D: "durable", A: "auto-delete", E: "exclusive", "+": "has arguments" };
  return [...letters].map((each) => words[each]).join(", ");
}

export function QueuesPage({ route }) {
  useLive("queues");
  const { filter = "", vhost = "", hidden = "" } = route.query;
  const sort = parseSort(route.query.sort, COLUMNS, "name");
  const columns = useMemo(() => {
    const hiddenIds = new Set(hidden.split(".").filter(Boolean));
    return COLUMNS.filter((each) => !hiddenIds.has(each.id));
  }, [hidden]);
  const [all, rows] = useMemo(() => {
    const every = [...queueStore.rows.values()];
    const wanted = filter.toLowerCase();
    const found = every.filter((queue) => (!wanted || queue.search.includes(wanted)) && (!vhost || queue.vhost === vhost));
    return [every.length, sortRows(found, COLUMNS, sort)];
  }, [queueStore.version, queueStore.rows, filter, vhost, sort.id, sort.descending]);
  return html`<${Page} title="Queues" actions=${html`<button class="button primary" onClick=${() => openDeclare(vhost)}>Add queue</button>`}>
    <div class="toolbar">
      <${FilterField} value=${filter} label="Filter queues by name" shown=${rows.length} total=${all} />
      <${VhostFilter} current=${vhost} />
      <span class="grow"></span>
      <button class="button" disabled=${!rows.length} title="delete, purge, move or replay; first the node tells what is concerned" onClick=${() => actOnAll(filter, vhost)}>Act on ${rows.length === all ? "all" : `these ${format.count(rows.length)}`}…</button>
      <button class="button" onClick=${() => openColumns(hidden)}>Columns</button>
    </div>
    <section class="panel bare">
      ${!queueStore.isLoaded
        ? html`<${Loading} />`
        : html`<${Table} rows=${rows} columns=${columns} rowKey=${(queue) => queue.key} version=${queueStore.version} sort=${sort} label="Queues"
            empty=${all
              ? html`<${Empty} title="No queue matches.">Shown are names that contain the filter, in the chosen virtual host.<//>`
              : html`<${Empty} title="There are no queues yet." command="recado queues declare orders">Clients declare them, or you do.<//>`} />`}
    </section>
  <//>`;
}

async function actOnAll(filter, vhost) {
  try {
    await takeSnapshot({ name_contains: filter, vhost });
  } catch (error) {
    notify(error.message, "bad");
  }
}

function openColumns(hidden) {
  openDialog("Columns", () => html`<${ColumnChoice} hidden=${hidden} />`);
}

function ColumnChoice({ hidden }) {
  const [off, setOff] = useState(new Set(hidden.split(".").filter(Boolean)));
  const toggle = (id) => {
    const next = new Set(off);
    if (!next.delete(id)) next.add(id);
    setOff(next);
    setQuery({ hidden: [...next].join(".") }, { replace: true });
  };
  return html`<div class="dialog-body"><p class="muted">The choice is part of the address of the page.</p>
    <div class="checks">${OPTIONAL.map((id) => html`<${CheckField} key=${id} label=${COLUMNS.find((each) => each.id === id).label} value=${!off.has(id)} onChange=${() => toggle(id)} />`)}</div></div>`;
}

// ── declaring ─────────────────────────────────────────────────────────────────────────────────────

const TYPES = [["classic", "Classic"], ["quorum", "Quorum"], ["stream", "Stream"]];

function openDeclare(vhost) {
  openDialog("Add a queue", (close) => html`<${DeclareForm} close=${close} vhost=${vhost} />`);
}

function DeclareForm({ close, vhost: chosen }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState(chosen || "/");
  const [name, setName] = useState("");
  const [type, setType] = useState("classic");
  const [durable, setDurable] = useState(true);
  const [autoDelete, setAutoDelete] = useState(false);
  const [maxLength, setMaxLength] = useState("");
  const [ttl, setTtl] = useState("");
  const [deadLetter, setDeadLetter] = useState("");
  const [more, setMore] = useState("");
  const submit = async () => {
    const values = parseJsonField(more, "Other arguments");
    if (type !== "classic") values["x-queue-type"] = type;
    if (maxLength) values["x-max-length"] = Number(maxLength);
    if (ttl) values["x-message-ttl"] = Number(ttl);
    if (deadLetter) values["x-dead-letter-exchange"] = deadLetter;
    await put(at("queues", vhost, name), { durable: durable || type !== "classic", auto_delete: autoDelete, arguments: values });
    go(["queues", vhost, name]);
  };
  return html`<${Form} submit=${submit} close=${close} label="Add queue" done="Queue ${name} was declared.">
    <${TextField} label="Name" value=${name} onChange=${setName} required maxlength="255" />
    <${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${vhosts} />
    <${SelectField} label="Type" value=${type} onChange=${setType} options=${TYPES} />
    <div class="checks">
      ${type === "classic" && html`<${CheckField} label="Durable" value=${durable} onChange=${setDurable} />`}
      ${type !== "stream" && html`<${CheckField} label="Delete when unused" value=${autoDelete} onChange=${setAutoDelete} />`}
    </div>
    ${type !== "stream" && html`<${TextField} label="Maximum length" type="number" min="0" value=${maxLength} onChange=${setMaxLength} hint="messages (x-max-length)" />
      <${TextField} label="Time to live" type="number" min="0" value=${ttl} onChange=${setTtl} hint="milliseconds (x-message-ttl)" />
      <${TextField} label="Dead-letter exchange" value=${deadLetter} onChange=${setDeadLetter} hint="x-dead-letter-exchange" wide=${true} />`}
    <${AreaField} label="Other arguments" value=${more} onChange=${setMore} rows=${2} hint=${'JSON, such as {"x-max-priority": 10}'} />
  <//>`;
}

// ── one queue ─────────────────────────────────────────────────────────────────────────────────────

const SAMPLE_FIELDS = ["ready", "unacked", "publish", "deliver", "ack"];
const SAMPLES_MAX = 3_600;

// Follows one queue once a second; the samples before come from the node, one every five seconds for ten minutes.
function useQueue(vhost, name) {
  const [state, setState] = useState({ queue: null, error: null, turn: 0 });
  const samples = useRef(null);
  samples.current ??= { at: [], ...Object.fromEntries(SAMPLE_FIELDS.map((each) => [each, []])) };
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let isFirst = true;
    const load = async () => {
      if (document.visibilityState === "visible") {
        const started = Date.now();
        try {
          const history = isFirst ? "?lengths_age=600&lengths_incr=5&msg_rates_age=600&msg_rates_incr=5" : "";
          const queue = await get(at("queues", vhost, name) + history, { signal: abort.signal });
          if (isFirst) fillSamples(samples.current, queue);
          isFirst = false;
          addSample(samples.current, queue, started);
          setState((before) => ({ queue, error: null, turn: before.turn + 1 }));
        } catch (error) {
          if (error.name === "AbortError") return;
          setState((before) => ({ ...before, error }));
        }
      }
      if (!abort.signal.aborted) timer = setTimeout(load, 1_000);
    };
    load();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [vhost, name]);
  return { ...state, samples: samples.current };
}

function fillSamples(samples, queue) {
  const series = {
    ready: queue.messages_ready_details,
    unacked: queue.messages_unacknowledged_details,
    publish: queue.message_stats?.publish_details,
    deliver: queue.message_stats?.deliver_get_details,
    ack: queue.message_stats?.ack_details,
  };
  const times = (series.ready?.samples ?? []).map((each) => each.timestamp).reverse();
  samples.at = times;
  for (const [name, details] of Object.entries(series)) {
    const values = new Map((details?.samples ?? []).map((each) => [each.timestamp, each.sample]));
    samples[name] = times.map((each) => values.get(each) ?? 0);
  }
}

function addSample(samples, queue, now) {
  const last = samples.at[samples.at.length - 1] ?? 0;
  if (now <= last) return;
  const stats = queue.message_stats ?? {};
  const values = { ready: queue.messages_ready, unacked: queue.messages_unacknowledged, publish: stats.publish ?? 0, deliver: stats.deliver_get ?? 0, ack: stats.ack ?? 0 };
  samples.at = [...samples.at, now].slice(-SAMPLES_MAX);
  for (const name of SAMPLE_FIELDS) samples[name] = [...samples[name], values[name]].slice(-SAMPLES_MAX);
}

const QUEUE_RANGES = [["5m", "5 min", 300], ["15m", "10 min", 600], ["1h", "1 h", 3_600]];

export function QueuePage({ route, names: [vhost, name] }) {
  const { queue, error, samples } = useQueue(vhost, name);
  const tab = route.query.tab ?? "charts";
  const trail = [["Queues", ["queues"]]];
  if (!queue) {
    return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} />` : html`<${Loading} />`}<//>`;
  }
  const isStream = queue.type === "stream";
  const tabs = [
    ["charts", "Charts"],
    ["messages", "Messages"],
    ...(isStream ? [] : [["unacked", "Unacknowledged", queue.messages_unacknowledged]]),
    ["live", "Live"],
    ["bindings", "Bindings"],
    ["consumers", "Consumers", queue.consumers],
    ["settings", "Settings"],
    ["publish", "Publish"],
  ];
  const badges = html`<span class="features"><${Badge} kind="accent">${queue.type}<//>${vhost !== "/" && html`<${Badge} title="virtual host">${vhost}<//>`}${queue.policy && html`<a href=${href(["policies"], { filter: queue.policy, vhost })}><${Badge}>policy ${queue.policy}<//></a>`}</span>
    <${Features} durable=${queue.durable} autoDelete=${queue.auto_delete} exclusive=${queue.exclusive} />`;
  const actions = html`
    ${!isStream && html`<button class="button" onClick=${() => openMove(vhost, name, queue)}>Move</button>
      <button class="button" onClick=${() => openReplay(vhost, name)}>Replay</button>
      <button class="button danger" onClick=${() => confirmPurge(vhost, name, queue)}>Purge</button>`}
    <button class="button danger" onClick=${() => confirmDelete(vhost, name, queue)}>Delete</button>`;
  return html`<${Page} title=${name} trail=${trail} badges=${badges} actions=${actions}>
    ${error && html`<${Problem} error=${error} />`}
    ${queue.consumers === 0 && queue.messages > 0 && !isStream && html`<div class="banner warn" role="status"><strong>No consumer.</strong><span>${format.plural(queue.messages_ready, "message")} wait, and no client reads this queue.</span></div>`}
    <${QueueTiles} queue=${queue} samples=${samples} />
    <${Tabs} tabs=${tabs} current=${tab} />
    ${tab === "charts" && html`<${QueueCharts} route=${route} samples=${samples} />`}
    ${tab === "messages" && html`<${MessagesTab} vhost=${vhost} name=${name} isStream=${isStream} query=${route.query} total=${queue.messages} />`}
    ${tab === "unacked" && html`<${UnackedTab} vhost=${vhost} name=${name} query=${route.query} total=${queue.messages_unacknowledged} />`}
    ${tab === "live" && html`<${LiveTab} vhost=${vhost} name=${name} query=${route.query} />`}
    ${tab === "bindings" && html`<${QueueBindings} vhost=${vhost} name=${name} query=${route.query} />`}
    ${tab === "consumers" && (isStream ? html`<${StreamConsumers} queue=${queue} />` : html`<${QueueConsumers} queue=${queue} />`)}
    ${tab === "settings" && html`<${QueueSettings} queue=${queue} />`}
    ${tab === "publish" && html`<${Panel} title="Publish to this queue" id="publish"><${PublishForm} vhost=${vhost} exchange="" routingKey=${name} fixed=${true} /><//>`}
  <//>`;
}

function rateNow(samples, name) {
  const rates = ratesOf(samples.at.slice(-4), samples[name].slice(-4)).filter((each) => each !== null);
  return rates.length ? rates.reduce((one, other) => one + other, 0) / rates.length : 0;
}

const HEAD_PERIOD_MS = 5_000;

// When the first message was published, if its publisher has set a timestamp; null if not, undefined if it is unknown.
function useHead(queue) {
  const [at_, setAt] = useState(undefined);
  const isEmpty = queue.messages_ready === 0;
  useEffect(() => {
    if (isEmpty) return undefined;
    let isGone = false;
    let timer = 0;
    const look = async () => {
      try {
        if (document.visibilityState === "visible") {
          const [head] = await post(at("queues", queue.vhost, queue.name, "peek"), { count: 1, truncate: 0 });
          if (!isGone && head) setAt(head.properties.timestamp ?? null);
        }
      } catch {
        return; // the user may not read the queue
      }
      if (!isGone) timer = setTimeout(look, HEAD_PERIOD_MS);
    };
    look();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [queue.vhost, queue.name, isEmpty]);
  return isEmpty ? undefined : at_;
}

function QueueTiles({ queue, samples }) {
  const stats = queue.message_stats ?? {};
  const head = useHead(queue);
  return html`<div class="tiles">
    <${Tile} label="Ready" value=${format.brief(queue.messages_ready)} hint="waiting" />
    <${Tile} label="Unacknowledged" value=${format.brief(queue.messages_unacknowledged)} hint="with consumers" />
    <${Tile} label="Consumers" value=${format.count(queue.consumers)} hint=${queue.idle_since ? `unused ${format.time(Date.parse(queue.idle_since))}` : "reading"} />
    <${Tile} label="Publish" value=${format.rate(rateNow(samples, "publish"))} hint="${format.brief(stats.publish ?? 0)} in all" />
    <${Tile} label="Deliver" value=${format.rate(rateNow(samples, "deliver"))} hint="${format.brief(stats.deliver_get ?? 0)} in all" />
    <${Tile} label="Acknowledge" value=${format.rate(rateNow(samples, "ack"))} hint="${format.brief(stats.ack ?? 0)} in all" />
    <${Tile} label="First message" value=${head ? format.duration(Math.max(0, Date.now() / 1000 - head)) : format.NONE} hint=${head ? "by its timestamp" : head === null ? "has no timestamp" : "none is ready"} />
    <${Tile} label="Redelivered" value=${format.brief(stats.redeliver ?? 0)} hint="came back" />
  </div>`;
}

function QueueCharts({ route, samples }) {
  const range = route.query.range ?? "15m";
  const seconds = (QUEUE_RANGES.find(([each]) => each === range) ?? QUEUE_RANGES[1])[2];
  const chart = route.query.chart;
  const charts = [
    { id: "depth", title: "Messages in the queue", series: [
      { label: "Ready", color: "ready", values: samples.ready, fill: true },
      { label: "Unacknowledged", color: "unacked", values: samples.unacked },
    ] },
    { id: "queue-rates", title: "Message rates", unit: format.rate, series: [
      { label: "Publish", color: "publish", values: ratesOf(samples.at, samples.publish) },
      { label: "Deliver", color: "deliver", values: ratesOf(samples.at, samples.deliver) },
      { label: "Acknowledge", color: "ack", values: ratesOf(samples.at, samples.ack) },
    ] },
  ];
  const shown = charts.filter((each) => !chart || each.id === chart);
  return html`<div class="toolbar"><span class="grow"></span><${RangePicker} current=${range} ranges=${QUEUE_RANGES} /></div>
    <div class="grid">${(shown.length ? shown : charts).map((each) => html`<${Chart} key=${each.id} ...${each} times=${samples.at} seconds=${seconds} />`)}</div>`;
}

// ── bindings, consumers, settings ─────────────────────────────────────────────────────────────────

function QueueBindings({ vhost, name, query }) {
  const { data, error, reload } = useLoaded(at("queues", vhost, name, "bindings"));
  if (!data) return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const own = data.filter((each) => each.source !== "");
  return html`<${Panel} title="Bindings" id="bindings" actions=${html`<button class="button small" onClick=${() => openBind(vhost, name, reload)}>Add binding</button>`}>
    <p class="muted">Every queue is bound to the default exchange by its name.</p>
    ${own.length ? html`<${Bindings} bindings=${own} vhost=${vhost} focus=${["queue", name]} query=${query} reload=${reload} />` : html`<${Empty} title="No other binding." command=${`recado bindings declare amq.topic ${format.shell(name)} "orders.#"`}>An exchange sends messages here after it is bound.<//>`}
  <//>`;
}

function openBind(vhost, queue, reload) {
  openDialog(`Bind an exchange to ${queue}`, (close) => html`<${BindForm} vhost=${vhost} destination=${queue} kind="q" close=${close} reload=${reload} />`);
}

export function BindForm({ vhost, source: givenSource, destination: givenDestination, kind: givenKind, close, reload }) {
  const [source, setSource] = useState(givenSource ?? "");
  const [destination, setDestination] = useState(givenDestination ?? "");
  const [kind, setKind] = useState(givenKind ?? "q");
  const [key, setKey] = useState("");
  const [values, setValues] = useState("");
  const submit = async () => {
    await post(at("bindings", vhost, "e", source, kind, destination), { routing_key: key, arguments: parseJsonField(values, "Arguments") });
    reload();
  };
  return html`<${Form} submit=${submit} close=${close} label="Add binding" done="The binding was added.">
    ${givenSource === undefined && html`<${TextField} label="From exchange" value=${source} onChange=${setSource} required />`}
    ${givenDestination === undefined && html`<${SelectField} label="To" value=${kind} onChange=${setKind} options=${[["q", "Queue"], ["e", "Exchange"]]} />
      <${TextField} label="Name" value=${destination} onChange=${setDestination} required />`}
    <${TextField} label="Routing key" value=${key} onChange=${setKey} hint="in a topic exchange, * is one word and # any number" />
    <${AreaField} label="Arguments" value=${values} onChange=${setValues} rows=${2} hint=${'JSON; for a headers exchange {"x-match": "all", "type": "order"}'} />
  <//>`;
}

function StreamConsumers({ queue }) {
  const { data, error, reload } = useLoaded(at("queues", queue.vhost, queue.name, "offsets"), 2_000);
  if (!data) return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`;
  return html`<div class="tiles">
      <${Tile} label="First offset" value=${format.count(data.first_offset)} hint=${data.first_offset ? "older messages were removed by retention" : "nothing was removed yet"} />
      <${Tile} label="Next offset" value=${format.count(data.next_offset)} hint=${data.durable_offset < data.next_offset ? `on disk up to ${format.count(data.durable_offset)}` : "all on disk"} />
      <${Tile} label="Largest lag" value=${format.count(Math.max(0, ...data.consumers.map((each) => each.lag)))} hint="messages behind the last one" />
    </div>
    <${Panel} title="Consumers" id="consumers" flush=${data.consumers.length > 0}>${data.consumers.length
      ? html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
        <thead><tr><th scope="col">Tag</th><th scope="col">Channel</th><th scope="col" class="hide-s">User</th><th scope="col" class="number">Next offset</th><th scope="col" class="number">Lag</th></tr></thead>
        <tbody>${data.consumers.map((each) => html`<tr key=${`${each.channel_details?.name}\n${each.consumer_tag}`}>
          <td><code><${Name}>${each.consumer_tag}<//></code></td>
          <td>${each.channel_details?.name ? html`<a href=${href(["channels", each.channel_details.name])}><${Name}>${each.channel_details.name}<//></a>` : format.NONE}</td>
          <td class="hide-s">${each.channel_details?.user}</td>
          <td class="number">${format.count(each.next_offset)}</td><td class="number">${format.count(each.lag)}</td>
        </tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No client reads this stream." command=${`recado streams peek ${format.shell(queue.name)}`} />`}<//>`;
}

function QueueConsumers({ queue }) {
  const consumers = queue.consumer_details;
  return html`<${Panel} title="Consumers" id="consumers" flush=${consumers.length > 0}>
    ${consumers.length
      ? html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
        <thead><tr><th scope="col">Tag</th><th scope="col">Channel</th><th scope="col" class="hide-s">User</th><th scope="col" class="number">Prefetch</th><th scope="col" class="hide-s">Acks</th><th scope="col">State</th></tr></thead>
        <tbody>${consumers.map((each) => html`<tr key=${`${each.channel_details?.name}\n${each.consumer_tag}`}>
          <td><code><${Name}>${each.consumer_tag}<//></code></td>
          <td>${each.channel_details?.name ? html`<a href=${href(["channels", each.channel_details.name])}><${Name}>${each.channel_details.name}<//></a>` : format.NONE}</td>
          <td class="hide-s">${each.channel_details?.user}</td>
          <td class="number">${each.prefetch_count || "unlimited"}</td>
          <td class="hide-s">${each.ack_required ? "manual" : "automatic"}</td>
          <td>${each.active === false ? html`<${Badge} kind="warn">waiting<//>` : html`<${Badge} kind="good">active<//>`}${each.exclusive && html` <${Badge}>exclusive<//>`}</td>
        </tr>`)}</tbody></table></div>`
      : html`<${Empty} title="No client consumes from this queue." command=${`recado tap ${format.shell(queue.name)}`}>This command shows its messages without taking them.<//>`}
  <//>`;
}

function QueueSettings({ queue }) {
  const effective = Object.entries(queue.effective_policy_definition ?? {});
  return html`<div class="columns">
    <${Panel} title="Declared" id="declared" actions=${!queue.exclusive && html`<button class="button small" onClick=${() => openAlter(queue)}>Alter</button>`}><dl class="facts">
      <dt>Type</dt><dd>${queue.type}</dd>
      <dt>Durable</dt><dd>${queue.durable ? "yes: survives a restart" : "no"}</dd>
      <dt>Auto-delete</dt><dd>${queue.auto_delete ? "yes: deleted with its last consumer" : "no"}</dd>
      <dt>Exclusive</dt><dd>${queue.exclusive ? "yes: of one connection" : "no"}</dd>
      <dt>Arguments</dt><dd><${Arguments} values=${queue.arguments} /></dd>
      <dt>Node</dt><dd>${queue.node}</dd>
    </dl><//>
    <${Panel} title="By policy" id="by-policy"><dl class="facts">
      <dt>Policy</dt><dd>${queue.policy ? html`<a href=${href(["policies"], { filter: queue.policy })}><${Name}>${queue.policy}<//></a>` : html`<span class="muted">none matches</span>`}</dd>
      <dt>Operator policy</dt><dd>${queue.operator_policy ?? html`<span class="muted">none matches</span>`}</dd>
      ${effective.map(([name, value]) => html`<dt><code>${name}</code></dt><dd><code>${format.text(value)}</code></dd>`)}
    </dl>
    ${!queue.policy && isPolicymaker() && html`<p class="muted">A policy changes limits, expiry and dead-lettering without declaring the queue again.</p>`}<//>
  </div>`;
}

function openAlter(queue) {
  openDialog(`Alter ${queue.name}`, (close) => html`<${AlterForm} queue=${queue} close=${close} />`);
}

// First a dry run, whose answer is what the second press of the button does.
function AlterForm({ queue, close }) {
  const isStream = queue.type === "stream";
  const [type, setType] = useState(queue.type);
  const [durable, setDurable] = useState(queue.durable);
  const [autoDelete, setAutoDelete] = useState(queue.auto_delete);
  const { "x-queue-type": _, ...given } = queue.arguments;
  const [values, setValues] = useState(JSON.stringify(given, null, 2));
  const [preview, setPreview] = useState(null);
  const edit = (set) => (value) => {
    set(value);
    setPreview(null);
  };
  const body = () => {
    const altered = { arguments: parseJsonField(values, "Arguments") };
    if (!isStream) Object.assign(altered, { type, durable: durable || type === "quorum", auto_delete: autoDelete });
    return altered;
  };
  const path = at("queues", queue.vhost, queue.name, "alter");
  const submit = async () => {
    if (preview === null) {
      setPreview((await post(`${path}?dry_run=true`, body())).changes);
    } else {
      await post(path, body());
      notify(`${queue.name} was altered.`);
      close();
    }
  };
  const changes = Object.entries(preview ?? {});
  return html`<${Form} submit=${submit} label=${preview === null ? "Show what would change" : `Alter ${format.plural(changes.length, "setting")}`} danger=${changes.length > 0}>
    ${!isStream && html`<${SelectField} label="Type" value=${type} onChange=${edit(setType)} options=${TYPES.slice(0, 2)} />
      <div class="checks">
        ${type === "classic" && html`<${CheckField} label="Durable" value=${durable} onChange=${edit(setDurable)} />`}
        <${CheckField} label="Delete when unused" value=${autoDelete} onChange=${edit(setAutoDelete)} />
      </div>`}
    <${AreaField} label="Arguments" value=${values} onChange=${edit(setValues)} rows=${5} hint="all arguments, as JSON: those that are left out are removed" />
    ${preview !== null && html`<div class="wide" role="status">${changes.length
      ? html`<dl class="facts">${changes.map(([name, each]) => html`<dt><code>${name}</code></dt><dd><code>${format.text(each.before)}</code> → <code>${format.text(each.after)}</code></dd>`)}</dl>
        <p class="muted">Messages stay. Clients that declare the queue need the new settings from then on.</p>`
      : html`<p>Nothing would change.</p>`}</div>`}
  <//>`;
}

// ── what can be done to a queue ───────────────────────────────────────────────────────────────────

function confirmPurge(vhost, name, queue) {
  confirm({
    title: `Purge ${name}?`,
    label: `Purge ${format.plural(queue.messages_ready, "message")}`,
    lines: [
      `${format.plural(queue.messages_ready, "ready message")} of the queue ${name} in ${vhost} will be lost.`,
      queue.messages_unacknowledged > 0 && `${format.plural(queue.messages_unacknowledged, "unacknowledged message")} stay with their consumers.`,
    ],
    submit: () => remove(at("queues", vhost, name, "contents")),
    done: `${name} was purged.`,
  });
}

function confirmDelete(vhost, name, queue) {
  confirm({
    title: `Delete ${name}?`,
    label: "Delete queue",
    lines: [
      `The queue ${name} in ${vhost}, its bindings and ${format.plural(queue.messages, "message")} will be lost.`,
      queue.consumers > 0 && `${format.plural(queue.consumers, "consumer")} will be cancelled.`,
    ],
    submit: async () => {
      await remove(at("queues", vhost, name));
      go(["queues"]);
    },
    done: `${name} was deleted.`,
  });
}

function openMove(vhost, name, queue) {
  openDialog(`Move messages of ${name}`, (close) => html`<${MoveForm} vhost=${vhost} name=${name} queue=${queue} close=${close} />`);
}

function MoveForm({ vhost, name, queue, close }) {
  const [destination, setDestination] = useState("");
  const [selector, setSelector] = useState("");
  const [limit, setLimit] = useState("");
  const submit = () => {
    const body = { destination, selector };
    if (limit) body.count = Number(limit);
    return post(at("queues", vhost, name, "move"), body);
  };
  return html`<${Form} submit=${submit} close=${close} label="Move messages"
    done=${(answer) => `${format.plural(answer.moved, "message")} moved, ${format.count(answer.left)} left.${answer.reason ? ` ${answer.reason}` : ""}`}>
    <p class="wide muted">${format.plural(queue.messages_ready, "ready message")} can be moved. Those with consumers stay.</p>
    <${TextField} label="To queue" value=${destination} onChange=${setDestination} required />
    <${TextField} label="At most" type="number" min="1" value=${limit} onChange=${setLimit} hint="messages; all if empty" />
    <${TextField} label="Only if" value=${selector} onChange=${setSelector} wide=${true} hint=${"a selector, such as json.price < 10 and headers.type = 'order'"} />
  <//>`;
}

function openReplay(vhost, name) {
  openDialog(`Replay dead letters of ${name}`, (close) => html`<${ReplayForm} vhost=${vhost} name=${name} close=${close} />`);
}

function ReplayForm({ vhost, name, close }) {
  const [selector, setSelector] = useState("");
  const [limit, setLimit] = useState("");
  const [replays, setReplays] = useState("");
  const submit = () => {
    const body = { selector };
    if (limit) body.count = Number(limit);
    if (replays) body.max_replays = Number(replays);
    return post(at("queues", vhost, name, "replay"), body);
  };
  const tell = (answer) => {
    const kept = Object.entries(answer.kept).map(([reason, number]) => `${number} ${reason.replaceAll("_", " ")}`);
    return `${format.plural(answer.replayed, "message")} replayed, ${format.count(answer.left)} left${kept.length ? ` (kept: ${kept.join(", ")})` : ""}.`;
  };
  return html`<${Form} submit=${submit} close=${close} label="Replay messages" done=${tell}>
    <p class="wide muted">Each dead letter returns to the queue where it died, with its routing key. Other messages stay.</p>
    <${TextField} label="At most" type="number" min="1" value=${limit} onChange=${setLimit} hint="messages; all if empty" />
    <${TextField} label="Replayed at most" type="number" min="1" value=${replays} onChange=${setReplays} hint="times before; others stay" />
    <${TextField} label="Only if" value=${selector} onChange=${setSelector} wide=${true} hint="a selector, such as headers.tenant = 'acme'" />
  <//>`;
}

