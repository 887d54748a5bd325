// Charts over time: a drawing, and the same numbers as a table and as CSV. Each has an address: `?chart=rates` shows
// only it, `view-rates=table` the table. Sparklines are paths.
import { download, toCsv } from "./components.js";
import * as format from "./format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { setQuery, useRoute } from "./router.js";
import uPlot from "./vendor/uplot.js";

export const RANGES = [
  ["5m", "5 min", 300],
  ["15m", "15 min", 900],
  ["1h", "1 h", 3_600],
  ["24h", "24 h", 86_400],
];
const TABLE_ROWS_MAX = 200;

export const rangeSeconds = (id) => (RANGES.find(([each]) => each === id) ?? RANGES[1])[2];

export function RangePicker({ current = "15m", ranges = RANGES }) {
  return html`<div class="segmented" role="group" aria-label="Time range">
    ${ranges.map(
      ([id, label]) => html`<button type="button" key=${id} aria-pressed=${id === current}
        onClick=${() => setQuery({ range: id === "15m" ? "" : id })}>${label}</button>`,
    )}
  </div>`;
}

const themeListeners = new Set();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themeChanged);

export function themeChanged() {
  for (const each of themeListeners) each();
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// `times` in milliseconds; `series` is [{ label, color, values }], `unit` formats a value.
export function Chart({ id, title, times, series, unit = format.brief, seconds, binary = false, empty }) {
  const { query } = useRoute();
  const isTable = query[`view-${id}`] === "table";
  const isAlone = query.chart === id;
  const [cursor, setCursor] = useState(null);
  const last = times.length - 1;
  const shown = cursor !== null && cursor <= last ? cursor : last;
  const summary = series
    .map((each) => `${each.label} ${last >= 0 ? unit(each.values[last]) : format.NONE}`)
    .join(", ");
  const csv = () =>
    download(
      `${title}.csv`,
      "text/csv",
      toCsv([
        ["time", ...series.map((each) => each.label)],
        ...times.map((at, index) => [new Date(at).toISOString(), ...series.map((each) => each.values[index])]),
      ]),
    );
  return html`<figure class="chart ${isAlone ? "alone" : ""}" id="chart-${id}">
    <figcaption class="chart-head">
      <h2>${title}</h2>
      <div class="chart-actions">
        <button type="button" class="button small ghost" aria-pressed=${isTable}
          onClick=${() => setQuery({ [`view-${id}`]: isTable ? "" : "table" })}>Table</button>
        <button type="button" class="button small ghost" onClick=${csv} disabled=${last < 0}>CSV</button>
        <button type="button" class="button small ghost" aria-pressed=${isAlone}
          onClick=${() => setQuery({ chart: isAlone ? "" : id })}>${isAlone ? "All charts" : "Enlarge"}</button>
      </div>
    </figcaption>
    <ul class="legend">
      ${series.map(
        (each) => html`<li key=${each.label}><span class="swatch ${each.color}" aria-hidden="true"></span>
          <span class="legend-label">${each.label}</span>
          <span class="legend-value">${shown >= 0 ? unit(each.values[shown]) : format.NONE}</span></li>`,
      )}
      <li class="legend-time">${cursor !== null && shown >= 0 ? format.time(times[shown]) : ""}</li>
    </ul>
    ${isTable
      ? html`<${ChartTable} times=${times} series=${series} unit=${unit} title=${title} />`
      : html`<${Drawing} times=${times} series=${series} unit=${unit} seconds=${seconds} binary=${binary} alone=${isAlone}
          label="${title}: ${summary}" onCursor=${setCursor} />`}
    ${last < 1 && empty && html`<p class="chart-empty">${empty}</p>`}
  </figure>`;
}

function ChartTable({ times, series, unit, title }) {
  const first = Math.max(0, times.length - TABLE_ROWS_MAX);
  const rows = [];
  for (let index = times.length - 1; index >= first; index -= 1) rows.push(index);
  return html`<div class="chart-table" tabindex="0" role="region" aria-label="${title}: table">
    <table class="table">
      <thead><tr><th scope="col">Time</th>${series.map((each) => html`<th scope="col" class="number">${each.label}</th>`)}</tr></thead>
      <tbody>${rows.map((index) => html`<tr key=${times[index]}><td>${format.time(times[index])}</td>
        ${series.map((each) => html`<td class="number">${unit(each.values[index])}</td>`)}</tr>`)}</tbody>
    </table>
    ${first > 0 && html`<p class="muted">The newest ${TABLE_ROWS_MAX} rows. CSV has all ${format.count(times.length)}.</p>`}
  </div>`;
}

function Drawing({ times, series, unit, seconds, binary, alone, label, onCursor }) {
  const box = useRef(null);
  const plot = useRef(null);
  const latest = useRef(null);
  latest.current = { times, series, unit, seconds, binary };

  useLayoutEffect(() => {
    const element = box.current;
    const build = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        options(element, latest, (index) => onCursor(index)),
        data(latest.current),
        element,
      );
    };
    build();
    const resize = new ResizeObserver(() => {
      const { width, height } = element.getBoundingClientRect();
      if (width > 0 && (plot.current.width !== Math.floor(width) || plot.current.height !== Math.floor(height))) {
        plot.current.setSize({ width: Math.floor(width), height: Math.floor(height) });
      }
    });
    resize.observe(element);
    themeListeners.add(build);
    return () => {
      themeListeners.delete(build);
      resize.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [series.length]);

  useEffect(() => {
    plot.current?.setData(data(latest.current));
  }, [times, times.length, times[times.length - 1], seconds]);

  return html`<div class="plot ${alone ? "tall" : ""}" ref=${box} role="img" aria-label=${label}></div>`;
}

function data({ times, series }) {
  return [times.map((each) => each / 1000), ...series.map((each) => each.values)];
}

function options(element, latest, onCursor) {
  const { width, height } = element.getBoundingClientRect();
  const grid = { stroke: color("--line"), width: 1 };
  const axis = { stroke: color("--muted"), font: `11px ${color("--font")}`, grid, ticks: { show: false } };
  return {
    width: Math.floor(width) || 400,
    height: Math.floor(height) || 180,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
    padding: [8, 8, 0, 0],
    scales: {
      x: {
        time: true,
        range: (_, min, max) => {
          const end = max ?? Date.now() / 1000;
          return [end - latest.current.seconds, end];
        },
      },
      y: { range: (_, min, max) => [0, latest.current.binary ? niceBinaryTop(max) : niceTop(max)] },
    },
    axes: [
      { ...axis, size: 24, gap: 4, space: 70, values: (_, ticks) => ticks.map((each) => clockLabel(each, latest.current.seconds)) },
      {
        ...axis,
        size: 58,
        gap: 6,
        space: 34,
        incrs: latest.current.binary ? Array.from({ length: 50 }, (_, power) => 2 ** power) : undefined,
        values: (_, ticks) => ticks.map((each) => latest.current.unit(each)),
      },
    ],
    series: [
      {},
      ...latest.current.series.map((each) => ({
        label: each.label,
        stroke: color(`--${each.color}`),
        width: 1.5,
        fill: each.fill ? `${color(`--${each.color}`)}22` : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: {
      setCursor: [(plot) => onCursor(plot.cursor.left >= 0 ? plot.cursor.idx ?? null : null)],
    },
  };
}

function niceTop(max) {
  if (!max || max <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(max));
  for (const factor of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) if (factor * power >= max * 1.02) return factor * power;
  return max * 1.1;
}

function niceBinaryTop(max) {
  if (!max || max <= 0) return 1024;
  const power = 2 ** Math.floor(Math.log2(max));
  for (const factor of [1, 1.25, 1.5, 1.75, 2]) if (factor * power >= max * 1.02) return factor * power;
  return 2.5 * power;
}

function clockLabel(seconds, range) {
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return range <= 300 ? `${clock}:${two(at.getSeconds())}` : clock;
}

// ── sparklines ────────────────────────────────────────────────────────────────────────────────────

const SPARK_WIDTH = 72;
const SPARK_HEIGHT = 18;

export function Sparkline({ values, label }) {
  if (values.length < 2) return html`<svg class="spark flat" width=${SPARK_WIDTH} height=${SPARK_HEIGHT} aria-hidden="true"><line x1="1" x2=${SPARK_WIDTH - 1} y1=${SPARK_HEIGHT - 2} y2=${SPARK_HEIGHT - 2} /></svg>`;
  const max = Math.max(...values, 1);
  const step = (SPARK_WIDTH - 2) / (values.length - 1);
  const points = values.map((value, index) => `${(1 + index * step).toFixed(1)} ${(SPARK_HEIGHT - 2 - (value / max) * (SPARK_HEIGHT - 4)).toFixed(1)}`);
  return html`<svg class="spark" width=${SPARK_WIDTH} height=${SPARK_HEIGHT} role="img" aria-label=${label}><path d="M${points.join("L")}" /></svg>`;
}

