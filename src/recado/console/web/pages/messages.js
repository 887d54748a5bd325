// Messages of a queue, without taking them, and publishing. Bodies are shown as text only, shortened by the node.
import { at, post, session } from "../api.js";
import { AreaField, Badge, CheckField, confirm, Copy, download, Empty, Form, Loading, Name, notify, Panel, parseJsonField, Problem, SelectField, TextField } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { setQuery } from "../router.js";
import { MessageBody } from "./message-body.js";
import { takeSnapshot } from "./snapshots.js";

const SHOWN_BYTES = 10_000;
const COUNTS = ["5", "10", "50", "200"];
const REASONS = { rejected: "Rejected", expired: "Expired", maxlen: "Queue was full", delivery_limit: "Delivered too often" };
const DEATH_HEADERS = new Set(["x-death", "x-first-death-queue", "x-first-death-reason", "x-first-death-exchange", "x-last-death-queue", "x-last-death-reason", "x-last-death-exchange"]);

export function MessagesTab({ vhost, name, isStream, query, total }) {
  const [state, setState] = useState({ messages: null, error: null });
  const [turn, setTurn] = useState(0);
  const count = query.count ?? "10";
  const skip = Math.max(0, Number(query.skip) || 0);
  const selector = query.selector ?? "";
  const offset = query.offset ?? "first";
  const [draft, setDraft] = useState(selector);
  const [draftOffset, setDraftOffset] = useState(offset);
  useEffect(() => {
    const abort = new AbortController();
    const body = { count: Number(count), skip, selector, encoding: "auto", truncate: SHOWN_BYTES };
    if (isStream) body.offset = toOffset(offset);
    post(at("queues", vhost, name, "peek"), body).then(
      (messages) => abort.signal.aborted || setState({ messages, error: null }),
      (error) => abort.signal.aborted || setState({ messages: null, error }),
    );
    return () => abort.abort();
  }, [vhost, name, count, skip, selector, offset, turn, isStream]);
  const choose = (event) => {
    event.preventDefault();
    setQuery({ selector: draft, skip: "", offset: isStream ? draftOffset : "" });
    setTurn(turn + 1);
  };
  const actOnAll = () => takeSnapshot({ vhost, queue: name, selector }).catch((failure) => notify(failure.message, "bad"));
  const { messages, error } = state;
  return html`<${Panel} title=${isStream ? "Messages of the stream" : "Messages, in the order of delivery"} id="messages">
    <form class="toolbar" onSubmit=${choose}>
      <input class="filter" data-filter type="search" aria-label="Selector" placeholder="Selector, such as json.price < 10" value=${draft} onInput=${(event) => setDraft(event.target.value)} spellcheck=${false} />
      ${isStream && html`<${OffsetFields} value=${draftOffset} onChange=${setDraftOffset} />`}
      <select aria-label="Number of messages" value=${count} onChange=${(event) => setQuery({ count: event.target.value === "10" ? "" : event.target.value })}>
        ${COUNTS.map((each) => html`<option value=${each} selected=${each === count}>${each} messages</option>`)}
      </select>
      <button class="button primary" type="submit">Show</button>
      <span class="grow"></span>
      ${!isStream && html`<button class="button" type="button" disabled=${!total} title="delete, move or replay; first the node tells how many there are" onClick=${actOnAll}>Act on all${selector ? " that match" : ""}…</button>`}
      <button class="button" type="button" disabled=${skip === 0} onClick=${() => setQuery({ skip: Math.max(0, skip - Number(count)) || "" })}>Previous</button>
      <button class="button" type="button" disabled=${!messages || messages.length < Number(count)} onClick=${() => setQuery({ skip: skip + Number(count) })}>Next</button>
    </form>
    <div class="stack" role="region" aria-label="Messages">
      ${error && html`<${Problem} error=${error} retry=${() => setTurn(turn + 1)} />`}
      ${!messages && !error && html`<${Loading} />`}
      ${messages && messages.length === 0 &&
        html`<${Empty} title=${selector || skip ? "No message matches." : total ? "No message is ready." : "The queue is empty."}
          command=${selector || total ? null : `recado publish '' ${format.shell(name)} 'one coffee'`}>${total ? "Messages with consumers are not shown." : ""}<//>`}
      ${messages && messages.length > 0 && html`<div>${messages.map((message) => html`<${Message} key=${message.offset} message=${message} vhost=${vhost} queue=${name} isStream=${isStream} />`)}</div>`}
    </div>
  <//>`;
}

// Where to begin in a stream: first, last, next, an offset, an age such as 1h, or a time, which the address has as `2026-11-19T20:00`.
const isTime = (text) => /^\d{4}-\d\d-\d\dT/.test(text);
const OFFSETS = [["first", "First message"], ["last", "Last batch"], ["next", "Next message"], ["offset", "From offset"], ["time", "From time"], ["age", "Of the last"]];

