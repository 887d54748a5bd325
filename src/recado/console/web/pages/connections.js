// Connections, channels and consumers: lists, details, and closing with a reason.
import { at, remove } from "../api.js";
import { Badge, Empty, Form, Loading, Name, openDialog, Page, Panel, Problem, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useState } from "../lib.js";
import { useLoaded } from "../live.js";
import { go, href } from "../router.js";
import { ListPage } from "./lists.js";

const details = (object, name) => object[`${name}_details`]?.rate ?? 0;
const stat = (object, name) => object.message_stats?.[`${name}_details`]?.rate ?? 0;
const speed = (value) => html`<span class=${value === 0 ? "zero" : ""}>${format.rate(value)}</span>`;
const traffic = (value) => html`<span class=${value === 0 ? "zero" : ""}>${format.bytes(value)}/s</span>`;
const amount = (value) => html`<span class=${value === 0 ? "zero" : ""}>${format.count(value)}</span>`;

const STATES = { running: "good", blocked: "bad", starting: "warn", closing: "warn" };
const PENDING_BYTES = 64 * 1024; // unsent output: the client reads more slowly than it is sent to

function StateOf({ connection }) {
  const kind = STATES[connection.state] ?? "";
  const isSlow = connection.send_pend > PENDING_BYTES;
  return html`<span class="features"><${Badge} kind=${kind} title=${connection.state === "blocked" ? "It publishes during an alarm: the node does not read from it." : undefined}>${connection.state}<//>
    ${isSlow && html`<${Badge} kind="warn" title="${format.bytes(connection.send_pend)} wait to be read by the client">slow<//>`}</span>`;
}

// ── connections ───────────────────────────────────────────────────────────────────────────────────

const CONNECTION_COLUMNS = [
  { id: "name", label: "Name", value: (each) => (each.user_provided_name ?? each.name).toLowerCase(), cell: (each) => html`<a href=${href(["connections", each.name])}><${Name}>${each.user_provided_name ?? each.name}<//></a>${each.user_provided_name && html` <span class="muted show-xl">${each.peer_host}:${each.peer_port}</span>`}` },
  { id: "address", label: "Client", value: (each) => `${each.peer_host}:${each.peer_port}`, width: "w-l", hide: "hide-xl" },
  { id: "user", label: "User", value: (each) => each.user, cell: (each) => html`<${Name}>${each.user}<//>`, width: "w-m", hide: "hide-s" },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, cell: (each) => html`<${Name} muted=${true}>${each.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "state", label: "State", value: (each) => each.state, cell: (each) => html`<${StateOf} connection=${each} />`, width: "w-m" },
  { id: "tls", label: "TLS", value: (each) => (each.ssl ? 1 : 0), cell: (each) => (each.ssl ? html`<span title=${each.ssl_cipher}>${each.ssl_protocol}</span>` : html`<span class="zero">no</span>`), width: "w-s", hide: "hide-l" },
  { id: "channels", label: "Channels", number: true, value: (each) => each.channels, cell: (each) => amount(each.channels), width: "w-s", hide: "hide-s" },
  { id: "from", label: "Received", number: true, value: (each) => details(each, "recv_oct"), cell: (each) => traffic(details(each, "recv_oct")), width: "w-m", hide: "hide-m" },
  { id: "to", label: "Sent", number: true, value: (each) => details(each, "send_oct"), cell: (each) => traffic(details(each, "send_oct")), width: "w-m", hide: "hide-m" },
];

export function ConnectionsPage({ route }) {
  return html`<${ListPage} title="Connections" route=${route} hasVhost=${true} columns=${CONNECTION_COLUMNS} rowKey=${(each) => each.name}
    textOf=${(each) => `${each.name} ${each.user_provided_name ?? ""} ${each.user}`}
    path="api/connections?columns=name,user_provided_name,peer_host,peer_port,user,vhost,state,ssl,ssl_protocol,ssl_cipher,channels,send_pend,recv_oct_details.rate,send_oct_details.rate"
    empty=${html`<${Empty} title="No client is connected." command="recado bench">This command connects some for a moment.<//>`} />`;
}

export function openClose(name, shown, after) {
  openDialog(`Close the connection ${shown}?`, (close) => html`<${CloseForm} name=${name} close=${close} after=${after} />`);
}

function CloseForm({ name, close, after }) {
  const [reason, setReason] = useState("");
  const submit = async () => {
    await remove(at("connections", name), { headers: reason ? { "x-reason": reason.replace(/[^\x20-\x7e]/g, "?") } : {} });
    after?.();
  };
  return html`<${Form} submit=${submit} close=${close} label="Close connection" danger=${true} done="The connection was closed.">
    <p class="wide">Its channels and consumers end, and messages that it has not acknowledged return to their queues. Most clients connect again.</p>
    <${TextField} label="Reason" value=${reason} onChange=${setReason} hint="sent to the client, in ASCII" maxlength="200" wide=${true} />
  <//>`;
}

