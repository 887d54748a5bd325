// A list of rows of different heights, of which only those in view are elements.
//
// Rows that have been rendered have measured heights, the others estimated ones; their sums place each row. What the
// user looks at must not move when rows above are loaded, measured or changed. So the position that counts is not the
// scroll offset but the anchor: the rows in view and their distances from the upper edge, or the end of the list. After
// each change the scroll offset is computed from the anchor again, before the browser paints. Only the user's own
// scrolling moves the anchor.
import { Component, html } from "./lib.js";

const OVERSCAN_PX = 600;
const END_PX = 24; // so close to the end counts as at the end
const SETTLE_MAX = 8; // renderings until the rows in view fill it: estimates were too large

// Props: rows (with `key`), estimate(row, width), renderRow(row, index), onView({ first, last, isAtEnd }), onNearStart,
// onNearEnd, hasEnd (whether the last row is the end), start ({ key, align } or null for the end), restored (the
// `anchor` of an earlier list), label, isBusy, onKeyDown, and handle, whose `current` is this list while it is shown.
export class VirtualList extends Component {
  scroller = null;
  list = null;
  heights = new Map();
  tops = new Float64Array(1);
  anchor = { isAtEnd: true };
  window = { first: 0, last: 0 };
  width = 0;
  viewport = 0;
  expectedTop = -1;
  laidOut = null;
  observed = new Map();
  hadFocus = false;
  frame = 0;

  constructor(props) {
    super(props);
    if (props.restored) this.anchor = props.restored;
    if (props.start) this.anchor = { rows: [{ key: props.start.key, offset: 0 }], align: props.start.align };
    this.rowsObserver = new ResizeObserver(() => this.settle());
    this.scrollerObserver = new ResizeObserver(() => this.resize());
  }

  componentDidMount() {
    this.props.handle.current = this;
    this.width = this.scroller.clientWidth;
    this.viewport = this.scroller.clientHeight;
    this.scrollerObserver.observe(this.scroller);
    this.forceUpdate();
  }

