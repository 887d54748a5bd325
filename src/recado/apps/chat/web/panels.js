// What is shown beside a conversation: its members, a search, or the AMQP traffic of this user's actions.
import { search } from "./api.js";
import { clearAmqp, distinctionOf, nameOf, watchAmqp } from "./chat.js";
import { openPrivateOrTell, titleOf } from "./conversation-view.js";
import { explanationOf, subjectOf } from "./explain.js";
import { briefTimeOf, count, preciseTimeOf } from "./format.js";
import { IconButton } from "./icons.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { Text } from "./message-row.js";
import { addressOf, currentRoute, go, href, setPanel } from "./router.js";
import { state, useTopics } from "./store.js";
import { parseFound } from "./text.js";

const SEARCH_PAUSE_MS = 250; // after the last key

const PANELS = { members: ["Members", Members], search: ["Search", Search], amqp: ["AMQP traffic", Traffic] };

export function Panel({ name, conversation, isMain }) {
  const [title, Content] = PANELS[name] ?? [];
  if (!Content || !conversation) return null;
  const Heading = isMain ? "h1" : "h2";
  return html`<div class="panel" role=${isMain ? "main" : "complementary"} aria-labelledby="panel-title"
    onKeyDown=${(event) => event.key === "Escape" && setPanel(null)}>
    <div class="panel-head"><${Heading} id="panel-title">${title}<//><${IconButton} name="close" label="Close ${title}" onClick=${() => setPanel(null)} /></div>
    <${Content} conversation=${conversation} />
  </div>`;
}

// ── members ───────────────────────────────────────────────────────────────────────────────────────

