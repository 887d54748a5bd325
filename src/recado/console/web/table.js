// Tables that stay smooth with 20,000 rows: only the rows in view are elements. Filter, order and columns are in the
// address. A column is { id, label, value(row), cell(row), number, width, hide }; `hide` is the class of a breakpoint.
import { Component, html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { setQuery } from "./router.js";
import { count } from "./format.js";

const ROW_PX = 34;
const OVERSCAN = 8;
const WHOLE_MAX = 60; // rows; a short table is in the page as it is, without its own scrollbar

export function compareBy(column, descending) {
  const sign = descending ? -1 : 1;
  return (one, other) => {
    const a = column.value(one);
    const b = column.value(other);
    if (a === b) return 0;
    if (a == null) return 1;
    if (b == null) return -1;
    return (a < b ? -1 : 1) * sign;
  };
}

export function parseSort(text, columns, fallback) {
  const chosen = text || fallback || columns[0].id;
  const descending = chosen.startsWith("-");
  const id = descending ? chosen.slice(1) : chosen;
  return { id: columns.some((each) => each.id === id) ? id : columns[0].id, descending };
}

export function sortRows(rows, columns, sort) {
  const column = columns.find((each) => each.id === sort.id);
  return [...rows].sort(compareBy(column, sort.descending));
}

// `isBroad`: on a phone the table has a least width and scrolls sideways in its frame, instead of hiding columns.
export function Table({ rows, columns, rowKey, sort, sortName = "sort", label, empty, version, isBroad = false }) {
  const isWhole = rows.length <= WHOLE_MAX;
  const scroller = useRef(null);
  const frame = useRef(0);
  const [view, setView] = useState({ first: 0, count: 40 });
  const look = useCallback(() => {
    frame.current = 0;
    const element = scroller.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW_PX) - OVERSCAN);
    const shown = Math.ceil(element.clientHeight / ROW_PX) + 2 * OVERSCAN;
    setView((before) => (before.first === first && before.count === shown ? before : { first, count: shown }));
  }, []);
  useLayoutEffect(() => {
    if (isWhole) return undefined;
    look();
    const resize = new ResizeObserver(look);
    resize.observe(scroller.current);
    return () => resize.disconnect();
  }, [isWhole, look]);
  useEffect(() => {
    if (scroller.current) scroller.current.scrollTop = 0;
  }, [sort?.id, sort?.descending]);
  const onScroll = () => {
    frame.current ||= requestAnimationFrame(look);
  };

  const first = isWhole ? 0 : Math.min(view.first, Math.max(0, rows.length - view.count));
  const shown = isWhole ? rows : rows.slice(first, first + view.count);
  const below = rows.length - first - shown.length;
  const width = columns.length;
  if (!rows.length && empty) return empty;
  return html`<div class="scroller ${isWhole ? "whole" : ""}" ref=${scroller} onScroll=${isWhole ? undefined : onScroll}
    tabindex=${isWhole ? undefined : 0} role=${isWhole ? undefined : "region"} aria-label=${isWhole ? undefined : label}>
    <table class="table fixed ${isBroad ? "broad" : ""}" aria-rowcount=${isWhole ? undefined : rows.length + 1} aria-label=${label}>
      <colgroup>${columns.map((each) => html`<col key=${each.id} class="${each.width ?? ""} ${each.hide ?? ""}" />`)}</colgroup>
      <thead><tr aria-rowindex=${isWhole ? undefined : 1}>
        ${columns.map((each) => html`<${Head} key=${each.id} column=${each} sort=${sort} name=${sortName} />`)}
      </tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="spacer" aria-hidden="true" key="above"><td colspan=${width} style=${{ height: `${first * ROW_PX}px` }}></td></tr>`}
        ${shown.map((row, index) => {
          const key = rowKey(row);
          return html`<${Row} key=${key} row=${row} columns=${columns} version=${version} index=${isWhole ? undefined : first + index + 2} />`;
        })}
        ${below > 0 && html`<tr class="spacer" aria-hidden="true" key="below"><td colspan=${width} style=${{ height: `${below * ROW_PX}px` }}></td></tr>`}
      </tbody>
    </table>
  </div>`;
}

// A row is rendered again only if it, the columns, or the data that it was read from (`version`) are others: while
// scrolling, nearly all rows stay.
class Row extends Component {
  shouldComponentUpdate(next) {
    const { row, columns, version, index } = this.props;
    return next.row !== row || next.columns !== columns || next.version !== version || next.index !== index || version === undefined;
  }

  render({ row, columns, index }) {
    return html`<tr aria-rowindex=${index}>
      ${columns.map((each) => html`<td key=${each.id} class="${each.number ? "number" : ""} ${each.hide ?? ""}">${each.cell ? each.cell(row) : each.value(row)}</td>`)}
    </tr>`;
  }
}

function Head({ column, sort, name }) {
  const className = `${column.number ? "number" : ""} ${column.hide ?? ""}`;
  if (!sort || column.sortable === false) return html`<th scope="col" class=${className}>${column.label}</th>`;
  const isSorted = sort.id === column.id;
  const choose = () => {
    const descending = isSorted ? !sort.descending : Boolean(column.number);
    setQuery({ [name]: `${descending ? "-" : ""}${column.id}` });
  };
  return html`<th scope="col" class=${className} aria-sort=${isSorted ? (sort.descending ? "descending" : "ascending") : undefined}>
    <button type="button" class="sort" onClick=${choose} title=${column.title}>${column.label}<span class="arrow" aria-hidden="true">${isSorted ? (sort.descending ? "↓" : "↑") : ""}</span></button>
  </th>`;
}

// The field that `/` focuses. The address follows a moment after the last key.
export function FilterField({ value, label = "Filter", placeholder, shown, total }) {
  const [text, setText] = useState(value ?? "");
  const timer = useRef(0);
  const sent = useRef(value ?? "");
  useEffect(() => {
    if ((value ?? "") !== sent.current) {
      sent.current = value ?? "";
      setText(value ?? "");
    }
  }, [value]);
  const change = (event) => {
    const next = event.target.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = next;
      setQuery({ filter: next }, { replace: true });
    }, 120);
  };
  return html`<div class="filter" role="search">
    <input type="search" data-filter aria-label=${label} placeholder=${placeholder ?? "Filter  /"} value=${text} onInput=${change}
      autocomplete="off" spellcheck=${false} />
    ${total != null && html`<span class="filter-count" role="status">${shown === total ? count(total) : `${count(shown)} of ${count(total)}`}</span>`}
  </div>`;
}

