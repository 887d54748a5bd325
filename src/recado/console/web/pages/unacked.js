// Messages that clients hold: who, since when; chosen ones are returned to the queue.
import { at, post, session } from "../api.js";
import { Badge, confirm, Empty, Loading, Name, Panel, Problem } from "../components.js";
import * as format from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { useLoaded } from "../live.js";
import { href, setQuery } from "../router.js";
import { parseSort, sortRows, Table } from "../table.js";

const COUNTS = ["100", "500", "1000"];
const LOAD_MS = 2_000;
const LISTED_MAX = 3; // holders that the dialog names

const keyOf = (each) => `${each.channel_details.name}\n${each.delivery_tag}`;
const holderOf = ({ channel_details: { peer_host, peer_port, number } }) => `${peer_host}:${peer_port} (${number})`;
const mayRequeue = (each) => session.tags.includes("administrator") || each.channel_details.user === session.user;

export function UnackedTab({ vhost, name, query, total }) {
  const count = COUNTS.includes(query.count) ? query.count : COUNTS[0];
  const { data, error, reload } = useLoaded(`${at("queues", vhost, name, "unacked")}?count=${count}`, LOAD_MS);
  const [chosen, setChosen] = useState(new Set());
  const held = useMemo(() => (data ?? []).filter((each) => each.channel_details.name), [data]);
  const selected = held.filter((each) => chosen.has(keyOf(each)));
  const choosable = held.filter(mayRequeue);
  const toggle = (each) => {
    const next = new Set(chosen);
    if (!next.delete(keyOf(each))) next.add(keyOf(each));
    setChosen(next);
  };
  const toggleAll = () => setChosen(new Set(selected.length === choosable.length ? [] : choosable.map(keyOf)));
  const columns = useMemo(() => columnsOf(chosen, toggle), [chosen]);
  const sort = parseSort(query.sort, columns, "-age");
  const rows = useMemo(() => sortRows(held, columns, sort), [held, sort.id, sort.descending]);
  const hidden = total - held.length;
  return html`<${Panel} title="Delivered, and not acknowledged" id="unacked" flush=${rows.length > 0}>
    <div class="toolbar">
      <select aria-label="Number of messages" value=${count} onChange=${(event) => setQuery({ count: event.target.value === COUNTS[0] ? "" : event.target.value })}>
        ${COUNTS.map((each) => html`<option value=${each} selected=${each === count}>the oldest ${each}</option>`)}
      </select>
      <button class="button" type="button" disabled=${!choosable.length} onClick=${toggleAll}>${selected.length && selected.length === choosable.length ? "Select none" : "Select all"}</button>
      <button class="button danger" type="button" disabled=${!selected.length} onClick=${() => confirmRequeue(vhost, name, selected, () => { setChosen(new Set()); reload(); })}>Requeue${selected.length ? ` ${format.count(selected.length)}` : ""}</button>
      <span class="grow"></span>
      ${held.length > 0 && hidden > 0 && html`<span class="muted">${format.plural(hidden, "more message")}</span>`}
    </div>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!data && !error && html`<${Loading} />`}
    ${data && html`<${Table} rows=${rows} columns=${columns} rowKey=${keyOf} sort=${sort} label="Unacknowledged messages" version=${data}
      empty=${html`<${Empty} title=${total ? "The messages are with clients of other users." : "No client holds a message of this queue."} />`} />`}
  <//>`;
}

function columnsOf(chosen, toggle) {
  return [
    { id: "choose", label: html`<span class="offscreen">Select</span>`, sortable: false, value: () => "", width: "w-check", cell: (each) => mayRequeue(each) && html`<input type="checkbox" checked=${chosen.has(keyOf(each))} onChange=${() => toggle(each)} aria-label="Select message ${each.offset} of ${each.channel_details.name}" />` },
    { id: "message", label: "Message", number: true, value: (each) => each.offset, cell: (each) => `#${format.count(each.offset)}`, width: "w-s" },
    { id: "age", label: "Held for", number: true, value: (each) => each.unacked_for_seconds, cell: (each) => (each.unacked_for_seconds < 60 ? `${each.unacked_for_seconds} s` : format.duration(each.unacked_for_seconds)), width: "w-m" },
    { id: "size", label: "Body", number: true, value: (each) => each.payload_bytes, cell: (each) => format.bytes(each.payload_bytes), width: "w-s", hide: "hide-m" },
    { id: "state", label: "Delivery", value: (each) => each.delivery_count, cell: (each) => html`<span class="features">${each.redelivered ? html`<${Badge} kind="warn" title="delivered before">${each.delivery_count ? `redelivered ${each.delivery_count} ×` : "redelivered"}<//>` : "first"}</span>`, width: "w-l", hide: "hide-s" },
    { id: "channel", label: "Channel", value: (each) => each.channel_details.name, cell: (each) => html`<a href=${href(["channels", each.channel_details.name])} title=${each.channel_details.name}>${holderOf(each)}</a>` },
    { id: "consumer", label: "Consumer tag", value: (each) => each.consumer_tag, cell: (each) => (each.consumer_tag ? html`<code><${Name}>${each.consumer_tag}<//></code>` : html`<span class="muted">basic.get</span>`), width: "w-xl", hide: "hide-l" },
    { id: "user", label: "User", value: (each) => each.channel_details.user, cell: (each) => html`<${Name}>${each.channel_details.user}<//>`, width: "w-m", hide: "hide-m" },
    { id: "tag", label: "Delivery tag", number: true, value: (each) => each.delivery_tag, cell: (each) => format.count(each.delivery_tag), width: "w-m", hide: "hide-xl" },
  ];
}

function confirmRequeue(vhost, name, selected, done) {
  const holders = [...new Set(selected.map((each) => each.channel_details.name))];
  const named = holders.slice(0, LISTED_MAX).join(", ");
  confirm({
    title: `Requeue ${format.plural(selected.length, "message")} of ${name}?`,
    label: "Requeue",
    lines: [
      `Held by ${named}${holders.length > LISTED_MAX ? ` and ${format.count(holders.length - LISTED_MAX)} more` : ""}.`,
      "The messages return to their places and are delivered again, perhaps to the same consumers. If these consumers have processed them, they are processed twice.",
    ],
    submit: () =>
      post(at("queues", vhost, name, "requeue"), {
        deliveries: selected.map((each) => ({ channel: each.channel_details.name, delivery_tag: each.delivery_tag, offset: each.offset })),
      }),
    done: (answer) => {
      done();
      return `${format.plural(answer.requeued, "message")} requeued${answer.settled ? `; ${format.count(answer.settled)} were settled before` : ""}.`;
    },
  });
}
