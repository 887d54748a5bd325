// Exchanges: the list, and one exchange with its bindings as a diagram, and publishing.
import { at, get, put, remove } from "../api.js";
import { Arguments, AreaField, Badge, CheckField, confirm, Empty, exchangeLabel, exchangeSegment, Features, Form, Loading, Name, openDialog, Page, Panel, parseJsonField, Problem, SelectField, Tabs, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { Chart } from "../chart.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { ratesOf, useLoaded } from "../live.js";
import { go, href } from "../router.js";
import { Bindings } from "./bindings.js";
import { ListPage } from "./lists.js";
import { PublishForm } from "./messages.js";
import { BindForm } from "./queues.js";
import { useVhosts } from "./vhosts.js";

const rateOf = (exchange, name) => exchange.message_stats?.[`${name}_details`]?.rate ?? 0;
const speed = (value) => html`<span class=${value === 0 ? "zero" : ""}>${format.rate(value)}</span>`;

const COLUMNS = [
  { id: "name", label: "Name", value: (each) => each.name.toLowerCase(), cell: (each) => html`<a href=${href(["exchanges", each.vhost, exchangeSegment(each.name)])}><${Name}>${exchangeLabel(each.name)}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, cell: (each) => html`<${Name} muted=${true}>${each.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "type", label: "Type", value: (each) => each.type, width: "w-m" },
  { id: "features", label: "Features", sortable: false, value: () => "", cell: (each) => html`<${Features} durable=${each.durable} autoDelete=${each.auto_delete} internal=${each.internal} />`, width: "w-xl", hide: "hide-l" },
  { id: "policy", label: "Policy", value: (each) => each.policy ?? "", width: "w-m", hide: "hide-l" },
  { id: "in", label: "In", number: true, value: (each) => rateOf(each, "publish_in"), cell: (each) => speed(rateOf(each, "publish_in")), width: "w-s", hide: "hide-s" },
  { id: "out", label: "Out", number: true, value: (each) => rateOf(each, "publish_out"), cell: (each) => speed(rateOf(each, "publish_out")), width: "w-s", hide: "hide-s" },
];

export function ExchangesPage({ route }) {
  return html`<${ListPage} title="Exchanges" route=${route} hasVhost=${true} columns=${COLUMNS} textOf=${(each) => exchangeLabel(each.name)}
    path="api/exchanges?columns=name,vhost,type,durable,auto_delete,internal,policy,message_stats.publish_in_details.rate,message_stats.publish_out_details.rate"
    rowKey=${(each) => `${each.vhost}\n${each.name}`}
    actions=${() => html`<button class="button primary" onClick=${() => openDeclare()}>Add exchange</button>`}
    empty=${html`<${Empty} title="There are no exchanges." command="recado exchanges declare orders --type topic" />`} />`;
}

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message", "x-random"];

function openDeclare() {
  openDialog("Add an exchange", (close) => html`<${DeclareForm} close=${close} />`);
}

function DeclareForm({ close }) {
  const vhosts = useVhosts();
  const { data } = useLoaded("api/overview?columns=exchange_types", 0);
  const types = data?.exchange_types?.map((each) => each.name) ?? TYPES.slice(0, 4);
  const [vhost, setVhost] = useState("/");
  const [name, setName] = useState("");
  const [type, setType] = useState("direct");
  const [durable, setDurable] = useState(true);
  const [autoDelete, setAutoDelete] = useState(false);
  const [internal, setInternal] = useState(false);
  const [alternate, setAlternate] = useState("");
  const [more, setMore] = useState("");
  const submit = async () => {
    const values = parseJsonField(more, "Other arguments");
    if (alternate) values["alternate-exchange"] = alternate;
    await put(at("exchanges", vhost, name), { type, durable, auto_delete: autoDelete, internal, arguments: values });
    go(["exchanges", vhost, name]);
  };
  return html`<${Form} submit=${submit} close=${close} label="Add exchange" done="Exchange ${name} was declared.">
    <${TextField} label="Name" value=${name} onChange=${setName} required maxlength="255" />
    <${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${vhosts} />
    <${SelectField} label="Type" value=${type} onChange=${setType} options=${types} />
    <${TextField} label="Alternate exchange" value=${alternate} onChange=${setAlternate} hint="for messages that match no binding" />
    <div class="checks wide"><${CheckField} label="Durable" value=${durable} onChange=${setDurable} />
      <${CheckField} label="Delete when unused" value=${autoDelete} onChange=${setAutoDelete} />
      <${CheckField} label="Internal" value=${internal} onChange=${setInternal} /></div>
    <${AreaField} label="Other arguments" value=${more} onChange=${setMore} rows=${2} hint="JSON" />
  <//>`;
}

const SAMPLES_MAX = 1_800; // an hour, every two seconds

// The totals of an exchange: ten minutes from the node, then what this page has loaded.
function useSamples(vhost, segment, exchange) {
  const samples = useRef({ at: [], in: [], out: [] }).current;
  const [, setTurn] = useState(0);
  useEffect(() => {
    get(`${at("exchanges", vhost, segment)}?msg_rates_age=600&msg_rates_incr=5`).then(({ message_stats: stats }) => {
      const past = [...(stats?.publish_in_details?.samples ?? [])].reverse().filter((each) => !samples.at.length || each.timestamp < samples.at[0]);
      const out = new Map((stats?.publish_out_details?.samples ?? []).map((each) => [each.timestamp, each.sample]));
      samples.at.unshift(...past.map((each) => each.timestamp));
      samples.in.unshift(...past.map((each) => each.sample));
      samples.out.unshift(...past.map((each) => out.get(each.timestamp) ?? 0));
      setTurn((turn) => turn + 1);
    }, () => {});
  }, [vhost, segment]);
  useEffect(() => {
    const now = Date.now();
    if (!exchange || now <= (samples.at.at(-1) ?? 0)) return;
    const stats = exchange.message_stats ?? {};
    for (const [name, value] of [["at", now], ["in", stats.publish_in ?? 0], ["out", stats.publish_out ?? 0]]) {
      samples[name].push(value);
      if (samples[name].length > SAMPLES_MAX) samples[name].shift();
    }
    setTurn((turn) => turn + 1);
  }, [exchange]);
  return samples;
}

export function ExchangePage({ route, names: [vhost, segment] }) {
  const name = segment === "amq.default" ? "" : segment;
  const label = exchangeLabel(name);
  const { data: exchange, error, reload } = useLoaded(at("exchanges", vhost, segment), 2_000);
  const from = useLoaded(at("exchanges", vhost, segment, "bindings", "source"));
  const to = useLoaded(at("exchanges", vhost, segment, "bindings", "destination"));
  const samples = useSamples(vhost, segment, exchange);
  const bindings = useMemo(() => [...(to.data ?? []), ...(from.data ?? [])], [to.data, from.data]);
  const trail = [["Exchanges", ["exchanges"]]];
  const tab = route.query.tab ?? "bindings";
  if (!exchange) return html`<${Page} title=${label} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const isSystem = name === "" || name.startsWith("amq.");
  const badges = html`<span class="features"><${Badge} kind="accent">${exchange.type}<//>${vhost !== "/" && html`<${Badge} title="virtual host">${vhost}<//>`}</span>
    <${Features} durable=${exchange.durable} autoDelete=${exchange.auto_delete} internal=${exchange.internal} />`;
  const reloadBindings = () => {
    from.reload();
    to.reload();
  };
  const askDelete = () =>
    confirm({
      title: `Delete ${label}?`,
      label: "Delete exchange",
      lines: [`The exchange ${label} in ${vhost} and its ${format.plural(bindings.length, "binding")} will be lost. Publishers to it get an error.`],
      submit: async () => {
        await remove(at("exchanges", vhost, segment));
        go(["exchanges"]);
      },
      done: `${label} was deleted.`,
    });
  const stats = exchange.message_stats ?? {};
  return html`<${Page} title=${label} trail=${trail} badges=${badges} actions=${html`
      <a class="button" href=${href(["route-test"], { vhost, exchange: name })}>Test a route</a>
      ${!isSystem && html`<button class="button danger" onClick=${askDelete}>Delete</button>`}`}>
    <div class="tiles">
      <${Tile} label="In" value=${format.rate(rateOf(exchange, "publish_in"))} hint="${format.brief(stats.publish_in ?? 0)} in all" />
      <${Tile} label="Out" value=${format.rate(rateOf(exchange, "publish_out"))} hint="${format.brief(stats.publish_out ?? 0)} in all" />
      <${Tile} label="Bindings" value=${name === "" ? "by name" : format.count(bindings.length)} hint="to queues and exchanges" />
      <${Tile} label="Policy" value=${exchange.policy ?? "none"} />
    </div>
    <${Tabs} current=${tab} tabs=${[["bindings", "Bindings"], ["charts", "Chart"], ["settings", "Settings"], ...(exchange.internal ? [] : [["publish", "Publish"]])]} />
    ${tab === "bindings" && html`<${Panel} title="Bindings" id="bindings" actions=${name !== "" && html`<button class="button small" onClick=${() =>
        openDialog(`Bind ${label}`, (close) => html`<${BindForm} vhost=${vhost} source=${segment} close=${close} reload=${reloadBindings} />`)}>Add binding</button>`}>
      ${name === ""
        ? html`<p class="muted">The default exchange sends a message to the queue whose name is the routing key. Its bindings cannot be changed.</p>`
        : !from.data || !to.data
          ? html`<${Loading} />`
          : bindings.length
            ? html`<${Bindings} bindings=${bindings} vhost=${vhost} focus=${["exchange", name]} query=${route.query} reload=${reloadBindings} />`
            : html`<${Empty} title="Nothing is bound to this exchange." command=${`recado bindings declare ${format.shell(name)} QUEUE "orders.#"`}>Its messages are dropped, or returned if they are mandatory.<//>`}
    <//>`}
    ${tab === "charts" && html`<div class="grid"><${Chart} id="exchange-rates" title="Messages in and out" unit=${format.rate} times=${samples.at} seconds=${600} series=${[
      { label: "In", color: "publish", values: ratesOf(samples.at, samples.in) },
      { label: "Out", color: "deliver", values: ratesOf(samples.at, samples.out) },
    ]} /></div>`}
    ${tab === "settings" && html`<${Panel} title="Declared" id="declared"><dl class="facts">
      <dt>Type</dt><dd>${exchange.type}</dd>
      <dt>Durable</dt><dd>${exchange.durable ? "yes: survives a restart" : "no"}</dd>
      <dt>Auto-delete</dt><dd>${exchange.auto_delete ? "yes: deleted with its last binding" : "no"}</dd>
      <dt>Internal</dt><dd>${exchange.internal ? "yes: only other exchanges send to it" : "no"}</dd>
      <dt>Arguments</dt><dd><${Arguments} values=${exchange.arguments} /></dd>
    </dl><//>`}
    ${tab === "publish" && html`<${Panel} title="Publish to this exchange" id="publish"><${PublishForm} vhost=${vhost} exchange=${name} /><//>`}
  <//>`;
}
