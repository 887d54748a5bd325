// Is the node healthy, what passes through it, and which queues are busy?
import { get, session } from "../api.js";
import { Chart, RangePicker, rangeSeconds, Sparkline } from "../chart.js";
import { Badge, Empty, Loading, Name, Page, Panel, Problem, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useState } from "../lib.js";
import { nodeSeries, queueStore, ratesOf, useLive, useLoaded } from "../live.js";
import { href } from "../router.js";

const BUSIEST_COUNT = 10;
const LAG_WARN_S = 0.2;
const NEAR_LIMIT = 0.85;

export function OverviewPage({ route }) {
  return session.is_monitor ? html`<${NodeOverview} route=${route} />` : html`<${OwnOverview} />`;
}

// For users without the tag monitoring: what they may see of their vhosts.
function OwnOverview() {
  const { data, error, reload } = useLoaded("api/overview");
  if (!data) return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const { queue_totals: totals, message_stats: stats, object_totals: objects } = data;
  const rate = (name) => format.rate(stats[`${name}_details`]?.rate ?? 0);
  return html`<${Page} title="Overview">
    <div class="tiles">
      <${Tile} label="Ready" value=${format.brief(totals.messages_ready)} link=${href(["queues"], { sort: "-ready" })} />
      <${Tile} label="Unacknowledged" value=${format.brief(totals.messages_unacknowledged)} link=${href(["queues"], { sort: "-unacked" })} />
      <${Tile} label="Publish" value=${rate("publish")} />
      <${Tile} label="Deliver" value=${rate("deliver_get")} />
      <${Tile} label="Acknowledge" value=${rate("ack")} />
      <${Tile} label="Queues" value=${format.count(objects.queues)} link=${href(["queues"])} />
      <${Tile} label="Your connections" value=${format.count(objects.connections)} link=${href(["connections"])} />
    </div>
    <${Busiest} />
  <//>`;
}

