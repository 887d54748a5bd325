// Bindings as a diagram: exchanges on the left, destinations on the right, routing keys on the lines.
import { exchangeLabel, exchangeSegment } from "../components.js";
import * as format from "../format.js";
import { html } from "../lib.js";
import { href } from "../router.js";

const BOX_WIDTH = 210;
const BOX_HEIGHT = 30;
const GAP = 14;
const MIDDLE = 250;
const SHOWN_MAX = 40;
const NAME_MAX = 25;
const KEY_MAX = 30;

const cut = (text, max) => (text.length > max ? `${text.slice(0, max - 1)}…` : text);

export function Diagram({ bindings, vhost, focus }) {
  const shown = bindings.slice(0, SHOWN_MAX);
  const left = [...new Set(shown.map((each) => each.source))];
  const right = [...new Map(shown.map((each) => [`${each.destination_type}\n${each.destination}`, each])).entries()];
  const height = Math.max(left.length, right.length) * (BOX_HEIGHT + GAP) + GAP;
  const place = (index, total) => ((index + 0.5) * height) / total - BOX_HEIGHT / 2;
  const leftY = new Map(left.map((name, index) => [name, place(index, left.length)]));
  const rightY = new Map(right.map(([key], index) => [key, place(index, right.length)]));
  const startX = BOX_WIDTH + 2;
  const endX = BOX_WIDTH + MIDDLE;
  const width = endX + BOX_WIDTH + 2;
  const lines = new Map();
  for (const each of shown) {
    const key = `${each.source}\t${each.destination_type}\n${each.destination}`;
    if (!lines.has(key)) lines.set(key, []);
    lines.get(key).push(each);
  }
  const isHere = (kind, name) => focus && focus[0] === kind && focus[1] === name;
  return html`<div class="diagram" tabindex="0" role="region" aria-label="Diagram of ${format.plural(shown.length, "binding")}; the table below has the same">
    <svg width=${width} height=${height} viewBox="0 0 ${width} ${height}" aria-hidden="true">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0.5L8 4L0 7.5z" /></marker></defs>
      ${[...lines.values()].map((group) => {
        const [each] = group;
        const y1 = leftY.get(each.source) + BOX_HEIGHT / 2;
        const y2 = rightY.get(`${each.destination_type}\n${each.destination}`) + BOX_HEIGHT / 2;
        const keys = group.length === 1 ? labelOf(each) : `${group.length} bindings`;
        // A label stands at the side on which the lines end apart from each other.
        const atStart = left.length > right.length;
        const x = atStart ? startX + 10 : endX - 14;
        return html`<path d="M${startX} ${y1}C${startX + MIDDLE / 2} ${y1} ${endX - MIDDLE / 2} ${y2} ${endX - 2} ${y2}" marker-end="url(#arrow)" />
          <text class="key" x=${x} y=${(atStart ? y1 : y2) - 6} text-anchor=${atStart ? "start" : "end"}>${cut(keys, KEY_MAX)}</text>`;
      })}
      ${left.map((name) => html`<a href=${href(["exchanges", vhost, exchangeSegment(name)])} tabindex="-1"><${Box} x=${1} y=${leftY.get(name)} text=${exchangeLabel(name)} kind="exchange" here=${isHere("exchange", name)} /></a>`)}
      ${right.map(([key, each]) => html`<a href=${href([each.destination_type === "queue" ? "queues" : "exchanges", vhost, each.destination])} tabindex="-1"><${Box} x=${endX} y=${rightY.get(key)} text=${each.destination} kind=${each.destination_type} here=${isHere(each.destination_type, each.destination)} /></a>`)}
    </svg>
    ${bindings.length > SHOWN_MAX && html`<p class="muted">The first ${SHOWN_MAX} of ${format.count(bindings.length)} bindings.</p>`}
  </div>`;
}

function labelOf(binding) {
  const entries = Object.entries(binding.arguments ?? {});
  if (entries.length) return entries.map(([name, value]) => `${name}=${format.text(value)}`).join(" ");
  return binding.routing_key;
}

function Box({ x, y, text, kind, here }) {
  return html`<g class="${kind} ${here ? "here" : ""}"><title>${text}</title>
    <rect x=${x} y=${y} width=${BOX_WIDTH} height=${BOX_HEIGHT} rx="6" />
    <text x=${x + 12} y=${y + 19.5}>${cut(text, NAME_MAX)}</text></g>`;
}
