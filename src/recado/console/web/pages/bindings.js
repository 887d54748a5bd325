// Bindings as a diagram (exchanges on the left, destinations on the right, routing keys on the lines) and as a list.
import { at, remove } from "../api.js";
import { confirm, Empty, exchangeLabel, exchangeSegment, Name } from "../components.js";
import * as format from "../format.js";
import { html, useMemo } from "../lib.js";
import { href } from "../router.js";
import { FilterField, parseSort, sortRows, Table } from "../table.js";

const BOX_WIDTH = 210;
const BOX_HEIGHT = 30;
const GAP = 14;
const MIDDLE = 250;
const WHOLE_MAX = 40; // lines; a diagram of more has the first of them only, so that the list stays in sight
const SHOWN_MAX = 10;
const NAME_MAX = 25;
const KEY_MAX = 30;

const cut = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);

// `query` is that of the page: it has the filter and the order.
export function Bindings({ bindings, vhost, focus, query, reload }) {
  const columns = useMemo(() => columnsOf(vhost, reload), [vhost]);
  const { filter = "" } = query;
  const sort = parseSort(query.sort, columns);
  const rows = useMemo(() => {
    const wanted = filter.toLowerCase();
    return sortRows(bindings.filter((each) => !wanted || textOf(each).toLowerCase().includes(wanted)), columns, sort);
  }, [bindings, columns, filter, sort.id, sort.descending]);
  return html`${bindings.length > SHOWN_MAX && html`<div class="toolbar"><${FilterField} value=${filter} label="Filter bindings" shown=${rows.length} total=${bindings.length} /></div>`}
    ${rows.length > 0 && html`<${Diagram} bindings=${rows} vhost=${vhost} focus=${focus} />`}
    <${Table} rows=${rows} columns=${columns} rowKey=${keyOf} sort=${sort} label="List of bindings" version=${bindings} isBroad=${true} empty=${html`<${Empty} title="Nothing matches the filter." />`} />`;
}

const keyOf = (each) => `${each.source}\n${each.destination_type}\n${each.destination}\n${each.properties_key}`;
const argumentsOf = (each) => Object.entries(each.arguments ?? {}).map(([name, value]) => `${name}=${format.text(value)}`);
const textOf = (each) => [exchangeLabel(each.source), each.destination, each.routing_key, ...argumentsOf(each)].join(" ");

function columnsOf(vhost, reload) {
  return [
    { id: "source", label: "From", value: (each) => each.source, cell: (each) => html`<a href=${href(["exchanges", vhost, exchangeSegment(each.source)])}><${Name}>${exchangeLabel(each.source)}<//></a>`, width: "w-l" },
    { id: "destination", label: "To", value: (each) => each.destination, cell: (each) => html`<a href=${href([each.destination_type === "queue" ? "queues" : "exchanges", vhost, each.destination])}><${Name}>${each.destination}<//></a>` },
    { id: "key", label: "Routing key", value: (each) => each.routing_key, cell: (each) => html`<code><${Name}>${each.routing_key}<//></code>` },
    { id: "arguments", label: "Arguments", value: (each) => argumentsOf(each).join(" "), cell: (each) => (argumentsOf(each).length ? html`<code class="name" title=${argumentsOf(each).join("\n")}>${argumentsOf(each).join(" ")}</code>` : html`<span class="zero">none</span>`), hide: "hide-s" },
    { id: "actions", label: html`<span class="offscreen">Actions</span>`, sortable: false, value: () => "", cell: (each) => html`<div class="cell-actions"><button class="button small danger" onClick=${() => askUnbind(vhost, each, reload)}>Remove</button></div>`, width: "w-m" },
  ];
}

function askUnbind(vhost, each, reload) {
  const kind = each.destination_type === "queue" ? "q" : "e";
  confirm({
    title: `Remove the binding from ${exchangeLabel(each.source)} to ${each.destination}?`,
    label: "Remove binding",
    lines: [`Messages with the routing key "${each.routing_key}" no longer take this way.`],
    submit: async () => {
      await remove(at("bindings", vhost, "e", exchangeSegment(each.source), kind, each.destination, each.properties_key));
      reload();
    },
    done: "The binding was removed.",
  });
}