function useMinutes(isWanted) {
  const [columns, setColumns] = useState(null);
  useEffect(() => {
    if (!isWanted) return undefined;
    const abort = new AbortController();
    const load = () => get("api/samples/node?resolution=minute", { signal: abort.signal }).then(setColumns, () => {});
    load();
    const timer = setInterval(load, 30_000);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [isWanted]);
  return columns;
}

function NodeOverview({ route }) {
  useLive("node");
  const range = route.query.range ?? "15m";
  const isDay = range === "24h";
  const minutes = useMinutes(isDay);
  const { data: node, error, reload } = useLoaded("api/nodes?columns=name,uptime,mem_used,mem_limit,mem_alarm,disk_free,disk_free_limit,disk_free_alarm,fd_used,fd_total", 5_000);
  const columns = isDay ? minutes : nodeSeries.columns;
  const newest = nodeSeries.newestAt;
  const view = useMemo(() => chartData(columns, rangeSeconds(range)), [columns, newest, range]);
  if (!nodeSeries.columns || !node) return error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`;
  const state = node[0];
  const chart = route.query.chart;
  const charts = [
    { id: "messages", title: "Messages", series: [
      { label: "Ready", color: "ready", values: view.messages_ready, fill: true },
      { label: "Unacknowledged", color: "unacked", values: view.messages_unacknowledged },
    ] },
    { id: "rates", title: "Message rates", unit: format.rate, series: [
      { label: "Publish", color: "publish", values: view.publish },
      { label: "Confirm", color: "confirm", values: view.confirm },
      { label: "Deliver", color: "deliver", values: view.deliver_get },
      { label: "Acknowledge", color: "ack", values: view.ack },
      ...(nodeSeries.last("unroutable") ? [{ label: "Unroutable", color: "return", values: view.unroutable }] : []),
    ] },
    { id: "memory", title: "Memory", unit: format.bytes, binary: true, series: [{ label: "Resident", color: "publish", values: view.mem_used, fill: true }] },
    { id: "latency", title: "Delays", unit: format.duration, series: [
      { label: "Event loop, longest", color: "ready", values: view.loop_lag },
      { label: "Fsync, mean", color: "deliver", values: view.fsync },
    ] },
  ];
  const shown = charts.filter((each) => !chart || each.id === chart);
  return html`<${Page} title="Overview" actions=${html`<${RangePicker} current=${range} />`}>
    <${Health} node=${state} />
    <${NodeTiles} node=${state} />
    <div class="grid">
      ${(shown.length ? shown : charts).map((each) => html`<${Chart} key=${each.id} ...${each} times=${view.at} seconds=${rangeSeconds(range)}
        empty=${isDay ? "One sample per minute: the first come after two minutes." : "Samples arrive every second."} />`)}
    </div>
    ${!chart && html`<${Busiest} /><div class="columns"><${Churn} /><${Ports} /></div>`}
  <//>`;
}

function chartData(columns, seconds) {
  if (!columns || !columns.at.length) return { at: [], publish: [], confirm: [], deliver_get: [], ack: [], unroutable: [], messages_ready: [], messages_unacknowledged: [], mem_used: [], loop_lag: [], fsync: [] };
  const times = columns.at;
  const begin = times[times.length - 1] - seconds * 1000 - 2_000;
  let first = times.findIndex((each) => each >= begin);
  first = Math.max(0, first - 1);
  const cut = (name) => columns[name].slice(first);
  const at = cut("at");
  const counts = cut("fsync_count");
  const spent = cut("fsync_us");
  return {
    at,
    publish: ratesOf(at, cut("publish")),
    confirm: ratesOf(at, cut("confirm")),
    deliver_get: ratesOf(at, cut("deliver_get")),
    ack: ratesOf(at, cut("ack")),
    unroutable: ratesOf(at, cut("unroutable")),
    messages_ready: cut("messages_ready"),
    messages_unacknowledged: cut("messages_unacknowledged"),
    mem_used: cut("mem_used"),
    loop_lag: cut("loop_lag_us").map((each) => each / 1e6),
    fsync: spent.map((each, index) => {
      if (!index) return null;
      const syncs = counts[index] - counts[index - 1];
      return syncs > 0 ? (each - spent[index - 1]) / syncs / 1e6 : null;
    }),
  };
}

// Alarms first, each with what to do.
function Health({ node }) {
  const alarms = [];
  if (node.mem_alarm) {
    alarms.push(["Memory alarm: publishers are blocked.", `The node uses ${format.bytes(node.mem_used)} of ${format.bytes(node.mem_limit)}. Consume or purge long queues, or raise broker.memory_watermark.`]);
  }
  if (node.disk_free_alarm) {
    alarms.push(["Disk alarm: publishers are blocked.", `${format.bytes(node.disk_free)} are free, ${format.bytes(node.disk_free_limit)} are required. Free space, consume messages, or lower broker.disk_free_min_bytes.`]);
  }
  if (alarms.length) return alarms.map(([title, remedy]) => html`<div class="banner bad" role="alert"><strong>${title}</strong><span>${remedy}</span></div>`);
  const warnings = [];
  if (node.mem_limit && node.mem_used > NEAR_LIMIT * node.mem_limit) warnings.push(`Memory is at ${Math.round((100 * node.mem_used) / node.mem_limit)} % of the limit at which publishers are blocked.`);
  if (node.fd_total && node.fd_used > NEAR_LIMIT * node.fd_total) warnings.push(`${format.count(node.fd_used)} of ${format.count(node.fd_total)} file descriptors are in use; raise the limit (ulimit -n) before new clients are refused.`);
  const lag = Math.max(...(nodeSeries.columns.loop_lag_us?.slice(-10) ?? [0])) / 1e6;
  if (lag > LAG_WARN_S) warnings.push(`The event loop was ${format.duration(lag)} late in the last ten seconds: the node is busy.`);
  if (warnings.length) return warnings.map((text) => html`<div class="banner warn" role="status"><strong>Warning.</strong><span>${text}</span></div>`);
  return html`<div class="banner good" role="status"><strong>Healthy.</strong><span>No alarms. Running for ${format.duration(node.uptime / 1000)}.</span></div>`;
}

function NodeTiles({ node }) {
  const last = (name) => nodeSeries.last(name);
  const syncs = nodeSeries.rate("fsync_count");
  return html`<div class="tiles six">
    <${Tile} label="Ready" value=${format.brief(last("messages_ready"))} hint="waiting in queues" link=${href(["queues"], { sort: "-ready" })} />
    <${Tile} label="Unacknowledged" value=${format.brief(last("messages_unacknowledged"))} hint="with consumers" link=${href(["queues"], { sort: "-unacked" })} />
    <${Tile} label="Publish" value=${format.rate(nodeSeries.rate("publish"))} hint="${format.brief(last("publish"))} in all" />
    <${Tile} label="Deliver" value=${format.rate(nodeSeries.rate("deliver_get"))} hint="${format.brief(last("deliver_get"))} in all" />
    <${Tile} label="Acknowledge" value=${format.rate(nodeSeries.rate("ack"))} hint="${format.brief(last("ack"))} in all" />
    <${Tile} label="Queues" value=${format.count(last("queues"))} hint="in all virtual hosts" link=${href(["queues"])} />
    <${Tile} label="Connections" value=${format.count(last("connections"))} hint=${format.plural(last("channels"), "channel")} link=${href(["connections"])} />
    <${Tile} label="Memory" value=${format.bytes(last("mem_used"))} hint="alarm at ${format.bytes(node.mem_limit)}" tone=${node.mem_alarm ? "bad" : ""} />
    <${Tile} label="Disk free" value=${last("disk_free") ? format.bytes(last("disk_free")) : format.NONE} hint=${last("disk_free") ? `alarm at ${format.bytes(node.disk_free_limit)}` : "no data folder"} tone=${node.disk_free_alarm ? "bad" : ""} />
    <${Tile} label="Loop delay" value=${format.duration(last("loop_lag_us") / 1e6)} hint="longest of a second" />
    <${Tile} label="Fsync" value=${last("disk_free") ? format.rate(syncs) : format.NONE} hint=${meanSync()} />
    <${Tile} label="Open files" value=${format.count(node.fd_used)} hint="of ${format.count(node.fd_total)}" />
  </div>`;
}

function meanSync() {
  const count = nodeSeries.last("fsync_count");
  return count ? `${format.duration(nodeSeries.last("fsync_us") / count / 1e6)} on average` : "nothing synced yet";
}

const CHURN = [["Connections", "connection_created", "connection_closed"], ["Channels", "channel_created", "channel_closed"], ["Queues", "queue_created", "queue_deleted"]];

// Clients that connect for each message show here first.
function Churn() {
  const { data } = useLoaded("api/overview?columns=churn_rates", 5_000);
  const churn = data?.churn_rates;
  const cell = (name) => html`<td class="number">${format.rate(churn[`${name}_details`]?.rate ?? 0)}</td><td class="number muted">${format.brief(churn[name] ?? 0)}</td>`;
  return html`<${Panel} title="Opened and closed" id="churn" flush=${true}>${!churn ? html`<${Loading} />` : html`<div class="scroller whole"><table class="table plain">
    <thead><tr><th scope="col">What</th><th scope="col" class="number">Opened</th><th scope="col" class="number">in all</th><th scope="col" class="number">Closed</th><th scope="col" class="number">in all</th></tr></thead>
    <tbody>${CHURN.map(([label, opened, closed]) => html`<tr key=${label}><td>${label}</td>${cell(opened)}${cell(closed)}</tr>`)}</tbody></table></div>`}<//>`;
}

function Ports() {
  const { data } = useLoaded("api/overview?columns=listeners", 30_000);
  return html`<${Panel} title="Ports" id="ports" flush=${true}>${!data ? html`<${Loading} />` : !data.listeners ? html`<${Empty} title="Shown to the tag monitoring." />` : html`<div class="scroller whole"><table class="table plain">
    <thead><tr><th scope="col">Protocol</th><th scope="col">Address</th><th scope="col" class="number">Port</th></tr></thead>
    <tbody>${data.listeners.map((each) => html`<tr key=${`${each.protocol}${each.port}`}><td>${each.protocol}</td><td>${each.ip_address}</td><td class="number">${each.port}</td></tr>`)}</tbody></table></div>`}<//>`;
}

function Busiest() {
  useLive("queues");
  const busiest = useMemo(() => {
    const load = (queue) => queue.publish_rate + queue.deliver_get_rate + queue.ack_rate;
    return [...queueStore.rows.values()]
      .filter((queue) => load(queue) > 0 || queue.messages > 0)
      .sort((one, other) => load(other) - load(one) || other.messages - one.messages)
      .slice(0, BUSIEST_COUNT);
  }, [queueStore.version]);
  return html`<${Panel} title="Busiest queues" id="busiest" flush=${true} actions=${html`<a class="button small ghost" href=${href(["queues"])}>All queues</a>`}>
    ${!queueStore.isLoaded
      ? html`<${Loading} />`
      : busiest.length === 0
        ? html`<${Empty} title="No queue has messages." command="recado bench">A short load shows what the node can do.<//>`
        : html`<div class="scroller whole"><table class="table plain">
            <thead><tr><th scope="col">Queue</th><th scope="col" class="hide-s">Virtual host</th><th scope="col" class="number">Ready</th><th scope="col" class="number hide-s">Unacked</th><th scope="col" class="number">Publish</th><th scope="col" class="number">Deliver</th><th scope="col" class="hide-s">Trend</th></tr></thead>
            <tbody>${busiest.map((queue) => html`<tr key=${queue.key}>
              <td><a href=${href(["queues", queue.vhost, queue.name])}><${Name}>${queue.name}<//></a>${" "}${queue.consumers === 0 && queue.messages > 0 && html`<${Badge} kind="warn">no consumer<//>`}</td>
              <td class="hide-s"><${Name} muted=${true}>${queue.vhost}<//></td>
              <td class="number">${format.count(queue.messages_ready)}</td>
              <td class="number hide-s">${format.count(queue.messages_unacknowledged)}</td>
              <td class="number">${format.rate(queue.publish_rate)}</td>
              <td class="number">${format.rate(queue.deliver_get_rate)}</td>
              <td class="hide-s"><${Sparkline} values=${queue.spark} label="Messages of ${queue.name}" /></td>
            </tr>`)}</tbody></table></div>`}
  <//>`;
}
