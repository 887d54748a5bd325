// A queue live: copies of messages as they enter. The node keeps a hundred between two requests and counts the others.
import { at, get, post, remove } from "../api.js";
import { Badge, Empty, Loading, Name, Panel, Problem } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { setQuery } from "../router.js";
import { MessageBody } from "./message-body.js";

const PERIOD_MS = 500;
const SHOWN_MAX = 200;
const LINE_MAX = 160;

const START = { messages: [], entered: 0, skipped: 0, isDeleted: false, isOpen: false, error: null };

// Follow a queue while the page is visible and `isPaused` is false.
function useTap(vhost, name, selector, isPaused) {
  const [state, setState] = useState(START);
  useEffect(() => {
    setState((before) => (isPaused ? { ...before, isOpen: false } : START));
  }, [vhost, name, selector, isPaused]);
  useEffect(() => {
    if (isPaused) return undefined;
    let isGone = false;
    let timer = 0;
    let tap = null;
    let after = 0;
    let before = { entered: 0, skipped: 0 }; // of taps that have ended because the page was hidden
    const read = async () => {
      if (document.visibilityState === "visible") {
        try {
          tap ??= (await post(at("queues", vhost, name, "tap"), { selector })).id;
          if (isGone) return close();
          const found = await get(`${at("taps", tap)}?after=${after}`);
          if (isGone) return close();
          after = found.messages.at(-1)?.number ?? after;
          setState(({ messages }) => ({
            messages: [...found.messages.map((each) => ({ ...each, key: `${tap} ${each.number}` })).reverse(), ...messages].slice(0, SHOWN_MAX),
            entered: before.entered + found.entered,
            skipped: before.skipped + found.skipped,
            isDeleted: found.queue_deleted,
            isOpen: true,
            error: null,
          }));
        } catch (error) {
          if (error.status === 404 && tap !== null) {
            tap = null; // it ended while the page was hidden: open another one
            after = 0;
            setState((current) => {
              before = { entered: current.entered, skipped: current.skipped };
              return current;
            });
          } else {
            setState((current) => ({ ...current, isOpen: false, error }));
            if (error.status >= 400) return undefined;
          }
        }
      }
      if (!isGone) timer = setTimeout(read, PERIOD_MS);
      return undefined;
    };
    const close = () => {
      if (tap !== null) remove(at("taps", tap)).catch(() => {});
      tap = null;
    };
    read();
    return () => {
      isGone = true;
      clearTimeout(timer);
      close();
    };
  }, [vhost, name, selector, isPaused]);
  return state;
}

export function LiveTab({ vhost, name, query }) {
  const selector = query.selector ?? "";
  const isPaused = query.paused === "yes";
  const [draft, setDraft] = useState(selector);
  const { messages, entered, skipped, isDeleted, isOpen, error } = useTap(vhost, name, selector, isPaused);
  const choose = (event) => {
    event.preventDefault();
    setQuery({ selector: draft });
  };
  return html`<${Panel} title="Messages as they enter" id="live">
    <form class="toolbar" onSubmit=${choose}>
      <input class="filter" data-filter type="search" aria-label="Selector" placeholder="Selector, such as json.price < 10" value=${draft} onInput=${(event) => setDraft(event.target.value)} spellcheck=${false} />
      <button class="button" type="submit">Filter</button>
      <button class="button" type="button" aria-pressed=${isPaused} onClick=${() => setQuery({ paused: isPaused ? "" : "yes" }, { replace: true })}>${isPaused ? "Continue" : "Pause"}</button>
      <span class="grow"></span>
      <span class="muted" role="status">${isPaused ? "Paused. " : isOpen ? "Live. " : ""}${format.plural(entered, "message")} entered${skipped ? html`, <strong class="warn">${format.count(skipped)} skipped</strong>` : ""}</span>
    </form>
    ${error && html`<${Problem} error=${error} />`}
    ${isDeleted && html`<div class="banner warn" role="status"><strong>The queue was deleted.</strong></div>`}
    ${skipped > 0 && html`<p class="muted">The node shows at most 50 messages in 100 ms, so that consumers are not delayed. A selector chooses; <code>recado tap</code> shows all.</p>`}
    ${!messages.length && !error && (isOpen || isPaused
      ? html`<${Empty} title="No message has entered yet." command=${`recado publish '' ${format.shell(name)} 'one coffee'`}>Messages are shown as they enter; consumers get them as always.<//>`
      : html`<${Loading} />`)}
    ${messages.length > 0 && html`<div class="scroller whole live" tabindex="0" role="log" aria-live="off" aria-label="Messages">
      ${messages.map((each) => html`<${TappedMessage} key=${each.key} message=${each} />`)}
    </div>`}
  <//>`;
}

function TappedMessage({ message }) {
  const [isOpen, setOpen] = useState(false);
  const isText = message.payload_encoding === "string";
  const line = isText ? message.payload.slice(0, LINE_MAX).replace(/\s+/g, " ") : `${format.bytes(message.payload_bytes)} that are no text`;
  return html`<details class="live-message" onToggle=${(event) => setOpen(event.target.open)}>
    <summary><span class="muted">${format.timeMs(message.at)}</span> <code><${Name}>${message.routing_key}<//></code> <bdi class="live-line">${message.masked?.includes("body") ? html`<${Badge}>body not shown<//>` : line || "(empty)"}</bdi></summary>
    ${isOpen && html`<dl class="facts">
      <dt>Offset</dt><dd>${format.count(message.offset)}</dd>
      <dt>Exchange</dt><dd><bdi>${message.exchange || "(default)"}</bdi></dd>
      <dt>Size</dt><dd>${format.bytes(message.payload_bytes)}</dd>
      ${Object.entries(message.properties).map(([key, value]) => html`<dt>${key.replaceAll("_", " ")}</dt><dd><bdi>${format.text(value)}</bdi></dd>`)}
    </dl><${MessageBody} message=${message} label="Body" />`}
  </details>`;
}
