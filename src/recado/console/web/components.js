// Small parts that all pages share. Every text of a client (names, bodies, headers) is a text node or an attribute.
import { ApiError } from "./api.js";
import * as format from "./format.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { href, setQuery } from "./router.js";

// ── text ──────────────────────────────────────────────────────────────────────────────────────────

// Names keep their order of characters in a text that runs from right to left, and show where spaces are.
export function Name({ children, muted = false }) {
  const name = children ?? "";
  if (name === "") return html`<span class="muted">(empty)</span>`;
  return html`<bdi class=${muted ? "name muted" : "name"} title=${name}>${name}</bdi>`;
}

export const exchangeLabel = (name) => (name === "" ? "(default)" : name);
export const exchangeSegment = (name) => (name === "" ? "amq.default" : name);

export function Badge({ kind = "", children, title }) {
  return html`<span class="badge ${kind}" title=${title}>${children}</span>`;
}

export function Features({ durable, autoDelete, exclusive, internal }) {
  return html`<span class="features">
    ${durable && html`<${Badge} title="durable: survives a restart">durable<//>`}
    ${autoDelete && html`<${Badge} title="deleted when it is no longer used">auto-delete<//>`}
    ${exclusive && html`<${Badge} title="belongs to one connection">exclusive<//>`}
    ${internal && html`<${Badge} title="clients cannot publish to it">internal<//>`}
  </span>`;
}

export function Json({ value }) {
  return html`<pre class="json">${JSON.stringify(value, null, 2)}</pre>`;
}

// Arguments as a list of names and values.
export function Arguments({ values }) {
  const entries = Object.entries(values ?? {});
  if (!entries.length) return html`<span class="muted">none</span>`;
  return html`<dl class="arguments">
    ${entries.map(([name, value]) => html`<div key=${name}><dt><${Name}>${name}<//></dt><dd>${format.text(value)}</dd></div>`)}
  </dl>`;
}

// ── layout ────────────────────────────────────────────────────────────────────────────────────────

export function Page({ title, trail = [], actions, children, badges }) {
  useEffect(() => {
    document.title = `${title} · recado`;
  }, [title]);
  return html`<header class="page-head">
      <div class="page-title">
        ${trail.length > 0 &&
        html`<nav class="trail" aria-label="Breadcrumb">
          ${trail.map(([text, path]) => html`<a href=${href(path)}>${text}</a><span aria-hidden="true">/</span>`)}
        </nav>`}
        <h1 class=${title.length > 60 ? "long" : ""}><bdi>${title}</bdi></h1>
        ${badges}
      </div>
      <div class="page-actions">${actions}</div>
    </header>
    ${children}`;
}

export function Panel({ title, actions, children, id, flush = false }) {
  return html`<section class="panel ${flush ? "flush" : ""}" aria-labelledby=${title && id ? `${id}-title` : undefined}>
    ${title && html`<header class="panel-head"><h2 id=${id && `${id}-title`}>${title}</h2><div class="panel-actions">${actions}</div></header>`}
    <div class="panel-body">${children}</div>
  </section>`;
}

export function Tile({ label, value, unit, hint, tone = "", link }) {
  const content = html`<span class="tile-label">${label}</span>
    <span class="tile-value ${tone}">${value}${unit && html`<small>${unit}</small>`}</span>
    <span class="tile-hint">${hint ?? "\u00a0"}</span>`;
  return link ? html`<a class="tile" href=${link}>${content}</a>` : html`<div class="tile">${content}</div>`;
}

// An empty list says which command fills it.
export function Empty({ title, children, command }) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${children && html`<p>${children}</p>`}
    ${command && html`<${Command} text=${command} />`}
  </div>`;
}

export function Command({ text }) {
  return html`<div class="command"><code>${text}</code><${Copy} text=${text} label="Copy command" /></div>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      copyBySelection(text); // a page without TLS may not use the clipboard otherwise
    }
    setDone(true);
    setTimeout(() => setDone(false), 1_500);
  };
  return html`<button type="button" class="button small ghost" onClick=${copy}>${done ? "Copied" : label}</button>`;
}

function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "offscreen";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[^\p{L}\p{N}._-]+/gu, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Cells that begin with = + - @ would be formulas in a spreadsheet.
export function toCsv(rows) {
  const cell = (value) => {
    let text = value == null ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

export function Loading() {
  return html`<p class="loading" role="status">Loading…</p>`;
}

export function Problem({ error, retry }) {
  return html`<div class="problem" role="alert">
    <strong>${error instanceof ApiError && error.status === 404 ? "Not found." : "This could not be loaded."}</strong>
    <span>${error.message}</span>
    ${retry && html`<button class="button small" onClick=${retry}>Try again</button>`}
  </div>`;
}

// ── tabs, in the address ──────────────────────────────────────────────────────────────────────────

export function Tabs({ tabs, current, name = "tab" }) {
  return html`<nav class="tabs" aria-label="Sections">
    ${tabs.map(
      ([id, label, number]) => html`<button
        type="button"
        key=${id}
        class="tab"
        aria-current=${id === current ? "true" : undefined}
        onClick=${() => setQuery({ [name]: id === tabs[0][0] ? "" : id })}
      >${label}${number != null && html`<span class="tab-count">${format.brief(number)}</span>`}</button>`,
    )}
  </nav>`;
}

// ── forms ─────────────────────────────────────────────────────────────────────────────────────────

let fieldNumber = 0;

export function useId(prefix = "f") {
  const id = useRef(null);
  if (id.current === null) id.current = `${prefix}${(fieldNumber += 1)}`;
  return id.current;
}

export function Field({ label, hint, children, wide = false }) {
  const id = useId();
  return html`<div class="field ${wide ? "wide" : ""}">
    <label for=${id}>${label}</label>
    ${children(id)}
    ${hint && html`<small class="hint" id="${id}-hint">${hint}</small>`}
  </div>`;
}

export function TextField({ label, value, onChange, hint, wide, type = "text", ...rest }) {
  return html`<${Field} label=${label} hint=${hint} wide=${wide}>
    ${(id) => html`<input id=${id} type=${type} value=${value} onInput=${(event) => onChange(event.target.value)}
      aria-describedby=${hint ? `${id}-hint` : undefined} autocomplete="off" spellcheck=${false} ...${rest} />`}
  <//>`;
}

