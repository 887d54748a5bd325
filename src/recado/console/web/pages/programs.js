// Feeds with their archives, actor systems with their supervision trees, and pipelines with their progress.
import { at, get, post } from "../api.js";
import { Badge, Command, Empty, Form, Loading, Name, Page, Panel, Problem, Tabs, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { useLoaded } from "../live.js";
import { href, setQuery } from "../router.js";
import { ListPage } from "./lists.js";
import { MessageBody } from "./message-body.js";

const SEARCH_COUNT = 50;
const SEARCH_BODY_BYTES = 10_000;
const SEARCH_ROWS = ["1000", "10000", "100000", "1000000"];

const known = (value, show = format.count) => (value == null ? html`<span class="zero" title="only archives of this node know it">unknown</span>` : show(value));
const short = (hex) => html`<code title=${hex}>${hex.slice(0, 8)}</code>`;

// ── feeds ─────────────────────────────────────────────────────────────────────────────────────────

const FEED_COLUMNS = [
  { id: "name", label: "Feed", value: (each) => each.name.toLowerCase(), cell: (each) => html`<a href=${href(["feeds", each.vhost, each.name])}><${Name}>${each.name}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, cell: (each) => html`<${Name} muted=${true}>${each.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "queues", label: "Queues", number: true, value: (each) => each.queue_count, cell: (each) => format.count(each.queue_count), width: "w-s", hide: "hide-s" },
  { id: "members", label: "Members", number: true, value: (each) => each.member_count, cell: (each) => known(each.member_count), width: "w-s", hide: "hide-s" },
  { id: "publishers", label: "Publishers", number: true, value: (each) => each.publisher_count, cell: (each) => known(each.publisher_count), width: "w-m", hide: "hide-m" },
  { id: "archives", label: "Archives here", number: true, value: (each) => each.archive_count, width: "w-m", hide: "hide-s" },
  { id: "stored", label: "Stored", number: true, value: (each) => each.messages_stored, cell: (each) => known(each.messages_stored), width: "w-m" },
  { id: "lag", label: "Archive lag", number: true, value: (each) => each.archive_lag, cell: (each) => known(each.archive_lag, format.duration), width: "w-m" },
];

export function FeedsPage({ route }) {
  return html`<${ListPage} title="Feeds" route=${route} hasVhost=${true} path="api/feeds" columns=${FEED_COLUMNS} rowKey=${(each) => `${each.vhost}\n${each.name}`} textOf=${(each) => each.name} period=${2_000}
    empty=${html`<${Empty} title="There are no feeds on this node." command="recado feed publish news hello">A feed is publish/subscribe with recovery of missed messages from archives.<//>`} />`;
}

export function FeedPage({ route, names: [vhost, name] }) {
  const { data: feed, error, reload } = useLoaded(at("feeds", vhost, name), 2_000);
  const trail = [["Feeds", ["feeds"]]];
  if (!feed) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const archives = feed.archives ?? [];
  const tab = route.query.tab ?? "members";
  const stopped = archives.filter((each) => !each.is_storing);
  return html`<${Page} title=${name} trail=${trail} badges=${vhost !== "/" && html`<${Badge} title="virtual host">${vhost}<//>`}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${stopped.map((each) => html`<div class="banner bad" role="alert"><strong>The archive ${each.name} has stopped.</strong><span>An error has stopped it; the log of the node has the reason.</span></div>`)}
    <div class="tiles">
      <${Tile} label="Members" value=${feed.member_count ?? format.NONE} hint=${feed.view == null ? "no archive here" : `view ${feed.view}`} />
      <${Tile} label="Publishers" value=${feed.publisher_count ?? format.NONE} />
      <${Tile} label="Stored" value=${format.brief(feed.messages_stored)} hint="messages in an archive" />
      <${Tile} label="Not yet on disk" value=${format.brief(feed.messages_unsynced)} />
      <${Tile} label="Archive lag" value=${format.duration(feed.archive_lag)} hint="age of the oldest of those" />
      <${Tile} label="Queues" value=${format.count(feed.queue_count)} hint="one per member on AMQP" />
    </div>
    <${Tabs} current=${tab} tabs=${[["members", "Members"], ["archives", "Archives", archives.length], ["search", "Search"], ["subscriber", "A subscriber"], ["queues", "Queues", feed.queues.length]]} />
    ${tab === "members" && (archives.length ? archives.map((each) => html`<${View} key=${each.name} archive=${each} />`) : html`<${NoArchive} vhost=${vhost} name=${name} />`)}
    ${tab === "archives" && (archives.length ? archives.map((each) => html`<${Archive} key=${each.name} archive=${each} />`) : html`<${NoArchive} vhost=${vhost} name=${name} />`)}
    ${tab === "search" && (archives.length ? html`<${SearchTab} vhost=${vhost} feed=${name} archives=${archives} query=${route.query} />` : html`<${NoArchive} vhost=${vhost} name=${name} />`)}
    ${tab === "subscriber" && html`<${Subscriber} vhost=${vhost} feed=${name} archives=${archives} />`}
    ${tab === "queues" && html`<${Panel} title="Queues of members" id="queues" flush=${true}><div class="scroller whole"><table class="table plain">
      <thead><tr><th scope="col">Queue</th><th scope="col">Archive</th><th scope="col" class="number">Packets</th><th scope="col" class="number">Consumers</th></tr></thead>
      <tbody>${feed.queues.map((each) => html`<tr key=${each.name}><td><a href=${href(["queues", vhost, each.name])}><${Name}>${each.name}<//></a></td><td>${each.archive ?? ""}</td><td class="number">${format.count(each.messages)}</td><td class="number">${format.count(each.consumers)}</td></tr>`)}</tbody></table></div><//>`}
  <//>`;
}

function NoArchive({ name }) {
  return html`<section class="panel"><${Empty} title="This node runs no archive of the feed." command=${`recado feed members ${format.shell(name)}`}>
    Members and publishers are known through archives. An entry in feeds.archives of the configuration runs one beside the broker.<//></section>`;
}

function View({ archive }) {
  const { view, past_views: past, past_view_count: count } = archive;
  return html`<${Panel} title=${view ? `View ${view.number}, as the archive ${archive.name} sees it` : `The archive ${archive.name} has not joined yet`} id="view-${archive.name}">
    ${view && html`<${Members} view=${view} />`}
    ${past.length > 0 && html`<details><summary>Views before: ${format.count(count)}</summary>
      <div class="scroller whole"><table class="table plain"><thead><tr><th scope="col" class="number">View</th><th scope="col">Members</th></tr></thead>
      <tbody>${past.map((each) => html`<tr key=${`${each.number}${each.coordinator}`}><td class="number">${each.number}</td><td>${each.members.map((member) => member.name).join(", ")}</td></tr>`)}</tbody></table></div></details>`}
  <//>`;
}

function Members({ view }) {
  return html`<div class="scroller whole"><table class="table plain">
    <thead><tr><th scope="col">Member</th><th scope="col">Role</th><th scope="col">Incarnation</th></tr></thead>
    <tbody>${view.members.map((each) => html`<tr key=${each.incarnation}><td><${Name}>${each.name}<//>${each.incarnation === view.coordinator && html` <${Badge} kind="accent" title="made this view">coordinator<//>`}</td><td>${each.role}</td><td>${short(each.incarnation)}</td></tr>`)}</tbody></table>
    ${view.member_count > view.members.length && html`<p class="muted">The oldest ${view.members.length} of ${format.count(view.member_count)}.</p>`}</div>`;
}

function Archive({ archive }) {
  return html`<${Panel} title=${archive.name} id="archive-${archive.name}" actions=${html`<${Badge} kind=${archive.is_storing ? "good" : "bad"}>${archive.is_storing ? "storing" : "stopped"}<//>`}>
    <div class="columns">
      <dl class="facts">
        <dt>Rows on disk</dt><dd>${format.count(archive.next_offset - archive.first_offset)}, offsets ${format.count(archive.first_offset)} to ${format.count(archive.next_offset)}</dd>
        <dt>In Parquet files</dt><dd>${format.count(archive.sealed_offset - archive.first_offset)} rows in ${format.plural(archive.file_count, "file")}, ${format.bytes(archive.file_bytes)}</dd>
        <dt>In the journal</dt><dd>${format.count(archive.next_offset - archive.sealed_offset)} rows</dd>
        <dt>Not yet on disk</dt><dd>${format.count(archive.unsynced)} rows, the oldest for ${format.duration(archive.lag)}</dd>
        <dt>Packets waiting</dt><dd>${known(archive.packets_waiting)}</dd>
        <dt>Deleted by retention</dt><dd>${format.count(archive.first_offset)} rows</dd>
      </dl>
      <div class="stack">
        <p class="muted">Read it on Spark, or in a terminal, with the folder of the archive:</p>
        <${Command} text='spark.readStream.format("recado").load("FOLDER")' />
        <${Command} text="recado feed replay FOLDER --selector 'headers.price > 10'" />
      </div>
    </div>
    <h3>Publishers</h3>
    <div class="scroller whole"><table class="table plain"><thead><tr><th scope="col">Publisher</th><th scope="col" class="number">Last sequence on disk</th></tr></thead>
      <tbody>${archive.publishers.map((each) => html`<tr key=${each.publisher}><td>${short(each.publisher)}</td><td class="number">${format.count(each.last)}</td></tr>`)}</tbody></table></div>
    ${archive.subscribers.length > 0 && html`<h3>Subscribers</h3>
    <div class="scroller whole"><table class="table plain"><thead><tr><th scope="col">Subscriber</th><th scope="col">Incarnation</th><th scope="col" class="number">View</th><th scope="col">State</th></tr></thead>
      <tbody>${archive.subscribers.map((each) => html`<tr key=${each.incarnation}><td><${Name}>${each.name}<//></td><td>${short(each.incarnation)}</td><td class="number">${each.view}</td><td>${each.has_left ? "has left" : "in the feed, or lost"}</td></tr>`)}</tbody></table></div>`}
  <//>`;
}

// What would a selector have matched, and what was published since a time? The archive is read, nothing is published again.
function SearchTab({ vhost, feed, archives, query }) {
  const { selector = "", since = "", rows = "100000", archive = archives[0].name } = query;
  const [draft, setDraft] = useState({ selector, since, rows, archive });
  const [state, setState] = useState({ found: null, error: null, busy: false });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let isGone = false;
    setState((before) => ({ ...before, busy: true }));
    const body = { archive, selector, rows: Number(rows), count: SEARCH_COUNT, truncate: SEARCH_BODY_BYTES };
    if (since) body.since = new Date(since).getTime();
    post(at("feeds", vhost, feed, "search"), body).then(
      (found) => isGone || setState({ found, error: null, busy: false }),
      (error) => isGone || setState({ found: null, error, busy: false }),
    );
    return () => {
      isGone = true;
    };
  }, [vhost, feed, archive, selector, since, rows, turn]);
  const edit = (name) => (event) => setDraft({ ...draft, [name]: event.target.value });
  const choose = (event) => {
    event.preventDefault();
    setQuery({ selector: draft.selector, since: draft.since, rows: draft.rows === "100000" ? "" : draft.rows, archive: draft.archive === archives[0].name ? "" : draft.archive });
    setTurn(turn + 1);
  };
  const { found, error, busy } = state;
  const folder = found?.folder ?? "FOLDER";
  const replay = `recado feed replay ${format.shell(folder)}${selector ? ` --selector ${format.shell(selector)}` : ""}${since && found ? ` --from ${found.messages[0]?.offset ?? found.end_offset}` : ""}`;
  return html`<${Panel} title="What the archive has" id="search">
    <form class="toolbar" onSubmit=${choose}>
      <input class="filter" data-filter type="search" aria-label="Selector" placeholder="Selector, such as json.price > 10 and key = 'PETR4'" value=${draft.selector} onInput=${edit("selector")} spellcheck=${false} />
      <label class="inline">since <input type="datetime-local" aria-label="Since" value=${draft.since} onInput=${edit("since")} /></label>
      <select aria-label="Rows" value=${draft.rows} onChange=${edit("rows")}>
        ${SEARCH_ROWS.map((each) => html`<option key=${each} value=${each} selected=${each === draft.rows}>${draft.since ? "at most" : "the last"} ${format.count(Number(each))} rows</option>`)}</select>
      ${archives.length > 1 && html`<select aria-label="Archive" value=${draft.archive} onChange=${edit("archive")}>${archives.map((each) => html`<option key=${each.name} value=${each.name} selected=${each.name === draft.archive}>${each.name}</option>`)}</select>`}
      <button class="button primary" type="submit" disabled=${busy}>${busy ? "Searching…" : "Search"}</button>
    </form>
    ${error && html`<${Problem} error=${error} />`}
    ${found && html`<div class="stack">
      <div class="banner ${found.matched ? "good" : "warn"}" role="status"><strong>${format.plural(found.matched, "message")} ${found.matched === 1 ? "matches" : "match"}</strong>
        <span>of ${format.count(found.examined)} with offsets ${format.count(found.first_offset)} to ${format.count(found.end_offset)}${found.complete ? "" : "; the search ended before the end of the archive"}.</span></div>
      ${found.messages.length > 0 && html`<div class="scroller whole live" tabindex="0" role="group" aria-label="Messages">${found.messages.map((each) => html`<${StoredMessage} key=${each.offset} message=${each} />`)}</div>
        ${found.matched > found.messages.length && html`<p class="muted">The first ${found.messages.length}.</p>`}`}
      <div><p class="muted">The same in a terminal, and on Spark:</p>
        <${Command} text=${replay} /><${Command} text=${`spark.read.format("recado").load(${JSON.stringify(folder)})${selector ? `  # .where(…): a selector as a condition, docs/selector.md` : ""}`} /></div>
    </div>`}
  <//>`;
}

function StoredMessage({ message }) {
  const [isOpen, setOpen] = useState(false);
  const line = message.payload_encoding === "string" ? message.payload.slice(0, 160).replace(/\s+/g, " ") : `${format.bytes(message.payload_bytes)} that are no text`;
  const bodyHidden = message.masked?.includes("body");
  return html`<details class="live-message" onToggle=${(event) => setOpen(event.target.open)}>
    <summary><span class="muted" title=${format.dateTime(message.published_at)}>#${format.count(message.offset)}</span> <span class="muted hide-s">${format.dateTime(message.published_at)}</span> <code><${Name}>${message.routing_key}<//></code> <bdi class="live-line">${bodyHidden ? html`<${Badge}>body not shown<//>` : line || "(empty)"}</bdi></summary>
    ${isOpen && html`<dl class="facts"><dt>Published</dt><dd>${format.dateTime(message.published_at)}</dd><dt>Publisher</dt><dd>${short(message.publisher)}, sequence ${format.count(message.sequence)}</dd>
      ${Object.entries(message.properties).map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd><bdi>${format.text(value)}</bdi></dd>`)}</dl>
      ${!bodyHidden && html`<${MessageBody} message=${message} label="Body" />`}`}
  </details>`;
}

// What would a subscriber get that returns now?
function Subscriber({ vhost, feed, archives }) {
  const names = [...new Set(archives.flatMap((each) => each.subscribers.map((subscriber) => subscriber.name)))];
  const [name, setName] = useState(names[0] ?? "");
  const [found, setFound] = useState(null);
  const ask = async () => setFound(await get(at("feeds", vhost, feed, "subscribers", name)));
  return html`<${Panel} title="What has a subscriber received?" id="subscriber">
    <${Form} submit=${ask} label="Ask the archives"><${TextField} label="Subscriber" value=${name} onChange=${setName} required hint=${names.length ? `known: ${names.slice(0, 5).join(", ")}` : "none has acknowledged a view yet"} /><//>
    ${found && found.archives.map((each) => html`<div key=${each.archive}><h3>By the archive ${each.archive}</h3>
      <div class="scroller whole"><table class="table plain"><thead><tr><th scope="col">Publisher</th><th scope="col">Messages</th><th scope="col">Certainty</th></tr></thead>
      <tbody>${each.publishers.flatMap((publisher) => publisher.ranges.map((range) => html`<tr key=${`${publisher.publisher}${range.first}`}><td>${short(publisher.publisher)}</td><td>${format.count(range.first)} – ${format.count(range.last)}</td>
        <td><${Badge} kind=${{ delivered: "good", uncertain: "warn", missed: "bad" }[range.certainty]}>${range.certainty}<//></td></tr>`))}</tbody></table></div></div>`)}
  <//>`;
}

// ── actor systems ─────────────────────────────────────────────────────────────────────────────────

const turnOn = (what, command) => html`<${Empty} title="No ${what} publishes its status to this node." command=${command}>With management.status in the configuration, the node collects status records.<//>`;
const StateBadge = ({ stale, state }) => {
  const kind = { running: "good", starting: "warn", failed: "bad" }[state] ?? "";
  return stale ? html`<${Badge} kind="bad" title="silent for three of its intervals">silent<//>` : html`<${Badge} kind=${kind}>${state}<//>`;
};

const ACTOR_COLUMNS = [
  { id: "name", label: "System", value: (each) => each.name.toLowerCase(), cell: (each) => html`<a href=${href(["actors", each.name], { vhost: each.vhost })}><${Name}>${each.name}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, width: "w-m", hide: "hide-m" },
  { id: "state", label: "State", value: (each) => (each.stale ? "silent" : each.state), cell: (each) => html`<${StateBadge} ...${each} />`, width: "w-m" },
  { id: "actors", label: "Actors", number: true, value: (each) => each.actor_count, cell: (each) => format.count(each.actor_count), width: "w-s" },
  { id: "waiting", label: "Waiting", number: true, value: (each) => each.waiting, cell: (each) => format.count(each.waiting), width: "w-s", hide: "hide-s" },
  { id: "handled", label: "Handled", number: true, value: (each) => each.handled, cell: (each) => format.brief(each.handled), width: "w-s", hide: "hide-s" },
  { id: "restarts", label: "Restarts", number: true, value: (each) => each.restarts, cell: (each) => format.count(each.restarts), width: "w-s", hide: "hide-s" },
  { id: "dead", label: "Dead letters", number: true, value: (each) => each.dead_letters, cell: (each) => format.count(each.dead_letters), width: "w-m", hide: "hide-m" },
];

export function ActorsPage({ route }) {
  return html`<${ListPage} title="Actor systems" route=${route} hasVhost=${true} path="api/actors" columns=${ACTOR_COLUMNS} rowKey=${(each) => `${each.vhost}\n${each.name}`} textOf=${(each) => each.name} period=${2_000}
    empty=${turnOn("actor system", 'publish_status(system, "amqp://127.0.0.1")')} />`;
}

export function ActorSystemPage({ route, names: [name] }) {
  const vhost = route.query.vhost ? `?vhost=${encodeURIComponent(route.query.vhost)}` : "";
  const { data: system, error, reload } = useLoaded(at("actors", name) + vhost, 2_000);
  const trail = [["Actor systems", ["actors"]]];
  if (!system) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  return html`<${Page} title=${name} trail=${trail} badges=${html`<${StateBadge} ...${system} />`}>
    <div class="tiles">
      <${Tile} label="Actors" value=${format.count(system.actor_count)} hint="since ${format.dateTime(system.started_at)}" />
      <${Tile} label="Waiting" value=${format.brief(system.waiting)} hint="messages in mailboxes" />
      <${Tile} label="Handled" value=${format.brief(system.handled)} />
      <${Tile} label="Restarts" value=${format.count(system.restarts)} />
      <${Tile} label="Dead letters" value=${format.count(system.dead_letters)} />
    </div>
    <${Panel} title="Supervision" id="tree" flush=${true}>
      ${system.actors.length
        ? html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad"><thead><tr><th scope="col">Actor</th><th scope="col">Class</th><th scope="col">State</th><th scope="col" class="number">Waiting</th><th scope="col" class="number">Handled</th><th scope="col" class="number">Restarts</th></tr></thead>
          <tbody>${treeOrder(system.actors).map((actor) => html`<tr key=${actor.uid}><td><span class="indent" aria-hidden="true">${"\u00a0\u00a0\u00a0".repeat(actor.depth)}${actor.depth ? "└ " : ""}</span><${Name}>${actor.name || `#${actor.uid}`}<//></td>
            <td>${actor.type}</td><td><${Badge} kind=${{ started: "good", suspended: "warn", stopped: "bad" }[actor.state] ?? ""}>${actor.state}<//></td>
            <td class="number">${format.count(actor.waiting)}</td><td class="number">${format.count(actor.handled)}</td><td class="number">${format.count(actor.restarts)}</td></tr>`)}</tbody></table></div>`
        : html`<${Empty} title="No actors." />`}
      ${system.omitted > 0 && html`<p class="muted">${format.plural(system.omitted, "further actor")} not shown.</p>`}
    <//>
    <div class="columns">
      <${Panel} title="Last failures" id="failures" flush=${system.failures.length > 0}>${system.failures.length
        ? html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad"><thead><tr><th scope="col">At</th><th scope="col">Actor</th><th scope="col">Outcome</th><th scope="col">Error</th></tr></thead>
          <tbody>${system.failures.map((each) => html`<tr key=${`${each.at}${each.actor}`}><td>${format.time(each.at)}</td><td><${Name}>${each.actor}<//></td><td>${each.outcome.replace("_", " ")}</td><td><code><${Name}>${each.error}<//></code></td></tr>`)}</tbody></table></div>`
        : html`<p class="muted">None.</p>`}<//>
      <${Panel} title="Other nodes" id="peers">${system.peers.length
        ? html`<ul class="stack">${system.peers.map((each) => html`<li key=${each.node}><${Badge} kind=${each.unreachable ? "bad" : "good"}>${each.unreachable ? "unreachable" : "reachable"}<//> <${Name}>${each.node}<//></li>`)}</ul>`
        : html`<p class="muted">None.</p>`}<//>
    </div>
  <//>`;
}

// The record lists supervisors level by level; a tree is read from top to bottom.
function treeOrder(actors) {
  const uids = new Set(actors.map((each) => each.uid));
  const below = new Map();
  for (const actor of actors) {
    const supervisor = uids.has(actor.supervisor) && actor.depth > 0 ? actor.supervisor : null;
    if (!below.has(supervisor)) below.set(supervisor, []);
    below.get(supervisor).push(actor);
  }
  const ordered = [];
  const visited = new Set(); // a record is not trusted: supervisors may form a circle
  const visit = (uid) => {
    for (const actor of below.get(uid) ?? []) {
      if (visited.has(actor.uid)) continue;
      visited.add(actor.uid);
      ordered.push(actor);
      visit(actor.uid);
    }
  };
  visit(null);
  return [...ordered, ...actors.filter((each) => !visited.has(each.uid))];
}

// ── pipelines ─────────────────────────────────────────────────────────────────────────────────────

const PIPELINE_COLUMNS = [
  { id: "name", label: "Pipeline", value: (each) => each.name.toLowerCase(), cell: (each) => html`<a href=${href(["pipelines", each.name], { vhost: each.vhost })}><${Name}>${each.name}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, width: "w-m", hide: "hide-m" },
  { id: "state", label: "State", value: (each) => (each.stale ? "silent" : each.state), cell: (each) => html`<${StateBadge} ...${each} />`, width: "w-m" },
  { id: "rate", label: "Rows", number: true, value: (each) => each.rows_per_second, cell: (each) => format.rate(each.rows_per_second), width: "w-s" },
  { id: "lag", label: "Lag", number: true, value: (each) => each.lag, cell: (each) => format.count(each.lag), width: "w-s", hide: "hide-s" },
  { id: "batch", label: "Batch", number: true, value: (each) => each.batch_seconds, cell: (each) => format.duration(each.batch_seconds), width: "w-s", hide: "hide-s" },
  { id: "dead", label: "Dead letters", number: true, value: (each) => each.dead_letters, cell: (each) => format.count(each.dead_letters), width: "w-m", hide: "hide-s" },
  { id: "heard", label: "Heard", value: (each) => each.received_at, cell: (each) => format.time(each.received_at), width: "w-s", hide: "hide-m" },
];

export function PipelinesPage({ route }) {
  return html`<${ListPage} title="Pipelines" route=${route} hasVhost=${true} path="api/pipelines" columns=${PIPELINE_COLUMNS} rowKey=${(each) => `${each.vhost}\n${each.name}`} textOf=${(each) => each.name} period=${2_000}
    empty=${turnOn("pipeline", "recado pipeline run FILE --status amqp://127.0.0.1")} />`;
}

export function PipelinePage({ route, names: [name] }) {
  const vhost = route.query.vhost ? `?vhost=${encodeURIComponent(route.query.vhost)}` : "";
  const { data: run, error, reload } = useLoaded(at("pipelines", name) + vhost, 2_000);
  const trail = [["Pipelines", ["pipelines"]]];
  if (!run) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  return html`<${Page} title=${name} trail=${trail} badges=${html`<${StateBadge} ...${run} />`}>
    ${run.error && html`<div class="banner bad" role="alert"><strong>The run has failed.</strong><span><bdi>${run.error}</bdi></span></div>`}
    <div class="tiles">
      <${Tile} label="Rows" value=${format.rate(run.rows_per_second)} hint="${format.brief(run.rows)} in all" />
      <${Tile} label="Lag" value=${format.brief(run.lag)} hint="rows not yet read" />
      <${Tile} label="Batches" value=${format.count(run.batches)} hint=${run.batch < 0 ? "none yet" : `the last one took ${format.duration(run.batch_seconds)}`} />
      <${Tile} label="Dead letters" value=${format.count(run.dead_letters)} tone=${run.dead_letters ? "warn" : ""} />
      <${Tile} label="Late" value=${format.count(run.late)} hint="rows dropped" />
      <${Tile} label="Duplicates" value=${format.count(run.duplicates)} hint="rows dropped" />
    </div>
    <div class="grid">
      <${Panel} title="Sources" id="sources" flush=${true}><div class="scroller whole"><table class="table plain"><thead><tr><th scope="col">Source</th><th scope="col" class="number">Rows</th><th scope="col" class="number">Rate</th><th scope="col" class="number">Lag</th></tr></thead>
        <tbody>${Object.entries(run.sources).map(([source, each]) => html`<tr key=${source}><td><${Name}>${source}<//></td><td class="number">${format.count(each.rows)}</td><td class="number">${format.rate(each.rows_per_second)}</td><td class="number">${format.count(each.lag)}</td></tr>`)}</tbody></table></div><//>
      <${Panel} title="Sinks" id="sinks" flush=${true}><div class="scroller whole"><table class="table plain"><thead><tr><th scope="col">Sink</th><th scope="col" class="number">Rows written</th></tr></thead>
        <tbody>${Object.entries(run.sinks).map(([sink, rows]) => html`<tr key=${sink}><td><${Name}>${sink}<//></td><td class="number">${format.count(rows)}</td></tr>`)}
          ${Object.entries(run.dead).map(([step, rows]) => html`<tr key=${`dead ${step}`}><td><${Badge} kind="warn">dead letters<//> <${Name}>${step}<//></td><td class="number">${format.count(rows)}</td></tr>`)}</tbody></table></div><//>
    </div>
    <p class="muted">Run ${run.run}, started ${format.dateTime(run.started_at)}, last heard ${format.dateTime(run.received_at)}.</p>
  <//>`;
}
