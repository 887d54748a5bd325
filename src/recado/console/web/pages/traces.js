// Traces: which messages are followed, and the path of one of them as a picture and as a list of events.
import { at, get, post, remove } from "../api.js";
import { Badge, confirm, Empty, exchangeLabel, exchangeSegment, Form, Loading, Name, openDialog, Page, Panel, Problem, SelectField, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useState } from "../lib.js";
import { useLoaded } from "../live.js";
import { go, href } from "../router.js";
import { FilterField, parseSort, sortRows, Table } from "../table.js";
import { ListPage } from "./lists.js";
import { MessageBody } from "./message-body.js";
import { useVhosts } from "./vhosts.js";

const PERIOD_MS = 1_500;
const DURATIONS = [["60", "1 minute"], ["300", "5 minutes"], ["900", "15 minutes"], ["3600", "1 hour"]];
const END_KINDS = { acknowledged: "good", delivered: "accent", entered: "", requeued: "warn", published: "", rejected: "bad", forwarded: "warn", dropped: "bad", purged: "bad", refused: "bad", unroutable: "bad" };
const REASONS = { rejected: "rejected", expired: "expired", maxlen: "the queue was full", delivery_limit: "delivered too often", delayed: "after the delay", moved: "moved", deleted: "deleted" };

// ── traces ────────────────────────────────────────────────────────────────────────────────────────

const describeFilter = (trace) =>
  [trace.message_id && `message id ${trace.message_id}`, trace.correlation_id && `correlation id ${trace.correlation_id}`, trace.selector].filter(Boolean).join(" and ") || "all messages";

const COLUMNS = [
  { id: "started", label: "Started", value: (each) => each.started_at, cell: (each) => html`<a href=${href(["traces", each.id])}>${format.time(each.started_at)}</a>`, width: "w-m" },
  { id: "what", label: "Messages with", value: describeFilter, cell: (each) => html`<${Name}>${describeFilter(each)}<//>` },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, cell: (each) => html`<${Name} muted=${true}>${each.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "user", label: "By", value: (each) => each.user, cell: (each) => html`<${Name}>${each.user}<//>`, width: "w-m", hide: "hide-m" },
  { id: "found", label: "Found", number: true, value: (each) => each.chosen, cell: (each) => format.count(each.chosen), width: "w-s" },
  { id: "state", label: "State", value: (each) => String(each.running), cell: (each) => (each.running ? html`<${Badge} kind="accent">until ${format.time(each.ends_at)}<//>` : html`<${Badge}>ended ${format.time(each.ends_at)}<//>`), width: "w-l", hide: "hide-s" },
];

export function TracesPage({ route }) {
  return html`<${ListPage} title="Traces" path="api/traces" route=${route} columns=${COLUMNS} sort="-started" period=${2_000}
    textOf=${(each) => `${describeFilter(each)} ${each.vhost} ${each.user}`} rowKey=${(each) => each.id}
    actions=${() => html`<button class="button primary" onClick=${openStart}>Start a trace</button>`}
    empty=${html`<${Empty} title="No message is followed.">A trace shows where messages go that are published after its start: queues, consumers, dead letters, replies. It ends by itself.<//>`} />`;
}

function openStart() {
  openDialog("Start a trace", (close) => html`<${StartForm} close=${close} />`);
}

function StartForm({ close }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState("/");
  const [messageId, setMessageId] = useState("");
  const [correlationId, setCorrelationId] = useState("");
  const [selector, setSelector] = useState("");
  const [duration, setDuration] = useState("300");
  const submit = async () => {
    const started = await post("api/traces", { vhost, message_id: messageId, correlation_id: correlationId, selector, duration: Number(duration) });
    go(["traces", started.id]);
  };
  return html`<${Form} submit=${submit} close=${close} label="Start trace" done="The trace runs.">
    <${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${vhosts} />
    <${SelectField} label="For" value=${duration} onChange=${setDuration} options=${DURATIONS} />
    <${TextField} label="Message id" value=${messageId} onChange=${setMessageId} maxlength="255" hint="exactly this one" />
    <${TextField} label="Correlation id" value=${correlationId} onChange=${setCorrelationId} maxlength="255" hint="a request and its reply" />
    <${TextField} label="Only if" value=${selector} onChange=${setSelector} wide=${true} hint="a selector, such as exchange = 'orders' and json.price > 100" />
    <p class="wide muted">The last 500 messages are kept. While it runs, publishing and delivering in this virtual host cost the node more.</p>
  <//>`;
}