export function AreaField({ label, value, onChange, hint, rows = 4, ...rest }) {
  return html`<${Field} label=${label} hint=${hint} wide=${true}>
    ${(id) => html`<textarea id=${id} rows=${rows} value=${value} onInput=${(event) => onChange(event.target.value)}
      aria-describedby=${hint ? `${id}-hint` : undefined} spellcheck=${false} ...${rest}></textarea>`}
  <//>`;
}

export function SelectField({ label, value, onChange, options, hint }) {
  return html`<${Field} label=${label} hint=${hint}>
    ${(id) => html`<select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
      ${options.map((each) => {
        const [option, text] = Array.isArray(each) ? each : [each, each];
        return html`<option value=${option} selected=${option === value}>${text}</option>`;
      })}
    </select>`}
  <//>`;
}

export function CheckField({ label, value, onChange }) {
  const id = useId();
  return html`<div class="check">
    <input id=${id} type="checkbox" checked=${value} onChange=${(event) => onChange(event.target.checked)} />
    <label for=${id}>${label}</label>
  </div>`;
}

export function parseJsonField(text, label) {
  if (text.trim() === "") return {};
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`${label}: ${error.message}`, { cause: error });
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw new Error(`${label}: expected an object such as {"x-max-length": 1000}`);
  }
  return value;
}

// ── dialogs and notices ───────────────────────────────────────────────────────────────────────────

const dialogListeners = new Set();

// Show a form in a dialog; `render(close)` returns its content.
export function openDialog(title, render) {
  for (const each of dialogListeners) each({ title, render });
}

export function DialogHost() {
  const [shown, setShown] = useState(null);
  const element = useRef(null);
  useEffect(() => {
    dialogListeners.add(setShown);
    const close = () => setShown(null);
    addEventListener("hashchange", close);
    return () => {
      dialogListeners.delete(setShown);
      removeEventListener("hashchange", close);
    };
  }, []);
  useEffect(() => {
    if (shown && !element.current.open) element.current.showModal();
  }, [shown]);
  if (!shown) return null;
  const close = () => setShown(null);
  return html`<dialog ref=${element} class="dialog" aria-labelledby="dialog-title" onClose=${close}
    onClick=${(event) => event.target === element.current && close()}>
    <header class="dialog-head"><h2 id="dialog-title">${shown.title}</h2>
      <button class="button small ghost" type="button" onClick=${close} aria-label="Close">✕</button></header>
    ${shown.render(close)}
  </dialog>`;
}

const noticeListeners = new Set();

export function notify(text, kind = "good") {
  for (const each of noticeListeners) each({ text, kind, at: Date.now() });
}

export function NoticeHost() {
  const [notice, setNotice] = useState(null);
  useEffect(() => {
    noticeListeners.add(setNotice);
    return () => noticeListeners.delete(setNotice);
  }, []);
  useEffect(() => {
    if (!notice) return undefined;
    const timer = setTimeout(() => setNotice(null), notice.kind === "bad" ? 10_000 : 4_000);
    return () => clearTimeout(timer);
  }, [notice]);
  return html`<div class="notices" role="status" aria-live="polite">
    ${notice && html`<div class="notice ${notice.kind}"><span>${notice.text}</span>
      <button class="button small ghost" onClick=${() => setNotice(null)} aria-label="Dismiss">✕</button></div>`}
  </div>`;
}

// A form in a dialog or panel: runs `submit`, shows its error next to the button.
export function Form({ submit, label, close, danger = false, children, done }) {
  const [state, setState] = useState({ busy: false, error: null });
  const run = async (event) => {
    event.preventDefault();
    setState({ busy: true, error: null });
    try {
      const answer = await submit();
      setState({ busy: false, error: null });
      if (done) notify(typeof done === "function" ? done(answer) : done);
      close?.();
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<form class="form" onSubmit=${run}>
    <div class="form-fields">${children}</div>
    ${state.error && html`<p class="form-error" role="alert">${state.error.message}</p>`}
    <div class="form-actions">
      ${close && html`<button type="button" class="button" onClick=${close}>Cancel</button>`}
      <button type="submit" class="button ${danger ? "danger" : "primary"}" disabled=${state.busy}>${state.busy ? "Working…" : label}</button>
    </div>
  </form>`;
}

// Ask before something is destroyed, and name it.
export function confirm({ title, label, lines, submit, done }) {
  openDialog(
    title,
    (close) => html`<${Form} label=${label} close=${close} danger=${true} submit=${submit} done=${done}>
      <div class="wide">${lines.filter(Boolean).map((line) => html`<p>${line}</p>`)}</div>
    <//>`,
  );
}
