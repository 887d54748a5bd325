// Actions on many queues or messages: the node keeps which ones are concerned; the page shows their number and a sample, and then how far the action is.
import { at, get, post, remove } from "../api.js";
import { Badge, confirm, Empty, Loading, Name, Page, Panel, Problem, SelectField, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { go, href, setQuery } from "../router.js";
import { ListPage } from "./lists.js";

const PERIOD_MS = 700;
const ACTIONS = {
  queues: [["delete", "Delete the queues"], ["purge", "Purge them"], ["move", "Move their messages"], ["replay", "Replay their dead letters"]],
  messages: [["delete", "Delete the messages"], ["move", "Move them"], ["replay", "Replay them"]],
};

// Take a snapshot, and show its page.
export async function takeSnapshot(body, query = {}) {
  const taken = await post("api/snapshots", body);
  go(["snapshots", taken.id], query);
}

function useSnapshot(id) {
  const [state, setState] = useState({ snapshot: null, error: null });
  const [turn, setTurn] = useState(0);
  const isRunning = state.snapshot?.running ?? false;
  useEffect(() => {
    let isGone = false;
    let timer = 0;
    const load = () => get(at("snapshots", id)).then(
      (snapshot) => {
        if (isGone) return;
        setState({ snapshot, error: null });
        if (snapshot.running) timer = setTimeout(load, PERIOD_MS);
      },
      (error) => isGone || setState((before) => ({ ...before, error })),
    );
    load();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [id, turn]);
  return { ...state, isRunning, reload: () => setTurn((before) => before + 1) };
}

const nounOf = (snapshot) => (snapshot.kind === "queues" ? "queue" : "message");

export function SnapshotPage({ route, names: [id] }) {
  const { snapshot, error, reload } = useSnapshot(id);
  const trail = [["Bulk actions", ["snapshots"]]];
  if (!snapshot) {
    return html`<${Page} title="Bulk action" trail=${trail}>${error
      ? html`<${Problem} error=${error.status === 404 ? new Error("A snapshot is forgotten after an hour, and belongs to one user.") : error} />`
      : html`<${Loading} />`}<//>`;
  }
  const { progress } = snapshot;
  const noun = nounOf(snapshot);
  return html`<${Page} title=${format.plural(snapshot.count, noun)} trail=${trail}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!snapshot.complete && html`<div class="banner warn" role="status"><strong>Not all.</strong><span>More than ${format.count(snapshot.count)} were chosen; the action concerns the first ${format.count(snapshot.count)}. Take another snapshot after it.</span></div>`}
    ${progress ? html`<${Progress} snapshot=${snapshot} reload=${reload} />` : html`<${ActionPanel} snapshot=${snapshot} query=${route.query} reload=${reload} />`}
    <${Panel} title=${snapshot.count > snapshot.sample.length ? `The first ${snapshot.sample.length} of ${format.count(snapshot.count)}` : `All ${format.plural(snapshot.count, noun)}`} id="sample" flush=${snapshot.sample.length > 0}>
      ${snapshot.sample.length === 0 ? html`<${Empty} title=${`No ${noun} was chosen.`} />` : noun === "queue" ? html`<${QueueSample} sample=${snapshot.sample} />` : html`<${MessageSample} snapshot=${snapshot} />`}
    <//>
    <p class="muted">Chosen at ${format.time(snapshot.created_at)}: ${snapshot.description}${snapshot.queue != null ? html` of <a href=${href(["queues", snapshot.vhost, snapshot.queue])}><${Name}>${snapshot.queue}<//></a>` : ""}.
      What was declared or published since is not concerned.</p>
  <//>`;
}

function ActionPanel({ snapshot, query, reload }) {
  const noun = nounOf(snapshot);
  const actions = [["", "Choose an action"], ...ACTIONS[snapshot.kind]];
  const action = actions.some(([each]) => each === query.action) ? query.action : "";
  const [destination, setDestination] = useState("");
  const [replays, setReplays] = useState("");
  const body = { action };
  if (action === "move") body.destination = destination;
  if (action === "replay" && replays) body.max_replays = Number(replays);
  const verb = { delete: "Delete", purge: "Purge", move: "Move messages of", replay: "Replay dead letters of" }[action];
  const label = !action ? "Run" : noun === "message" ? `${{ delete: "Delete", move: "Move", replay: "Replay" }[action]} ${format.plural(snapshot.count, noun)}` : `${verb} ${format.plural(snapshot.count, noun)}`;
  const ask = (event) => {
    event.preventDefault();
    confirm({
      title: `${label}?`,
      label,
      lines: [
        action === "delete" && noun === "queue" && `The queues, their bindings and ${format.plural(snapshot.message_count, "ready message")} will be lost.`,
        action === "purge" && `${format.plural(snapshot.message_count, "ready message")} will be lost.`,
        action === "delete" && noun === "message" && `They will be lost, as far as they are still in ${snapshot.queue}.`,
        action === "move" && `They go to the queue ${destination}.`,
        action === "replay" && "Each returns to the queue where it died.",
        `The first: ${snapshot.sample.slice(0, 3).map((each) => each.name ?? `#${each.offset}`).join(", ")}${snapshot.count > 3 ? ", …" : ""}`,
      ],
      submit: async () => {
        await post(at("snapshots", snapshot.id, "run"), body);
        reload();
      },
      done: "The action has begun.",
    });
  };
  return html`<${Panel} title="Action" id="action">
    <form class="form" onSubmit=${ask}>
      <div class="form-fields">
        <${SelectField} label="What to do" value=${action} onChange=${(value) => setQuery({ action: value }, { replace: true })} options=${actions} />
        ${action === "move" && html`<${TextField} label="To queue" value=${destination} onChange=${setDestination} required />`}
        ${action === "replay" && html`<${TextField} label="Replayed at most" type="number" min="1" value=${replays} onChange=${setReplays} hint="times before; others stay" />`}
      </div>
      <div class="form-actions"><button type="submit" class="button danger" disabled=${snapshot.count === 0 || !action}>${label}…</button></div>
    </form>
  <//>`;
}

function Progress({ snapshot, reload }) {
  const { progress } = snapshot;
  const total = snapshot.kind === "queues" ? snapshot.count : 1;
  const share = total ? progress.done / total : 1;
  const words = { delete: "Deleting", purge: "Purging", move: "Moving", replay: "Replaying" };
  const isOver = progress.ended_at !== null;
  const stop = () => confirm({
    title: "Stop the action?",
    label: "Stop",
    lines: ["What it has done stays done. The snapshot is forgotten."],
    submit: async () => {
      await remove(at("snapshots", snapshot.id));
      go(["snapshots"]);
    },
    done: "The action was stopped.",
  });
  return html`<${Panel} title=${isOver ? "Result" : `${words[progress.action]}…`} id="progress" actions=${!isOver && html`<button class="button small danger" onClick=${stop}>Stop</button><button class="button small" onClick=${reload}>Refresh</button>`}>
    <div class="stack">
      <div class="meter" role="progressbar" aria-label="Progress" aria-valuenow=${Math.round(share * 100)} aria-valuemin="0" aria-valuemax="100"><svg viewBox="0 0 100 1" preserveAspectRatio="none"><rect width=${Math.max(share * 100, 0.5)} height="1" /></svg></div>
      <div class="tiles">
        ${snapshot.kind === "queues" && html`<${Tile} label="Queues done" value=${format.count(progress.done - progress.failed)} hint=${`of ${format.count(snapshot.count)}`} />`}
        ${Object.entries(progress.totals).map(([name, number]) => html`<${Tile} key=${name} label=${name.replaceAll("_", " ")} value=${format.brief(number)} hint="messages" />`)}
        <${Tile} label="Failed" value=${format.count(progress.failed)} tone=${progress.failed ? "bad" : ""} hint=${progress.failed ? "see below" : "none"} />
        <${Tile} label="Time" value=${format.duration(((progress.ended_at ?? Date.now()) - progress.started_at) / 1000)} hint=${isOver ? `ended ${format.time(progress.ended_at)}` : "so far"} />
      </div>
      ${progress.stop_reason && html`<div class="banner warn" role="status"><strong>It ended early.</strong><span>${progress.stop_reason}</span></div>`}
      ${isOver && !progress.failed && !progress.stop_reason && html`<div class="banner good" role="status"><strong>Done.</strong></div>`}
      ${progress.errors.length > 0 && html`<div><h3>Failures${progress.failed > progress.errors.length ? `, the first ${progress.errors.length}` : ""}</h3>
        <ul class="stack">${progress.errors.map((each) => html`<li key=${`${each.vhost}\n${each.name}`}><${Name}>${each.name}<//> <span class="muted">in <bdi>${each.vhost}</bdi>:</span> ${each.reason}</li>`)}</ul></div>`}
    </div>
  <//>`;
}

function QueueSample({ sample }) {
  return html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
    <thead><tr><th scope="col">Name</th><th scope="col">Virtual host</th><th scope="col">Type</th><th scope="col" class="number">Ready</th><th scope="col" class="number">Unacked</th><th scope="col" class="number">Consumers</th></tr></thead>
    <tbody>${sample.map((each) => html`<tr key=${`${each.vhost}\n${each.name}`}>
      <td>${each.deleted ? html`<${Name} muted=${true}>${each.name}<//> <${Badge}>deleted<//>` : html`<a href=${href(["queues", each.vhost, each.name])}><${Name}>${each.name}<//></a>`}</td>
      <td><${Name} muted=${true}>${each.vhost}<//></td><td>${each.type}</td>
      <td class="number">${format.count(each.messages_ready)}</td><td class="number">${format.count(each.messages_unacknowledged)}</td><td class="number">${format.count(each.consumers)}</td>
    </tr>`)}</tbody></table></div>`;
}

function MessageSample({ snapshot }) {
  return html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
    <thead><tr><th scope="col" class="number">Offset</th><th scope="col">Routing key</th><th scope="col">Message id</th><th scope="col" class="number">Size</th><th scope="col">Body</th></tr></thead>
    <tbody>${snapshot.sample.map((each) => html`<tr key=${each.offset}>
      <td class="number">${format.count(each.offset)}</td><td><code><${Name}>${each.routing_key}<//></code></td><td><${Name}>${each.properties.message_id ?? format.NONE}<//></td>
      <td class="number">${format.bytes(each.payload_bytes)}</td><td><bdi class="live-line">${each.payload_encoding === "string" ? each.payload.slice(0, 120) : "bytes"}</bdi></td>
    </tr>`)}</tbody></table></div>`;
}

const COLUMNS = [
  { id: "created", label: "Chosen", value: (each) => each.created_at, cell: (each) => html`<a href=${href(["snapshots", each.id])}>${format.time(each.created_at)}</a>`, width: "w-m" },
  { id: "what", label: "What", value: (each) => each.description, cell: (each) => html`<${Name}>${each.queue != null ? `${each.description} of ${each.queue}` : each.description}<//>` },
  { id: "count", label: "Number", number: true, value: (each) => each.count, cell: (each) => format.count(each.count), width: "w-s" },
  { id: "action", label: "Action", value: (each) => each.progress?.action ?? "", cell: (each) => (each.progress ? each.progress.action : html`<span class="muted">none yet</span>`), width: "w-m", hide: "hide-s" },
  { id: "state", label: "State", value: (each) => stateOf(each), cell: (each) => html`<${Badge} kind=${{ running: "accent", done: "good", failed: "bad" }[stateOf(each)] ?? ""}>${stateOf(each)}<//>`, width: "w-m" },
];

function stateOf(snapshot) {
  if (snapshot.running) return "running";
  if (snapshot.progress === null) return "ready";
  return snapshot.progress.failed || snapshot.progress.stop_reason ? "failed" : "done";
}

export function SnapshotsPage({ route }) {
  return html`<${ListPage} title="Bulk actions" path="api/snapshots" route=${route} columns=${COLUMNS} sort="-created" period=${2_000}
    textOf=${(each) => `${each.description} ${each.queue ?? ""}`} rowKey=${(each) => each.id}
    empty=${html`<${Empty} title="No queues or messages were chosen in the last hour.">In the list of queues, filter, then <em>Act on all</em>; in the messages of a queue, a selector, then <em>Act on all</em>.<//>`} />`;
}