export function ConnectionPage({ names: [name] }) {
  const { data: connection, error, reload } = useLoaded(at("connections", name), 1_000);
  const channels = useLoaded(`${at("connections", name, "channels")}?columns=name,number,state,consumer_count,messages_unacknowledged,messages_unconfirmed,prefetch_count,message_stats`, 2_000);
  const trail = [["Connections", ["connections"]]];
  const title = connection?.user_provided_name ?? name;
  if (!connection || error) return html`<${Page} title=${title} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const close = () => openClose(name, title, () => go(["connections"]));
  const client = connection.client_properties ?? {};
  return html`<${Page} title=${title} trail=${trail} badges=${html`<${StateOf} connection=${connection} />`} actions=${html`<button class="button danger" onClick=${close}>Close</button>`}>
    ${connection.state === "blocked" && html`<div class="banner bad" role="status"><strong>Blocked.</strong><span>It publishes during a memory or disk alarm, so the node does not read from it. The overview tells what to do.</span></div>`}
    <div class="tiles">
      <${Tile} label="Received" value="${format.bytes(details(connection, "recv_oct"))}/s" hint="${format.bytes(connection.recv_oct)} in all" />
      <${Tile} label="Sent" value="${format.bytes(details(connection, "send_oct"))}/s" hint="${format.bytes(connection.send_oct)} in all" />
      <${Tile} label="Waiting to be sent" value=${format.bytes(connection.send_pend)} hint="the client has not read it" tone=${connection.send_pend > PENDING_BYTES ? "warn" : ""} />
      <${Tile} label="Channels" value=${format.count(connection.channels)} hint="of ${format.count(connection.channel_max)} at most" />
      <${Tile} label="Heartbeat" value=${connection.timeout ? `${connection.timeout} s` : "off"} />
    </div>
    <div class="columns">
      <${Panel} title="Channels" id="channels" flush=${true}>
        ${channels.data?.length ? html`<${ChannelTable} channels=${channels.data} />` : html`<${Empty} title="This connection has no channels." />`}
      <//>
      <${Panel} title="Client" id="client"><dl class="facts">
        <dt>User</dt><dd><${Name}>${connection.user}<//></dd>
        <dt>Virtual host</dt><dd><${Name}>${connection.vhost}<//></dd>
        <dt>Address</dt><dd>${connection.peer_host}:${connection.peer_port}</dd>
        <dt>Connected</dt><dd>${format.dateTime(connection.connected_at)}</dd>
        <dt>Login</dt><dd>${connection.auth_mechanism}</dd>
        <dt>TLS</dt><dd>${connection.ssl ? `${connection.ssl_protocol}, ${connection.ssl_cipher}` : "no"}</dd>
        ${connection.peer_cert_subject && html`<dt>Certificate</dt><dd>${connection.peer_cert_subject}</dd>`}
        <dt>Frame size</dt><dd>${format.bytes(connection.frame_max)}</dd>
        <dt>Library</dt><dd><bdi>${[client.product, client.version].filter(Boolean).map(format.text).join(" ") || format.NONE}</bdi></dd>
        <dt>Platform</dt><dd><bdi>${client.platform ? format.text(client.platform) : format.NONE}</bdi></dd>
      </dl><//>
    </div>
  <//>`;
}