function Diagram({ bindings, vhost, focus }) {
  const lines = new Map(); // the bindings between two places share a line
  for (const each of bindings) {
    const key = `${each.source}\t${each.destination_type}\n${each.destination}`;
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(each);
  }
  const groups = lines.size > WHOLE_MAX ? [...lines.values()].slice(0, SHOWN_MAX) : [...lines.values()];
  const shown = groups.map(([each]) => each);
  const left = [...new Set(shown.map((each) => each.source))];
  const right = [...new Map(shown.map((each) => [`${each.destination_type}\n${each.destination}`, each])).entries()];
  const height = Math.max(left.length, right.length) * (BOX_HEIGHT + GAP) + GAP;
  const place = (index, total) => ((index + 0.5) * height) / total - BOX_HEIGHT / 2;
  const leftY = new Map(left.map((name, index) => [name, place(index, left.length)]));
  const rightY = new Map(right.map(([key], index) => [key, place(index, right.length)]));
  const startX = BOX_WIDTH + 2;
  const endX = BOX_WIDTH + MIDDLE;
  const width = endX + BOX_WIDTH + 2;
  const isHere = (kind, name) => focus && focus[0] === kind && focus[1] === name;
  return html`<div class="diagram" tabindex="0" role="region" aria-label="Diagram of ${format.plural(bindings.length, "binding")}; the table below has the same">
    <svg width=${width} height=${height} viewBox="0 0 ${width} ${height}" aria-hidden="true">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0.5L8 4L0 7.5z" /></marker></defs>
      ${groups.map((group) => {
        const [each] = group;
        const y1 = leftY.get(each.source) + BOX_HEIGHT / 2;
        const y2 = rightY.get(`${each.destination_type}\n${each.destination}`) + BOX_HEIGHT / 2;
        const keys = group.length === 1 ? labelOf(each) : `${format.count(group.length)} bindings`;
        // A label stands at the side on which the lines end apart from each other.
        const atStart = left.length > right.length;
        const x = atStart ? startX + 10 : endX - 14;
        return html`<path d="M${startX} ${y1}C${startX + MIDDLE / 2} ${y1} ${endX - MIDDLE / 2} ${y2} ${endX - 2} ${y2}" marker-end="url(#arrow)" />
          <text class="key" x=${x} y=${(atStart ? y1 : y2) - 6} text-anchor=${atStart ? "start" : "end"}>${cut(keys, KEY_MAX)}</text>`;
      })}
      ${left.map((name) => html`<a href=${href(["exchanges", vhost, exchangeSegment(name)])} tabindex="-1"><${Box} x=${1} y=${leftY.get(name)} text=${exchangeLabel(name)} kind="exchange" here=${isHere("exchange", name)} /></a>`)}
      ${right.map(([key, each]) => html`<a href=${href([each.destination_type === "queue" ? "queues" : "exchanges", vhost, each.destination])} tabindex="-1"><${Box} x=${endX} y=${rightY.get(key)} text=${each.destination} kind=${each.destination_type} here=${isHere(each.destination_type, each.destination)} /></a>`)}
    </svg>
    ${lines.size > groups.length && html`<p class="muted">The first ${groups.length} of ${format.count(lines.size)} pairs of source and destination. The filter chooses others.</p>`}
  </div>`;
}

function labelOf(binding) {
  return argumentsOf(binding).join(" ") || binding.routing_key;
}

function Box({ x, y, text, kind, here }) {
  return html`<g class="${kind} ${here ? "here" : ""}"><title>${text}</title>
    <rect x=${x} y=${y} width=${BOX_WIDTH} height=${BOX_HEIGHT} rx="6" />
    <text x=${x + 12} y=${y + 19.5}>${cut(text, NAME_MAX)}</text></g>`;
}
