// Dialogs, notices, and forms that show the reason when they fail.
import { html, useEffect, useRef, useState } from "./lib.js";
import { IconButton } from "./icons.js";

const dialogListeners = new Set();

// Show a dialog; `render(close)` returns its content.
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
    <header class="dialog-head"><h2 id="dialog-title">${shown.title}</h2><${IconButton} name="close" label="Close" onClick=${close} /></header>
    <div class="dialog-body">${shown.render(close)}</div>
  </dialog>`;
}

const noticeListeners = new Set();
const NOTICE_SHOWN_MS = 5_000;

export function notice(text) {
  for (const each of noticeListeners) each({ text });
}

export function NoticeHost() {
  const [shown, setShown] = useState(null);
  useEffect(() => {
    noticeListeners.add(setShown);
    return () => noticeListeners.delete(setShown);
  }, []);
  useEffect(() => {
    if (!shown) return undefined;
    const timer = setTimeout(() => setShown(null), NOTICE_SHOWN_MS);
    return () => clearTimeout(timer);
  }, [shown]);
  return html`<div class="notices" role="status">${shown && html`<div class="notice"><span>${shown.text}</span><${IconButton} name="close" label="Dismiss" onClick=${() => setShown(null)} /></div>`}</div>`;
}

// A form with one button, which shows the reason next to it when `submit` fails.
export function Form({ submit, label, cancel, isDanger = false, children }) {
  const [{ isBusy, error }, setState] = useState({ isBusy: false, error: null });
  const run = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    setState({ isBusy: true, error: null });
    try {
      await submit();
      setState({ isBusy: false, error: null });
    } catch (failure) {
      setState({ isBusy: false, error: failure });
    }
  };
  return html`<form class="form" onSubmit=${run}>
    ${children}
    ${error && html`<p class="form-error" role="alert">${error.message}</p>`}
    <div class="form-actions">
      ${cancel && html`<button type="button" class="button" onClick=${cancel}>Cancel</button>`}
      <button type="submit" class="button ${isDanger ? "danger" : "primary"}" disabled=${isBusy}>${label}</button>
    </div>
  </form>`;
}

// Ask before something cannot be taken back.
export function confirm({ title, text, label, submit }) {
  openDialog(
    title,
    (close) => html`<${Form} label=${label} isDanger cancel=${close} submit=${async () => {
      await submit();
      close();
    }}><p>${text}</p><//>`,
  );
}

export async function copyText(text, done = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without TLS a page may not use the clipboard otherwise.
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "offscreen";
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  notice(done);
}