function ChannelTable({ channels }) {
  return html`<div class="scroller whole"><table class="table plain">
    <thead><tr><th scope="col">Channel</th><th scope="col" class="number">Consumers</th><th scope="col" class="number">Unacked</th><th scope="col" class="number hide-s">Unconfirmed</th><th scope="col" class="number hide-s">Publish</th><th scope="col" class="number hide-s">Deliver</th></tr></thead>
    <tbody>${channels.map((each) => html`<tr key=${each.name}>
      <td><a href=${href(["channels", each.name])}>${each.number}</a></td>
      <td class="number">${amount(each.consumer_count)}</td><td class="number">${amount(each.messages_unacknowledged)}</td><td class="number hide-s">${amount(each.messages_unconfirmed)}</td>
      <td class="number hide-s">${speed(stat(each, "publish"))}</td><td class="number hide-s">${speed(stat(each, "deliver_get"))}</td></tr>`)}</tbody></table></div>`;
}

// ── channels ──────────────────────────────────────────────────────────────────────────────────────

const CHANNEL_COLUMNS = [
  { id: "name", label: "Channel", value: (each) => each.name.toLowerCase(), cell: (each) => html`<a href=${href(["channels", each.name])} title=${each.name}>${each.name.replace(/ -> \S+/, "")}</a>` },
  { id: "user", label: "User", value: (each) => each.user, width: "w-s", hide: "hide-m" },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, cell: (each) => html`<${Name} muted=${true}>${each.vhost}<//>`, width: "w-m", hide: "hide-xl" },
  { id: "mode", label: "Mode", sortable: false, value: () => "", cell: (each) => html`<span class="features">${each.confirm && html`<${Badge} title="publisher confirms">confirm<//>`}${each.transactional && html`<${Badge}>transaction<//>`}</span>`, width: "w-m", hide: "hide-l" },
  { id: "consumers", label: "Consumers", number: true, value: (each) => each.consumer_count, cell: (each) => amount(each.consumer_count), width: "w-s", hide: "hide-s" },
  { id: "prefetch", label: "Prefetch", number: true, value: (each) => each.prefetch_count, cell: (each) => each.prefetch_count || html`<span class="zero">none</span>`, width: "w-s", hide: "hide-m" },
  { id: "unacked", label: "Unacked", number: true, value: (each) => each.messages_unacknowledged, cell: (each) => amount(each.messages_unacknowledged), width: "w-s" },
  { id: "unconfirmed", label: "Unconfirmed", number: true, value: (each) => each.messages_unconfirmed, cell: (each) => amount(each.messages_unconfirmed), width: "w-m", hide: "hide-xl" },
  { id: "publish", label: "Publish", number: true, value: (each) => stat(each, "publish"), cell: (each) => speed(stat(each, "publish")), width: "w-s", hide: "hide-s" },
  { id: "deliver", label: "Deliver", number: true, value: (each) => stat(each, "deliver_get"), cell: (each) => speed(stat(each, "deliver_get")), width: "w-s", hide: "hide-s" },
  { id: "ack", label: "Ack", number: true, value: (each) => stat(each, "ack"), cell: (each) => speed(stat(each, "ack")), width: "w-s", hide: "hide-l" },
];

export function ChannelsPage({ route }) {
  return html`<${ListPage} title="Channels" route=${route} hasVhost=${true} columns=${CHANNEL_COLUMNS} rowKey=${(each) => each.name} textOf=${(each) => `${each.name} ${each.user}`}
    path="api/channels?columns=name,user,vhost,confirm,transactional,consumer_count,prefetch_count,messages_unacknowledged,messages_unconfirmed,message_stats.publish_details.rate,message_stats.deliver_get_details.rate,message_stats.ack_details.rate"
    empty=${html`<${Empty} title="No client has opened a channel." command="recado bench" />`} />`;
}