function toOffset(text) {
  if (/^\d+$/.test(text)) return Number(text);
  return isTime(text) ? `${Math.max(1, Math.ceil((Date.now() - new Date(text)) / 1000))}s` : text;
}

function OffsetFields({ value, onChange }) {
  const kind = OFFSETS.some(([each]) => each === value) ? value : /^\d*$/.test(value) ? "offset" : isTime(value) ? "time" : "age";
  const hourAgo = () => new Date(Date.now() - 3_600_000 - new Date().getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  const choose = (next) => onChange({ offset: "0", time: hourAgo(), age: "1h" }[next] ?? next);
  const type = { offset: "number", time: "datetime-local", age: "text" }[kind];
  return html`<select aria-label="Begin at" value=${kind} onChange=${(event) => choose(event.target.value)}>
      ${OFFSETS.map(([id, text]) => html`<option key=${id} value=${id} selected=${id === kind}>${text}</option>`)}</select>
    ${type && html`<input aria-label=${{ offset: "Offset", time: "Time", age: "Age" }[kind]} type=${type} min=${kind === "offset" ? "0" : undefined} size="8" value=${value} onInput=${(event) => onChange(event.target.value)} />`}`;
}

function Message({ message: listed, vhost, queue, isStream }) {
  const [revealed, setRevealed] = useState(null);
  const message = revealed ?? listed;
  const masked = message.masked ?? [];
  const { headers, ...properties } = message.properties;
  const isShortened = message.payload_bytes > SHOWN_BYTES;
  const deaths = Array.isArray(headers?.["x-death"]) ? headers["x-death"] : [];
  return html`<article class="message" aria-label="Message ${message.offset}">
    <header class="message-head">
      <strong>#${format.count(message.offset)}</strong>
      <span><span class="muted">${message.exchange === "" ? "default exchange" : message.exchange} →</span> <code><${Name}>${message.routing_key}<//></code></span>
      ${message.redelivered && html`<${Badge} kind="warn">redelivered<//>`}
      ${deaths.length > 0 && html`<${Badge} kind="bad" title="dead letter">${deaths[0].reason}, ${format.plural(deaths.reduce((sum, each) => sum + (each.count ?? 1), 0), "time")}<//>`}
      ${masked.length > 0 && html`<${Badge} kind="warn" title=${`not shown: ${masked.join(", ")}`}>${masked.includes("body") ? "body not shown" : "masked"}<//>`}
      ${revealed && html`<${Badge} kind="bad" title="The audit log has a line about it.">revealed<//>`}
      <span class="grow"></span>
      <span class="muted">${format.bytes(message.payload_bytes)}</span>
      ${masked.length > 0 && session.may_reveal && html`<${Reveal} offset=${message.offset} vhost=${vhost} queue=${queue} show=${setRevealed} />`}
      <${Copy} text=${JSON.stringify(message, null, 2)} label="Copy JSON" />
      ${masked.length === 0 && html`<${Copy} text=${curlOf(message, vhost)} label="Copy curl" />`}
      ${!masked.includes("body") && html`<${Download} message=${message} vhost=${vhost} queue=${queue} isStream=${isStream} isRevealed=${revealed !== null} />`}
    </header>
    <div class="message-body">
      ${deaths.length > 0 && html`<ul class="deaths" aria-label="Why it died">${deaths.map((each) => html`<li key=${`${each.queue}\n${each.reason}`}>
        <strong>${REASONS[each.reason] ?? each.reason}</strong> in <bdi>${each.queue}</bdi>, ${format.plural(each.count ?? 1, "time")}, first ${format.dateTime(each.time * 1000)},
        ${" "}<span class="muted">published to ${each.exchange ? html`<bdi>${each.exchange}</bdi>` : "the default exchange"} with <code><bdi>${(each["routing-keys"] ?? []).map(format.text).join(", ")}</bdi></code></span></li>`)}
        ${headers["x-replay-count"] ? html`<li>Replayed ${format.plural(Number(headers["x-replay-count"]), "time")}</li>` : null}</ul>`}
      <dl class="facts">
        ${Object.entries(properties).map(([name, value]) => html`<dt>${name.replaceAll("_", " ")}</dt><dd><bdi>${propertyText(name, value)}</bdi></dd>`)}
        ${Object.entries(headers ?? {}).filter(([name]) => !DEATH_HEADERS.has(name) || !deaths.length).map(([name, value]) => html`<dt><code><bdi>${name}</bdi></code></dt><dd><code><bdi>${format.text(value)}</bdi></code></dd>`)}
        ${!Object.keys(message.properties).length && html`<dt>No properties</dt><dd></dd>`}
      </dl>
      <div>
        ${isShortened && html`<p class="muted">The first ${format.bytes(SHOWN_BYTES)} of ${format.bytes(message.payload_bytes)}.</p>`}
        ${masked.length > 0 && html`<p class="muted">Not shown: ${masked.map((path, index) => html`${index > 0 && ", "}<code>${path}</code>`)}</p>`}
        ${!masked.includes("body") && html`<${MessageBody} message=${message} label=${`Body of message ${message.offset}`} />`}
      </div>
    </div>
  </article>`;
}

function propertyText(name, value) {
  if (name === "timestamp") return format.dateTime(value * 1000);
  if (name === "delivery_mode") return value === 2 ? "2, persistent" : `${value}, transient`;
  return format.text(value);
}

function curlOf(message, vhost) {
  const body = { properties: message.properties, routing_key: message.routing_key, payload: message.payload, payload_encoding: message.payload_encoding };
  const url = new URL(at("exchanges", vhost, message.exchange || "amq.default", "publish"), document.baseURI.split("#")[0]);
  return `curl -u USER ${format.shell(url.href)} -d ${format.shell(JSON.stringify(body))}`;
}

function Reveal({ offset, vhost, queue, show }) {
  const ask = () => {
    let revealed = null;
    confirm({
      title: `Reveal message #${format.count(offset)} of ${queue}?`,
      label: "Reveal",
      lines: ["Shows the fields that are masked, to you only, until you leave this page.", "The audit log records your name, the queue and the message."],
      submit: async () => {
        revealed = await post(at("queues", vhost, queue, "reveal"), { offset, truncate: SHOWN_BYTES });
      },
      done: () => {
        show(revealed);
        return "The message is shown as it is.";
      },
    });
  };
  return html`<button type="button" class="button small" onClick=${ask}>Reveal</button>`;
}