  componentDidUpdate() {
    if (this.hadFocus && !this.scroller.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
    this.settle();
  }

  componentWillUnmount() {
    this.props.handle.current = null;
    this.rowsObserver.disconnect();
    this.scrollerObserver.disconnect();
    cancelAnimationFrame(this.frame);
  }

  // ── public ──────────────────────────────────────────────────────────────────────────────────────

  scrollToEnd() {
    this.anchor = { isAtEnd: true };
    this.forceUpdate();
  }

  scrollToRow(key, align = "center") {
    this.anchor = { rows: [{ key, offset: 0 }], align };
    this.forceUpdate();
  }

  // Scroll as little as possible so that a row is in view.
  reveal(key) {
    const index = this.props.rows.findIndex((each) => each.key === key);
    if (index < 0) return;
    const top = this.tops[index] - this.scroller.scrollTop;
    const bottom = this.tops[index + 1] - this.scroller.scrollTop;
    if (top < 0) this.anchor = { rows: [{ key, offset: 8 }] };
    else if (bottom > this.viewport) this.anchor = { rows: [{ key, offset: this.viewport - (bottom - top) - 8 }] };
    this.forceUpdate();
  }

  elementOf(key) {
    return [...this.list.children].find((each) => each.dataset.key === key) ?? null;
  }

  // The index of the last row that is in view.
  lastShown() {
    return this.indexAt(this.scroller.scrollTop + this.viewport - 1);
  }

  get isAtEnd() {
    return Boolean(this.anchor.isAtEnd);
  }

  // ── layout ──────────────────────────────────────────────────────────────────────────────────────

  get total() {
    return this.tops[this.props.rows.length];
  }

  layOut() {
    const { rows, estimate } = this.props;
    if (this.tops.length < rows.length + 1) this.tops = new Float64Array(Math.max(rows.length + 1, this.tops.length * 2));
    let top = 0;
    for (let index = 0; index < rows.length; index += 1) {
      this.tops[index] = top;
      top += this.heights.get(rows[index].key) ?? estimate(rows[index], this.width);
    }
    this.tops[rows.length] = top;
    this.laidOut = rows;
  }

  // The index of the row at an offset.
  indexAt(offset) {
    let low = 0;
    let high = this.props.rows.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= offset) low = middle;
      else high = middle - 1;
    }
    return Math.max(0, low);
  }

  // The scroll offset at which the anchor is where it was.
  topOfAnchor() {
    const end = Math.max(0, this.total - this.viewport);
    if (this.anchor.isAtEnd) return end;
    const { rows } = this.props;
    for (const { key, offset } of this.anchor.rows) {
      const index = this.indexOfKey(key);
      if (index < 0) continue;
      const height = this.tops[index + 1] - this.tops[index];
      const shift = this.anchor.align === "center" ? Math.max(0, (this.viewport - height) / 2) : this.anchor.align === "start" ? 40 : offset;
      return Math.min(end, Math.max(0, this.tops[index] - shift));
    }
    return rows.length ? Math.min(end, this.scroller?.scrollTop ?? 0) : 0;
  }

  indexOfKey(key) {
    const { rows } = this.props;
    if (this.indexes?.rows !== rows) {
      this.indexes = { rows, byKey: new Map() };
      rows.forEach((each, index) => this.indexes.byKey.set(each.key, index));
    }
    return this.indexes.byKey.get(key) ?? -1;
  }

  chooseWindow(top) {
    const count = this.props.rows.length;
    if (!count) return { first: 0, last: 0 };
    return {
      first: this.indexAt(top - OVERSCAN_PX),
      last: Math.min(count, this.indexAt(top + this.viewport + OVERSCAN_PX) + 1),
    };
  }

  // Measure what is rendered, and restore the anchor. Runs after each rendering and each change of a row's height.
  settle() {
    if (!this.scroller) return;
    const { rows } = this.props;
    let isChanged = false;
    const rendered = new Set();
    for (const element of this.list.children) {
      const { key } = element.dataset;
      rendered.add(element);
      if (!this.observed.has(element)) {
        this.observed.set(element, key);
        this.rowsObserver.observe(element);
      }
      const height = element.getBoundingClientRect().height;
      if (Math.abs((this.heights.get(key) ?? -1) - height) > 0.1) {
        this.heights.set(key, height);
        isChanged = true;
      }
    }
    for (const element of this.observed.keys()) {
      if (!rendered.has(element)) {
        this.observed.delete(element);
        this.rowsObserver.unobserve(element);
      }
    }
    if (isChanged) this.layOut();
    const { first, last } = this.window;
    this.list.style.paddingTop = `${this.tops[Math.min(first, rows.length)]}px`;
    this.list.style.paddingBottom = `${this.total - this.tops[Math.min(last, rows.length)]}px`;
    this.restore();
    const wanted = this.chooseWindow(this.scroller.scrollTop);
    if ((wanted.first < first || wanted.last > last) && this.rounds < SETTLE_MAX) {
      this.rounds += 1;
      this.forceUpdate();
      return;
    }
    this.rounds = 0;
    this.report();
  }

  rounds = 0;

  restore() {
    const target = this.topOfAnchor();
    if (Math.abs(this.scroller.scrollTop - target) > 0.5) this.scroller.scrollTop = target;
    this.expectedTop = this.scroller.scrollTop;
  }

  resize() {
    const { clientWidth, clientHeight } = this.scroller;
    if (clientWidth === this.width && clientHeight === this.viewport) return;
    if (clientWidth !== this.width) this.heights.clear(); // lines break elsewhere
    this.width = clientWidth;
    this.viewport = clientHeight;
    this.laidOut = null;
    this.forceUpdate();
  }

  onScroll = () => {
    if (Math.abs(this.scroller.scrollTop - this.expectedTop) < 1) return; // set by `restore`
    if (this.scroller.clientWidth !== this.width || this.scroller.clientHeight !== this.viewport) return; // moved by a resize
    this.expectedTop = this.scroller.scrollTop;
    this.drop();
    const wanted = this.chooseWindow(this.scroller.scrollTop);
    const margin = OVERSCAN_PX / 2;
    const isCovered =
      (this.window.first === 0 || this.tops[this.window.first] < this.scroller.scrollTop - margin) &&
      (this.window.last === this.props.rows.length || this.tops[this.window.last] > this.scroller.scrollTop + this.viewport + margin);
    if (!isCovered && (wanted.first !== this.window.first || wanted.last !== this.window.last)) this.forceUpdate();
    else this.report();
  };

  // Drop the anchor where the user has scrolled to.
  drop() {
    const rows = this.laidOut;
    const top = this.scroller.scrollTop;
    if (this.props.hasEnd && this.scroller.scrollHeight - top - this.viewport <= END_PX) {
      this.anchor = { isAtEnd: true };
      return;
    }
    const anchors = [];
    for (let index = this.indexAt(top); index < rows.length && this.tops[index] < top + this.viewport; index += 1) {
      anchors.push({ key: rows[index].key, offset: this.tops[index] - top });
    }
    this.anchor = { rows: anchors };
  }

  report() {
    const { rows, onView, onNearStart, onNearEnd } = this.props;
    const top = this.scroller.scrollTop;
    if (!this.viewport) return;
    // All that follows the wanted row is in view: the list grows at its end.
    if (this.anchor.align && this.props.hasEnd && this.total - top - this.viewport <= 1) this.anchor = { isAtEnd: true };
    // The last row whose end is in view.
    let last = this.indexAt(top + this.viewport);
    if (rows.length && this.tops[last + 1] > top + this.viewport + 2) last -= 1;
    onView?.({ first: this.indexAt(top), last, isAtEnd: this.isAtEnd });
    if (top < this.viewport + OVERSCAN_PX) onNearStart?.();
    if (this.total - top - this.viewport < this.viewport + OVERSCAN_PX) onNearEnd?.();
  }

  render({ rows, renderRow, label, isBusy, onKeyDown, hasEnd, children }) {
    // What is appended below is no longer the end, so what is in view stays.
    if (!hasEnd && this.anchor.isAtEnd && this.laidOut?.length && this.scroller) this.drop();
    this.hadFocus = this.list?.contains(document.activeElement) ?? false;
    if (this.laidOut !== rows) this.layOut();
    this.window = this.chooseWindow(this.topOfAnchor());
    const shown = [];
    for (let index = this.window.first; index < this.window.last; index += 1) shown.push(renderRow(rows[index], index));
    return html`<div class="messages" ref=${(element) => (this.scroller = element)} onScroll=${this.onScroll} tabindex="0" onKeyDown=${onKeyDown}
      role="group" aria-label=${label}>
      ${children}
      <div class="rows" role="feed" aria-label=${label} aria-busy=${isBusy ? "true" : "false"} ref=${(element) => (this.list = element)}>${shown}</div>
    </div>`;
  }
}