export function ChannelPage({ names: [name] }) {
  const { data: channel, error, reload } = useLoaded(at("channels", name), 1_000);
  const trail = [["Channels", ["channels"]]];
  if (!channel || error) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const stats = channel.message_stats ?? {};
  const consumers = channel.consumer_details ?? [];
  return html`<${Page} title=${name} trail=${trail} badges=${html`<span class="features">${channel.confirm && html`<${Badge}>confirms<//>`}${channel.transactional && html`<${Badge}>transaction<//>`}</span>`}>
    <div class="tiles">
      <${Tile} label="Publish" value=${format.rate(stat(channel, "publish"))} hint="${format.brief(stats.publish ?? 0)} in all" />
      <${Tile} label="Deliver" value=${format.rate(stat(channel, "deliver_get"))} hint="${format.brief(stats.deliver_get ?? 0)} in all" />
      <${Tile} label="Acknowledge" value=${format.rate(stat(channel, "ack"))} hint="${format.brief(stats.ack ?? 0)} in all" />
      <${Tile} label="Unacknowledged" value=${format.count(channel.messages_unacknowledged)} hint=${channel.prefetch_count ? `prefetch ${channel.prefetch_count}` : "no prefetch limit"} />
      <${Tile} label="Unconfirmed" value=${format.count(channel.messages_unconfirmed)} hint="published, not yet confirmed" />
    </div>
    <div class="columns">
      <${Panel} title="Consumers" id="consumers" flush=${consumers.length > 0}>${consumers.length
        ? html`<div class="scroller whole"><table class="table plain"><thead><tr><th scope="col">Tag</th><th scope="col">Queue</th><th scope="col">Acks</th></tr></thead>
          <tbody>${consumers.map((each) => html`<tr key=${each.consumer_tag}><td><code><${Name}>${each.consumer_tag}<//></code></td><td><a href=${href(["queues", each.queue.vhost, each.queue.name])}><${Name}>${each.queue.name}<//></a></td><td>${each.ack_required ? "manual" : "automatic"}</td></tr>`)}</tbody></table></div>`
        : html`<${Empty} title="This channel does not consume." />`}<//>
      <${Panel} title="Channel" id="channel"><dl class="facts">
        <dt>Connection</dt><dd><a href=${href(["connections", channel.connection_details.name])}><${Name}>${channel.connection_details.name}<//></a></dd>
        <dt>Number</dt><dd>${channel.number}</dd><dt>User</dt><dd>${channel.user}</dd><dt>Virtual host</dt><dd>${channel.vhost}</dd>
      </dl><//>
    </div>
  <//>`;
}

// ── consumers ─────────────────────────────────────────────────────────────────────────────────────

const CONSUMER_COLUMNS = [
  { id: "queue", label: "Queue", value: (each) => each.queue.name.toLowerCase(), cell: (each) => html`<a href=${href(["queues", each.queue.vhost, each.queue.name])}><${Name}>${each.queue.name}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (each) => each.queue.vhost, cell: (each) => html`<${Name} muted=${true}>${each.queue.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "tag", label: "Consumer tag", value: (each) => each.consumer_tag, cell: (each) => html`<code><${Name}>${each.consumer_tag}<//></code>`, width: "w-xl", hide: "hide-s" },
  { id: "channel", label: "Channel", value: (each) => each.channel_details?.name ?? "", cell: (each) => (each.channel_details?.name ? html`<a href=${href(["channels", each.channel_details.name])}><${Name}>${each.channel_details.name}<//></a>` : ""), width: "w-xl", hide: "hide-l" },
  { id: "acks", label: "Acks", value: (each) => (each.ack_required ? "manual" : "automatic"), width: "w-s", hide: "hide-m" },
  { id: "prefetch", label: "Prefetch", number: true, value: (each) => each.prefetch_count, cell: (each) => each.prefetch_count || html`<span class="zero">none</span>`, width: "w-s", hide: "hide-s" },
  { id: "state", label: "State", value: (each) => each.activity_status, cell: (each) => html`<${Badge} kind=${each.active ? "good" : "warn"}>${each.active ? "active" : "waiting"}<//>`, width: "w-s" },
];

export function ConsumersPage({ route }) {
  return html`<${ListPage} title="Consumers" route=${route} hasVhost=${true} path="api/consumers" columns=${CONSUMER_COLUMNS} vhostOf=${(each) => each.queue.vhost}
    rowKey=${(each) => `${each.channel_details?.name}\n${each.consumer_tag}`} textOf=${(each) => `${each.queue.name} ${each.consumer_tag}`}
    empty=${html`<${Empty} title="No client consumes." command="recado tap QUEUE">This command shows what enters a queue without consuming it.<//>`} />`;
}
