// Dead letters: which queues have them and where they come from; in one queue, why they died and how often they were replayed.
import { at } from "../api.js";
import { Badge, Empty, Loading, Name, notify, openDialog, Form, Page, Panel, Problem, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useState } from "../lib.js";
import { useLoaded } from "../live.js";
import { href } from "../router.js";
import { FilterField, parseSort, sortRows, Table } from "../table.js";
import { takeSnapshot } from "./snapshots.js";
import { VhostFilter } from "./vhosts.js";

export const DEATH_REASONS = { rejected: "Rejected by a consumer", expired: "Expired", maxlen: "The queue was full", delivery_limit: "Delivered too often" };

const COLUMNS = [
  { id: "name", label: "Queue with dead letters", value: (row) => row.name.toLowerCase(), cell: (row) => html`<a href=${href(["dead-letters", row.vhost, row.name])}><${Name}>${row.name}<//></a>` },
  { id: "vhost", label: "Virtual host", value: (row) => row.vhost, cell: (row) => html`<${Name} muted=${true}>${row.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "ready", label: "Ready", number: true, value: (row) => row.messages_ready, cell: (row) => html`<span class=${row.messages_ready ? "" : "zero"}>${format.count(row.messages_ready)}</span>`, width: "w-s" },
  { id: "entered", label: "Entered", title: "since the start of the node", number: true, value: (row) => row.entered, cell: (row) => format.brief(row.entered), width: "w-s", hide: "hide-s" },
  { id: "consumers", label: "Consumers", number: true, value: (row) => row.consumers, cell: (row) => format.count(row.consumers), width: "w-s", hide: "hide-m" },
  { id: "sources", label: "From", sortable: false, value: (row) => row.source_count, cell: (row) => html`<span title=${row.sources.join(", ")}><bdi>${row.sources.slice(0, 3).join(", ")}</bdi>${row.source_count > 3 ? html` <span class="muted">and ${format.count(row.source_count - 3)} more</span>` : ""}</span>`, hide: "hide-s" },
];

export function DeadLettersPage({ route }) {
  const { filter = "", vhost = "" } = route.query;
  const { data, error, reload } = useLoaded(vhost ? `api/dead-letters?vhost=${encodeURIComponent(vhost)}` : "api/dead-letters");
  const sort = parseSort(route.query.sort, COLUMNS, "-ready");
  const wanted = filter.toLowerCase();
  const rows = data ? sortRows(data.queues.filter((row) => !wanted || row.name.toLowerCase().includes(wanted) || row.sources.some((each) => each.toLowerCase().includes(wanted))), COLUMNS, sort) : [];
  return html`<${Page} title="Dead letters">
    ${data?.lost_count > 0 && html`<div class="banner bad" role="status"><strong>${format.plural(data.lost_count, "queue")} ${data.lost_count === 1 ? "loses" : "lose"} dead letters.</strong>
      <span>The dead-letter exchange does not exist, or leads to no queue: ${data.lost.slice(0, 5).map((each, index) => html`${index ? ", " : ""}<a href=${href(["queues", each.vhost, each.name])}><bdi>${each.name}</bdi></a> <span class="muted">(${each.dead_letter_exchange || "default exchange"})</span>`)}${data.lost_count > 5 ? ", …" : ""}</span></div>`}
    <div class="toolbar"><${FilterField} value=${filter} label="Filter by queue or source" shown=${rows.length} total=${data?.queues.length} /><${VhostFilter} current=${vhost} /></div>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!error || data ? html`<section class="panel bare">${!data ? html`<${Loading} />` : html`<${Table} rows=${rows} columns=${COLUMNS} rowKey=${(row) => `${row.vhost}\n${row.name}`} sort=${sort} label="Dead letters"
      empty=${data.queues.length ? html`<${Empty} title="Nothing matches the filter." />` : html`<${Empty} title="No queue has a dead-letter exchange." command=${'recado policies set parked "^jobs" \'{"dead-letter-exchange": "dead"}\''}>Rejected, expired and excess messages of queues without one are dropped.<//>`} />`}</section>` : null}
  <//>`;
}