const MESSAGE_COLUMNS = [
  { id: "at", label: "Published", value: (each) => each.published_at, cell: (each) => html`<a href=${href(["traces", each.trace, String(each.number)])}>${format.timeMs(each.published_at)}</a>`, width: "w-l" },
  { id: "id", label: "Message id", value: (each) => each.message_id ?? "", cell: (each) => (each.message_id ? html`<${Name}>${each.message_id}<//>` : html`<span class="muted">none</span>`) },
  { id: "correlation", label: "Correlation id", value: (each) => each.correlation_id ?? "", cell: (each) => (each.correlation_id ? html`<${Name}>${each.correlation_id}<//>` : ""), hide: "hide-m" },
  { id: "key", label: "Published to", value: (each) => `${each.exchange} ${each.routing_key}`, cell: (each) => html`<bdi>${exchangeLabel(each.exchange)}</bdi> <code><bdi>${each.routing_key}</bdi></code>`, hide: "hide-s" },
  { id: "queues", label: "Queues", sortable: false, value: (each) => each.queues.length, cell: (each) => html`<bdi title=${each.queues.join(", ")}>${each.queues.join(", ")}</bdi>`, hide: "hide-m" },
  { id: "last", label: "Last", value: (each) => each.last_event.kind, cell: (each) => html`<${Badge} kind=${END_KINDS[each.last_event.kind]}>${each.last_event.kind}<//>`, width: "w-m" },
];

export function TracePage({ route, names: [id] }) {
  const [period, setPeriod] = useState(PERIOD_MS);
  const { data, error, reload } = useLoaded(at("traces", id), period);
  const trail = [["Traces", ["traces"]]];
  if (!data) return html`<${Page} title="Trace" trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  if (!data.running && period) setPeriod(0);
  const { filter = "" } = route.query;
  const wanted = filter.toLowerCase();
  const all = data.messages.map((each) => ({ ...each, trace: id }));
  const sort = parseSort(route.query.sort, MESSAGE_COLUMNS, "-at");
  const rows = sortRows(all.filter((each) => !wanted || [each.message_id, each.correlation_id, each.routing_key, ...each.queues].some((text) => text?.toLowerCase().includes(wanted))), MESSAGE_COLUMNS, sort);
  const stop = async () => {
    await post(at("traces", id, "stop"), {});
    reload();
  };
  const forget = () => confirm({
    title: "Forget this trace?",
    label: "Forget trace",
    lines: [`What it has found about ${format.plural(data.chosen, "message")} will be lost.`],
    submit: async () => {
      await remove(at("traces", id));
      go(["traces"]);
    },
    done: "The trace was forgotten.",
  });
  return html`<${Page} title=${describeFilter(data)} trail=${trail} badges=${html`<${Badge} kind=${data.running ? "accent" : ""}>${data.running ? `runs until ${format.time(data.ends_at)}` : `ended ${format.time(data.ends_at)}`}<//>`}
      actions=${html`${data.running && html`<button class="button" onClick=${stop}>Stop</button>`}<button class="button danger" onClick=${forget}>Forget</button>`}>
    <div class="tiles">
      <${Tile} label="Found" value=${format.brief(data.chosen)} hint="messages since the start" />
      <${Tile} label="Kept" value=${format.brief(data.message_count)} hint=${data.forgotten ? `${format.count(data.forgotten)} older ones forgotten` : "all of them"} />
      <${Tile} label="Skipped" value=${format.brief(data.skipped)} tone=${data.skipped ? "warn" : ""} hint=${data.skipped ? "too many at once to look at" : "none"} />
      <${Tile} label="Virtual host" value=${data.vhost} hint="started by ${data.user}" />
    </div>
    <div class="toolbar"><${FilterField} value=${filter} label="Filter messages by id, key or queue" shown=${rows.length} total=${all.length} /></div>
    <section class="panel bare"><${Table} rows=${rows} columns=${MESSAGE_COLUMNS} rowKey=${(each) => each.number} sort=${sort} label="Messages"
      empty=${all.length ? html`<${Empty} title="Nothing matches the filter." />` : html`<${Empty} title=${data.running ? "No message yet." : "No message was found."}>Messages are followed from the moment they are published after the start of the trace.<//>`} /></section>
  <//>`;
}