function Download({ message, vhost, queue, isStream, isRevealed }) {
  const [busy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const body = { count: 1, encoding: "base64", selector: `offset = ${message.offset}` };
      if (isStream) body.offset = message.offset;
      const whole = isRevealed
        ? await post(at("queues", vhost, queue, "reveal"), { offset: message.offset, encoding: "base64" })
        : (await post(at("queues", vhost, queue, "peek"), body))[0];
      if (whole) download(`${queue}-${message.offset}`, "application/octet-stream", await decode(whole.payload));
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class="button small ghost" onClick=${run} disabled=${busy}>Download</button>`;
}

// In portions, so that a body of 16 MiB does not stop the page.
async function decode(base64) {
  const parts = [];
  const portion = 1 << 20;
  for (let start = 0; start < base64.length; start += portion) {
    const text = atob(base64.slice(start, start + portion));
    const bytes = new Uint8Array(text.length);
    for (let index = 0; index < text.length; index += 1) bytes[index] = text.charCodeAt(index);
    parts.push(bytes);
    await new Promise((resume) => setTimeout(resume));
  }
  return new Blob(parts);
}

// ── publishing ────────────────────────────────────────────────────────────────────────────────────

export function PublishForm({ vhost, exchange, routingKey = "", fixed = false }) {
  const [key, setKey] = useState(routingKey);
  const [payload, setPayload] = useState("");
  const [encoding, setEncoding] = useState("string");
  const [persistent, setPersistent] = useState(true);
  const [type, setType] = useState("");
  const [headers, setHeaders] = useState("");
  const [more, setMore] = useState("");
  const submit = async () => {
    const properties = { delivery_mode: persistent ? 2 : 1, ...parseJsonField(more, "Other properties") };
    const given = parseJsonField(headers, "Headers");
    if (Object.keys(given).length) properties.headers = given;
    if (type) properties.content_type = type;
    const answer = await post(at("exchanges", vhost, exchange || "amq.default", "publish"), { routing_key: key, payload, payload_encoding: encoding, properties });
    if (!answer.routed) throw new Error("The message was published, but reached no queue. Route test tells why.");
  };
  return html`<${Form} submit=${submit} label="Publish message" done="The message was published.">
    ${!fixed && html`<${TextField} label="Routing key" value=${key} onChange=${setKey} maxlength="255" />`}
    <${TextField} label="Content type" value=${type} onChange=${setType} placeholder="application/json" />
    <${SelectField} label="Body is" value=${encoding} onChange=${setEncoding} options=${[["string", "Text"], ["base64", "Base64"]]} />
    <div class="checks"><${CheckField} label="Persistent" value=${persistent} onChange=${setPersistent} /></div>
    <${AreaField} label="Body" value=${payload} onChange=${setPayload} rows=${5} />
    <${AreaField} label="Headers" value=${headers} onChange=${setHeaders} rows=${2} hint=${'JSON, such as {"type": "order"}'} />
    <${AreaField} label="Other properties" value=${more} onChange=${setMore} rows=${2} hint=${'JSON, such as {"priority": 5, "expiration": "60000"}'} />
  <//>`;
}