export function DeadLetterQueuePage({ names: [vhost, name] }) {
  const { data, error, reload } = useLoaded(at("dead-letters", vhost, name));
  const trail = [["Dead letters", ["dead-letters"]]];
  if (!data) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const dead = data.groups.filter((each) => each.reason !== null);
  const replayed = dead.reduce((sum, each) => sum + each.count - (each.replays[0] ?? 0), 0);
  const often = Math.max(0, ...dead.flatMap((each) => Object.keys(each.replays).map(Number)));
  const newest = Math.max(0, ...dead.map((each) => each.last_at ?? 0));
  return html`<${Page} title=${name} trail=${trail} badges=${vhost !== "/" && html`<${Badge} title="virtual host">${vhost}<//>`}
      actions=${html`<a class="button" href=${href(["queues", vhost, name], { tab: "messages" })}>Messages</a><button class="button primary" disabled=${!data.messages_ready} onClick=${() => openReplay(vhost, name)}>Replay…</button>`}>
    <div class="tiles">
      <${Tile} label="Ready" value=${format.brief(data.messages_ready)} hint=${data.examined < data.messages_ready ? `the first ${format.count(data.examined)} are counted below` : "all are counted below"} />
      <${Tile} label="Kinds" value=${format.count(dead.length)} hint="by reason, queue and key" />
      <${Tile} label="Replayed before" value=${format.brief(replayed)} hint=${replayed ? `up to ${format.plural(often, "time")}` : "none of them"} />
      <${Tile} label="Last death" value=${newest ? format.time(newest * 1000) : format.NONE} hint=${newest ? format.dateTime(newest * 1000) : ""} />
    </div>
    <${Panel} title="Why they died" id="deaths" flush=${data.groups.length > 0}>
      ${data.groups.length === 0
        ? html`<${Empty} title="There is no dead letter here." />`
        : html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
          <thead><tr><th scope="col">Reason</th><th scope="col">In queue</th><th scope="col">Published to</th><th scope="col" class="number">Messages</th><th scope="col" class="hide-s">Replayed</th><th scope="col" class="hide-m">Last</th><th scope="col"><span class="offscreen">Actions</span></th></tr></thead>
          <tbody>${data.groups.map((each) => html`<tr key=${`${each.reason}\n${each.queue}\n${each.exchange}\n${each.routing_key}`}>
            <td>${each.reason === null ? html`<span class="muted">not a dead letter</span>` : each.reason === "" ? html`<span class="muted">other kinds</span>` : html`<strong>${DEATH_REASONS[each.reason] ?? each.reason}</strong>${each.deaths > 1 ? html` <span class="muted">up to ${format.plural(each.deaths, "time")}</span>` : ""}`}</td>
            <td>${each.queue ? html`<a href=${href(["queues", vhost, each.queue])}><${Name}>${each.queue}<//></a>` : format.NONE}</td>
            <td>${each.queue ? html`<bdi>${each.exchange || "(default)"}</bdi> <code><bdi>${each.routing_key}</bdi></code>` : format.NONE}</td>
            <td class="number">${format.count(each.count)}</td>
            <td class="hide-s">${Object.entries(each.replays).filter(([times]) => times !== "0").map(([times, number]) => `${format.count(number)} ${times === "1" ? "once" : `${times} times`}`).join(", ") || html`<span class="muted">never</span>`}</td>
            <td class="hide-m">${each.last_at ? format.dateTime(each.last_at * 1000) : format.NONE}</td>
            <td>${each.queue && html`<div class="cell-actions"><a class="button small" href=${href(["queues", vhost, name], { tab: "messages", selector: selectorOf(each) })}>Show</a></div>`}</td>
          </tr>`)}</tbody></table></div>`}
    <//>
  <//>`;
}

const quote = (text) => `'${text.replaceAll("'", "''")}'`;

// Selectors cannot look into the list x-death; its first entry is also in headers of its own.
function selectorOf(group) {
  return `headers."x-first-death-queue" = ${quote(group.queue)} and headers."x-first-death-reason" = ${quote(group.reason)}`;
}

function openReplay(vhost, name) {
  openDialog(`Replay dead letters of ${name}`, (close) => html`<${ChooseForm} vhost=${vhost} name=${name} close=${close} />`);
}

function ChooseForm({ vhost, name, close }) {
  const [selector, setSelector] = useState("");
  const submit = async () => {
    await takeSnapshot({ vhost, queue: name, selector }, { action: "replay" });
    notify("The messages were chosen. Nothing was replayed yet.");
  };
  return html`<${Form} submit=${submit} close=${close} label="Choose messages">
    <p class="wide muted">The next page shows how many there are, and a sample. Then each can return to the queue where it died.</p>
    <${TextField} label="Only if" value=${selector} onChange=${setSelector} wide=${true} hint="a selector, such as headers.tenant = 'acme'; all if empty" />
  <//>`;
}