// ── the path of a message ─────────────────────────────────────────────────────────────────────────

export function PathPage({ names: [id, number] }) {
  const { data, error, reload } = useLoaded(at("traces", id, "messages", number), PERIOD_MS);
  const trail = [["Traces", ["traces"]], ["Trace", ["traces", id]]];
  if (!data) return html`<${Page} title=${`Message ${number}`} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const message = data.messages.find((each) => each.number === data.number);
  const events = data.messages.flatMap((each) => each.events.map((event, index) => ({ ...event, number: each.number, index })));
  // Events of one millisecond stay in the order of each message.
  events.sort((one, other) => one.at - other.at || (one.number === other.number ? one.index - other.index : one.number - other.number));
  const several = data.messages.length > 1;
  const start = events[0].at;
  const title = message.message_id ?? message.correlation_id ?? `Message ${number}`;
  return html`<${Page} title=${title} trail=${trail} badges=${several && html`<${Badge} title="they have an id in common">${data.messages.length} messages<//>`}>
    <${Panel} title="Path" id="path"><${PathDiagram} messages=${data.messages} /><//>
    <${Panel} title="What happened" id="events" flush=${true}>
      <div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
        <thead><tr><th scope="col">Time</th><th scope="col" class="number">After</th>${several && html`<th scope="col">Message</th>`}<th scope="col">Event</th><th scope="col">Where</th></tr></thead>
        <tbody>${events.map((event) => html`<tr key=${`${event.number} ${event.index}`}>
          <td>${format.timeMs(event.at)}</td><td class="number">${event.at === start ? "" : format.duration((event.at - start) / 1000)}</td>
          ${several && html`<td>${event.number === data.number ? html`<strong>${event.number}</strong>` : html`<a href=${href(["traces", id, String(event.number)])}>${event.number}</a>`}</td>`}
          <td><${Badge} kind=${END_KINDS[event.kind]}>${event.kind}<//></td><td><${EventText} event=${event} /></td>
        </tr>`)}</tbody></table></div>
      ${data.messages.some((each) => each.omitted_events) && html`<p class="muted pad">Of many events, only the first and the last are kept.</p>`}
    <//>
    ${data.messages.map((each) => html`<${Content} key=${each.number} message=${each} several=${several} />`)}
  <//>`;
}

const queueLink = (name) => html`<bdi>${name}</bdi>`;

function EventText({ event }) {
  const where = event.queue != null && html`${queueLink(event.queue)} <span class="muted">at offset ${format.count(event.offset)}</span>`;
  switch (event.kind) {
    case "published":
      return html`to <bdi>${exchangeLabel(event.exchange)}</bdi> with <code><bdi>${event.routing_key || "(empty key)"}</bdi></code> by ${event.user} <span class="muted"><bdi>${event.connection}</bdi></span>${event.queue_count > 0 ? html`, routed to ${event.queue_count === 1 ? queueLink(event.queues[0]) : format.plural(event.queue_count, "queue")}` : ""}`;
    case "entered":
      return html`the queue ${where}`;
    case "delivered":
      return html`from ${where} to ${event.consumer != null ? html`consumer <code><bdi>${event.consumer}</bdi></code>` : "basic.get"} <span class="muted"><bdi>${event.connection}</bdi></span>${event.redelivered ? ", again" : ""}${event.is_settled ? ", without acknowledgement" : ""}`;
    case "forwarded":
      return html`from ${where} ${event.exchange != null ? html`to the exchange <bdi>${exchangeLabel(event.exchange)}</bdi>` : "to another queue"}: ${REASONS[event.reason] ?? event.reason}`;
    case "refused":
      return html`by ${queueLink(event.queue)}: ${event.reason}`;
    case "unroutable":
      return html`no queue is bound: ${event.reason}`;
    default:
      return html`${where || ""}${event.reason ? `: ${REASONS[event.reason] ?? event.reason}` : ""}`;
  }
}