function Members({ conversation }) {
  useTopics("presence");
  const collator = new Intl.Collator();
  const members = [...conversation.members]
    .map((id) => ({ id, name: nameOf(id), online: state.users.get(id)?.online ?? false }))
    .sort((one, other) => other.online - one.online || collator.compare(one.name, other.name));
  return html`<div class="panel-body" tabindex="0" role="group" aria-label="Members of ${conversation.title}"><ul class="members">
    ${members.map(({ id, name, online }) => {
      const distinction = distinctionOf(id);
      const content = html`<span class="entry-mark ${online ? "online" : "offline"}" aria-hidden="true"></span><bdi>${name}</bdi>
        ${distinction && html`<span class="distinction">#${distinction}</span>`}${id === state.me.id && html`<span class="muted">you</span>`}<span class="offscreen">${online ? ", online" : ", offline"}</span>`;
      return html`<li key=${id}>${id === state.me.id ? html`<span class="member">${content}</span>` : html`<button type="button" class="member" aria-label="${name}${distinction ? ` #${distinction}` : ""}, ${online ? "online" : "offline"}" title="Write to ${name} in private" onClick=${() => openPrivateOrTell(id)}>${content}</button>`}</li>`;
    })}
  </ul></div>`;
}

// ── search ────────────────────────────────────────────────────────────────────────────────────────

function Search({ conversation }) {
  const [text, setText] = useState("");
  const [isEverywhere, setEverywhere] = useState(false);
  const [found, setFound] = useState(null); // { text, messages, more }
  const [error, setError] = useState(null);
  const input = useRef(null);
  const turn = useRef(0);
  useEffect(() => input.current.focus(), []);

  const load = async (before) => {
    const asked = (turn.current += 1);
    try {
      const page = await search({ text: text.trim(), conversation: isEverywhere ? null : conversation.id, before });
      if (asked !== turn.current) return;
      setError(null);
      setFound({ text, more: page.more, messages: before ? [...found.messages, ...page.messages] : page.messages });
    } catch (failure) {
      if (asked === turn.current) setError(failure);
    }
  };
  useEffect(() => {
    if (!text.trim()) {
      turn.current += 1;
      setFound(null);
      setError(null);
      return undefined;
    }
    const timer = setTimeout(load, SEARCH_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, isEverywhere, conversation.id]);

  const words = found ? found.text.trim().split(/\s+/u) : [];
  const show = (message) => go(addressOf(message.conversation, { ...currentRoute().query, at: message.id }));
  return html`<div class="panel-form" role="search">
      <input ref=${input} type="search" aria-label="Search messages" placeholder="Search messages" value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" />
      <div class="segmented" role="group" aria-label="Where">
        <button type="button" aria-pressed=${isEverywhere ? "false" : "true"} onClick=${() => setEverywhere(false)}>Here</button>
        <button type="button" aria-pressed=${isEverywhere ? "true" : "false"} onClick=${() => setEverywhere(true)}>Everywhere</button>
      </div>
    </div>
    <div class="panel-body" tabindex="0" role="group" aria-label="Found messages">
      ${error && html`<p class="form-error" role="alert">${error.message}</p>`}
      ${!found && !error && html`<p class="hint">Words of a message, in ${isEverywhere ? "all your conversations" : html`<bdi>${titleOf(conversation)}</bdi>`}. Messages that contain all of them are found.</p>`}
      ${found && html`<p class="hint" role="status">${found.messages.length ? `${count(found.messages.length)}${found.more ? " newest" : ""} ${found.messages.length === 1 ? "message" : "messages"}` : "No message contains these words."}</p>`}
      <ul class="results">
        ${found?.messages.map((message) => html`<li key=${message.id}><button type="button" class="result" onClick=${() => show(message)}>
          <span class="result-head"><b><bdi>${message.author.name}</bdi></b>${isEverywhere && html`<span class="muted"><bdi>${state.conversations.get(message.conversation) ? titleOf(state.conversations.get(message.conversation)) : ""}</bdi></span>`}<time>${briefTimeOf(message.time)}</time></span>
          <span class="result-text" dir="auto"><${Text} parts=${parseFound(message.text, words)} /></span></button></li>`)}
      </ul>
      ${found?.more && html`<button type="button" class="button" onClick=${() => load(found.messages.at(-1).position)}>Older messages</button>`}
    </div>`;
}

// ── AMQP ──────────────────────────────────────────────────────────────────────────────────────────

function Traffic() {
  useTopics("amqp");
  const body = useRef(null);
  const follows = useRef(true);
  useEffect(() => {
    watchAmqp(true);
    return () => watchAmqp(false);
  }, []);
  useLayoutEffect(() => {
    if (follows.current) body.current.scrollTop = body.current.scrollHeight;
  });
  return html`<div class="panel-form"><p class="hint">What the broker is asked to do because of you, and answers, as it happens.</p>
      <button type="button" class="button small" disabled=${!state.amqp.length} onClick=${clearAmqp}>Clear</button></div>
    <div class="panel-body traffic" ref=${body} tabindex="0" role="group" aria-label="AMQP operations"
      onScroll=${(event) => (follows.current = event.target.scrollHeight - event.target.scrollTop - event.target.clientHeight < 24)}>
      ${!state.amqp.length && html`<p class="empty-text">Nothing yet. Write a message, or join or leave a room.</p>`}
      <ol>${state.amqp.map((each) => html`<${Operation} key=${each.number} entry=${each} />`)}</ol>
    </div>`;
}

// The beginning of an id is enough to tell it from others.
const shorten = (text) => String(text).replaceAll(/\b([0-9a-f]{8})[0-9a-f]{24}\b/g, "$1…");
const ARROWS = { in: "←", out: "→" };

function Operation({ entry }) {
  const subject = subjectOf(entry, state.me.id);
  const { title, direction } = explanationOf(subject);
  const details = typeof entry.arguments === "string" ? shorten(entry.arguments) : Object.entries(entry.arguments ?? {}).map(([name, value]) => `${name}=${shorten(value)}`).join("  ");
  const address = href(["explain", subject], { panel: "amqp" });
  return html`<li class="operation ${direction}"><time>${preciseTimeOf(entry.time)}</time>
    <span class="direction" aria-label=${direction === "in" ? "from the broker" : "to the broker"} role="img">${ARROWS[direction]}</span>
    <span class="method"><a href=${address} title="${title}: what this means">${entry.operation}</a>${subject !== entry.operation && html` <span class="muted">confirm</span>`}</span>
    <span class="object" title=${entry.object}><bdi>${shorten(entry.object)}</bdi>${entry.object === state.me.id && html` <span class="muted">your queue</span>`}</span>
    ${details && html`<code class="details">${details}</code>`}</li>`;
}