function Content({ message, several }) {
  const title = several ? `Content of message ${message.number}` : "Content";
  if (message.content_refusal) return html`<${Panel} title=${title} id="content-${message.number}"><p class="muted">The content is not shown: ${message.content_refusal}</p><//>`;
  const isShortened = message.payload_encoding === "string" ? new Blob([message.payload]).size < message.payload_bytes : message.payload_bytes > 4_096;
  return html`<${Panel} title=${title} id="content-${message.number}"><div class="columns">
    <dl class="facts">${Object.entries(message.properties).map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd><bdi>${format.text(value)}</bdi></dd>`)}<dt>size</dt><dd>${format.bytes(message.payload_bytes)}</dd></dl>
    <div>${message.masked?.includes("body") ? html`<p class="muted">The body is not shown to this user.</p>` : html`${isShortened && html`<p class="muted">The first part of ${format.bytes(message.payload_bytes)}.</p>`}<${MessageBody} message=${message} label=${`Body of message ${message.number}`} />`}</div>
  </div><//>`;
}

// ── the picture ───────────────────────────────────────────────────────────────────────────────────

const BOX_WIDTH = 154;
const BOX_HEIGHT = 44;
const COLUMN_GAP = 96;
const ROW_GAP = 26;
const NAME_MAX = 20;
const KEY_MAX = 13;
const SCALE_MIN = 0.75; // a longer path is shrunk to the width of the page, as far as it can be read

const cut = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);

// The places that messages have passed, and the ways between them, in columns from left to right.
export function layOut(messages) {
  const places = new Map();
  const ways = new Map();
  const place = (id, kind, name, from, hint = "") => {
    if (!places.has(id)) places.set(id, { id, kind, name, hint, column: from ? from.column + 1 : 0, state: "" });
    return places.get(id);
  };
  const way = (from, to, label, state = "") => {
    const id = `${from.id}\t${to.id}`;
    const known = ways.get(id);
    if (!known) ways.set(id, { from, to, labels: [label], state });
    else if (!known.labels.includes(label)) known.labels.push(label);
  };
  for (const message of messages) {
    const forwarded = []; // queues from which the message goes to another one, without an exchange
    for (const event of message.events) {
      const queue = event.queue != null ? places.get(`queue ${event.queue}`) : null;
      if (event.kind === "published") {
        const client = places.get(`client ${event.connection}`) ?? place(`publisher ${event.connection}`, "client", event.user, null, event.connection);
        const exchange = place(`exchange ${message.number} ${event.exchange}`, "exchange", exchangeLabel(event.exchange), client);
        way(client, exchange, event.routing_key);
      } else if (event.kind === "entered") {
        const from = forwarded.shift() ?? places.get(`exchange ${message.number} ${event.exchange}`) ?? null;
        const entered = place(`queue ${event.queue}`, "queue", event.queue, from);
        if (from) way(from, entered, from.kind === "queue" ? "moved" : "");
      } else if (event.kind === "delivered" && queue) {
        const client = place(`client ${event.connection}`, "client", event.consumer ?? "basic.get", queue, event.connection);
        way(queue, client, event.redelivered ? "again" : "delivered");
        if (event.is_settled) client.state = "good";
      } else if (event.kind === "acknowledged" && queue) {
        for (const each of ways.values()) if (each.from === queue && each.to.kind === "client") each.to.state = "good";
      } else if (event.kind === "requeued" && queue) {
        queue.hint = "requeued";
      } else if (event.kind === "forwarded" && queue) {
        if (event.exchange == null) forwarded.push(queue);
        else way(queue, place(`exchange ${message.number} ${event.exchange}`, "exchange", exchangeLabel(event.exchange), queue), REASONS[event.reason] ?? event.reason, "bad");
      } else if (["dropped", "purged"].includes(event.kind) && queue) {
        way(queue, place(`end ${event.kind} ${event.queue}`, "end", REASONS[event.reason] ?? event.reason, queue), "", "bad");
      } else if (event.kind === "refused" || event.kind === "unroutable") {
        const exchange = [...places.values()].filter((each) => each.kind === "exchange").at(-1);
        if (exchange) way(exchange, place(`end ${event.kind} ${event.queue ?? ""}`, "end", event.kind === "refused" ? `${event.queue}: full` : event.reason, exchange), "", "bad");
      }
    }
  }
  return { places: [...places.values()], ways: [...ways.values()] };
}

function PathDiagram({ messages }) {
  const { places, ways } = layOut(messages);
  const columns = [];
  for (const each of places) (columns[each.column] ??= []).push(each);
  const rows = Math.max(...columns.map((each) => each.length));
  const height = rows * (BOX_HEIGHT + ROW_GAP) + ROW_GAP;
  const width = columns.length * BOX_WIDTH + (columns.length - 1) * COLUMN_GAP + 4;
  columns.forEach((column, x) => column.forEach((each, y) => {
    each.x = 2 + x * (BOX_WIDTH + COLUMN_GAP);
    each.y = ((y + 0.5) * height) / column.length - BOX_HEIGHT / 2;
  }));
  const text = ways.map((each) => `${each.from.name} to ${each.to.name}`).join(", ");
  return html`<div class="diagram path" tabindex="0" role="img" aria-label="The path: ${text}; the table below has the same">
    <svg viewBox="0 0 ${width} ${height}" style=${{ width: "100%", maxWidth: `${width}px`, minWidth: `${Math.round(width * SCALE_MIN)}px` }} aria-hidden="true">
      <defs><marker id="path-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0.5L8 4L0 7.5z" /></marker></defs>
      ${ways.map((each) => html`<${Way} key=${`${each.from.id}\t${each.to.id}`} way=${each} />`)}
      ${places.map((each) => html`<g key=${each.id} class="${each.kind} ${each.state}"><title>${each.name} ${each.hint}</title>
        <rect x=${each.x} y=${each.y} width=${BOX_WIDTH} height=${BOX_HEIGHT} rx=${each.kind === "client" ? 22 : 6} />
        <text x=${each.x + BOX_WIDTH / 2} y=${each.y + 19} text-anchor="middle">${cut(each.name, NAME_MAX)}</text>
        <text class="kind" x=${each.x + BOX_WIDTH / 2} y=${each.y + 35} text-anchor="middle">${each.kind === "end" ? "" : cut(kindOf(each), NAME_MAX + 4)}</text></g>`)}
    </svg></div>`;
}

function kindOf(place) {
  if (place.kind !== "client") return place.hint || place.kind;
  if (!place.id.startsWith("client")) return place.hint.split(" ")[0];
  return `${place.state === "good" ? "✓ " : ""}${place.hint.split(" ")[0]}`;
}

function Way({ way: { from, to, labels, state } }) {
  const isBack = to.x <= from.x;
  const x1 = isBack ? from.x + BOX_WIDTH / 2 : from.x + BOX_WIDTH;
  const y1 = isBack ? from.y + BOX_HEIGHT : from.y + BOX_HEIGHT / 2;
  const x2 = isBack ? to.x + BOX_WIDTH / 2 : to.x - 2;
  const y2 = isBack ? to.y + BOX_HEIGHT + 2 : to.y + BOX_HEIGHT / 2;
  const bend = COLUMN_GAP / 2;
  const d = isBack ? `M${x1} ${y1}C${x1} ${y1 + 44} ${x2} ${y2 + 44} ${x2} ${y2}` : `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
  const label = labels.filter(Boolean).join(", ");
  const x = (x1 + x2) / 2;
  const y = isBack ? Math.max(y1, y2) + 30 : (y1 + y2) / 2 - 7;
  return html`<path class=${state} d=${d} marker-end="url(#path-arrow)" />${label && html`<text class="key ${state}" x=${x} y=${y} text-anchor="middle"><title>${label}</title>${cut(label, KEY_MAX)}</text>`}`;
}
