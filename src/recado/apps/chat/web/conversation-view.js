// A conversation: its header, banners, messages and composer.
import { distinctionOf, erase, joinRoom, leaveRoom, loadAfter, loadAround, loadBefore, loadNewest, markRead, nameOf, openPrivate, trim } from "./chat.js";
import { Composer } from "./composer.js";
import { confirm, copyText, notice } from "./dialogs.js";
import { plural } from "./format.js";
import { Icon, IconButton } from "./icons.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "./lib.js";
import { Intro, MessageRow } from "./message-row.js";
import { discard, entriesOf, isInFlight, retry } from "./outbox.js";
import { addressOf, addressTo, conversationAt, currentRoute, go, setPanel } from "./router.js";
import { buildRows, estimate } from "./rows.js";
import { reconnectNow } from "./socket.js";
import { state, topicOf, useTopics } from "./store.js";
import { VirtualList } from "./virtual-list.js";

const FLASH_MS = 2_000;
const BANNER_PAUSE_MS = 700; // a connection that returns sooner shows no banner
const SPOKEN_MAX = 5; // messages that a screen reader announces at once

const isAttended = () => document.visibilityState === "visible" && document.hasFocus();

export function ConversationPage({ id, route }) {
  useTopics("conversations", "welcome", "phase");
  const conversation = state.conversations.get(id);
  if (conversation) return html`<${ConversationView} key=${id} conversation=${conversation} at=${route.query.at ?? null} panel=${route.query.panel ?? null} />`;
  if (!state.epoch || state.connection !== "live") return html`<section class="conversation"><${Banner} /><p class="loading" role="status">Connecting…</p></section>`;
  return html`<${Outside} key=${id} id=${id} />`;
}

// A room that the user is not in, or a private conversation that has not begun.
function Outside({ id }) {
  useTopics(topicOf(id));
  const unsent = entriesOf(id).filter((each) => each.kind === "message");
  const [kind, name] = id.split(/:(.*)/s);
  const [error, setError] = useState(null);
  const isRoom = kind === "room";
  useEffect(() => {
    if (!isRoom) openPrivate(name).catch(setError);
  }, []);
  const room = state.rooms.find((each) => each.name === name);
  return html`<section class="conversation"><div class="empty">
    <a class="button only-phone" href="#/">Back</a>
    ${isRoom
      ? html`<h1>You are not in <bdi>${name}</bdi></h1><p>${room ? `${plural(room.members, "member")} talk here.` : "There is no such room yet. Joining creates it."}</p>
        <button class="button primary" onClick=${() => joinRoom(name).catch(setError)}>Join ${name}</button>`
      : html`<h1>${error ? "This conversation cannot be opened" : "Opening…"}</h1>`}
    ${error && html`<p class="form-error" role="alert">${error.message}</p>`}
    ${unsent.length > 0 && html`<h2>${plural(unsent.length, "message")} of yours ${unsent.length === 1 ? "was" : "were"} not sent</h2>
      <ul class="room-list">${unsent.map((each) => html`<li key=${each.client_id}><span class="room-name"><span dir="auto">${each.text}</span></span>
        <button class="button" onClick=${() => discard(each.client_id)}>Discard</button></li>`)}</ul>`}
  </div></section>`;
}

export function Banner() {
  useTopics("connection", "outbox");
  const [isPatient, setPatient] = useState(true);
  const isLost = state.connection !== "live";
  useEffect(() => {
    setPatient(true);
    if (!isLost) return undefined;
    const timer = setTimeout(() => setPatient(false), BANNER_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [isLost]);
  if (isLost && (!isPatient || !navigator.onLine)) {
    return html`<div class="banner" role="status"><${Icon} name="alert" /><span><b>${navigator.onLine ? "The server does not answer." : "You are offline."}</b> What you write is kept and sent when the connection is back.</span>
      <button class="button small" onClick=${reconnectNow}>Connect now</button></div>`;
  }
  if (!isLost && state.broker !== "connected") {
    return html`<div class="banner" role="status"><${Icon} name="alert" /><span><b>The broker is not reachable.</b> What you write waits and is sent when it is back.</span></div>`;
  }
  return null;
}

function ConversationView({ conversation, at, panel }) {
  useTopics(topicOf(conversation.id), "outbox", "connection");
  const list = useRef(null);
  const before = useRef([]);
  const [target, setTarget] = useState(null);
  const [current, setCurrent] = useState(null);
  const [flashing, setFlashing] = useState(null);
  const [isAtEnd, setAtEnd] = useState(true);
  const { segment } = conversation;

  // Where unread messages begin: while the user is away, and when the conversation is opened.
  const opened = useRef(false);
  if (!opened.current) {
    opened.current = true;
    conversation.newFrom = conversation.unread ? conversation.readPosition : null;
  } else if (conversation.newFrom === null && conversation.unread && !(isAttended() && list.current?.isAtEnd)) {
    conversation.newFrom = conversation.readPosition;
  }

  const rows = useMemo(
    () => (before.current = buildRows(conversation, entriesOf(conversation.id), state.me, before.current)),
    [segment, segment.version, segment.moreBefore, segment.moreAfter, segment.isLoaded, conversation.newFrom, signatureOf(conversation)],
  );

  useEffect(() => {
    if (!segment.isLoaded && !segment.loading && !segment.error && !at) loadNewest(conversation);
  });
  useEffect(
    () => () => {
      conversation.newFrom = null;
      conversation.arrivals = [];
    },
    [],
  );

  const flash = (id) => {
    setFlashing(id);
    setTimeout(() => setFlashing((shown) => (shown === id ? null : shown)), FLASH_MS);
  };

  const jump = async (id) => {
    if (!segment.byId.has(id)) await loadAround(conversation, { around: id });
    const message = segment.byId.get(id);
    if (!message) {
      notice("This message no longer exists.");
      return;
    }
    const key = message.client_id ?? message.id;
    setCurrent(key);
    flash(id);
    pendingJump.current = key;
    list.current?.scrollToRow(key);
  };
  const pendingJump = useRef(null);
  useEffect(() => {
    if (!at) return;
    jump(at);
    const { query } = currentRoute();
    go(addressOf(conversation.id, { ...query, at: null }), { replace: true });
  }, [at]);
  // The page with the wanted message has been rendered for the first time.
  useEffect(() => {
    if (pendingJump.current && list.current) {
      list.current.scrollToRow(pendingJump.current);
      pendingJump.current = null;
    }
  }, [segment.isLoaded, rows]);

  const actions = useRef({});
  Object.assign(actions.current, {
    setCurrent,
    jump,
    reply: (message) => setTarget({ kind: "reply", message }),
    edit: (row) => setTarget({ kind: "edit", row }),
    copy: (text) => copyText(text, "The text is copied"),
    retry,
    discard: (id) => {
      const entry = discard(id);
      if (entry?.kind === "message") copyText(entry.text, "Discarded. The text is in the clipboard.");
    },
    erase: (row) => {
      if (!row.message.id) {
        discard(row.key);
        return;
      }
      confirm({ title: "Delete this message?", text: row.message.text.slice(0, 200), label: "Delete", submit: async () => erase(row.message) });
    },
    openPrivate: (id) => openPrivateOrTell(id),
  });

  const editLast = () => {
    const row = rows.findLast((each) => each.kind === "message" && each.isMine && !each.message.deleted && each.state !== "sending" && each.change?.kind !== "delete");
    if (row) setTarget({ kind: "edit", row });
  };

  const onView = useCallback(({ last, isAtEnd: isEnd }) => {
    setAtEnd(isEnd);
    conversation.isAtEnd = isEnd;
    conversation.anchor = isEnd ? null : list.current.anchor; // restored when the user returns
    if (!isAttended()) return;
    const shown = before.current;
    for (let index = Math.min(last, shown.length - 1); index >= 0; index -= 1) {
      const { message } = shown[index];
      if (message?.id) {
        markRead(conversation, message.position);
        break;
      }
    }
    if (isEnd) trim(conversation);
  }, []);
  useEffect(() => {
    const look = () => list.current?.report();
    addEventListener("focus", look);
    document.addEventListener("visibilitychange", look);
    return () => {
      removeEventListener("focus", look);
      document.removeEventListener("visibilitychange", look);
    };
  }, []);

  const jumpToNewest = async () => {
    if (!segment.reachesEnd) await loadNewest(conversation);
    list.current?.scrollToEnd();
  };

  const press = (event) => pressInList(event, { rows, current, setCurrent, list: list.current, actions: actions.current, jumpToNewest });

  const isShown = segment.isLoaded || (rows.length > 0 && segment.error);
  const firstNew = conversation.newFrom === null ? null : rows.find((each) => each.isNews);
  return html`<section class="conversation" aria-labelledby="title">
    <${Header} conversation=${conversation} panel=${panel} />
    <${Banner} />
    <${Spoken} conversation=${conversation} />
    ${isShown
      ? html`<${VirtualList} handle=${list} rows=${rows} estimate=${estimate} hasEnd=${segment.reachesEnd || !segment.isLoaded} label="Messages in ${titleOf(conversation)}"
          isBusy=${segment.loading !== null} onKeyDown=${press} onView=${onView}
          start=${firstNew ? { key: firstNew.key, align: "start" } : null} restored=${conversation.anchor ?? null}
          onNearStart=${() => !segment.error && loadBefore(conversation)} onNearEnd=${() => !segment.error && loadAfter(conversation)}
          renderRow=${(row, index) =>
            row.kind === "intro"
              ? html`<${Intro} key="intro" conversation=${conversation} index=${index} total=${rows.length} />`
              : html`<${MessageRow} key=${row.key} row=${row} index=${index} total=${segment.moreBefore ? -1 : rows.length} isCurrent=${current === row.key}
                  isFlashing=${flashing !== null && flashing === row.message.id} actions=${actions.current} />`} />`
      : html`<div class="messages waiting">${!segment.error && html`<p class="loading" role="status">Loading messages…</p>`}</div>`}
    ${segment.error && html`<div class="banner" role="alert"><${Icon} name="alert" /><span>Older messages could not be loaded. ${segment.error.message}</span>
      <button class="button small" onClick=${() => {
        segment.error = null;
        if (segment.isLoaded) loadBefore(conversation);
        else loadNewest(conversation);
      }}>Try again</button></div>`}
    <div class="below">
      ${isShown && (!isAtEnd || !segment.reachesEnd) && html`<button class="newest" onClick=${jumpToNewest}><${Icon} name="down" />${conversation.unread ? plural(conversation.unread, "new message") : "Newest"}</button>`}
      <${Typing} conversation=${conversation} />
      <${Composer} conversation=${conversation} target=${target} setTarget=${setTarget} editLast=${editLast} onSent=${() => {
        conversation.newFrom = null;
        jumpToNewest();
      }} />
    </div>
  </section>`;
}

// What of the queue is shown in the rows.
function signatureOf(conversation) {
  const entries = entriesOf(conversation.id);
  return entries.map((each) => JSON.stringify([each.client_id, each.state, isInFlight(each), each.text])).join();
}

export async function openPrivateOrTell(id) {
  try {
    await openPrivate(id);
    go(addressTo(`user:${id}`));
  } catch (error) {
    notice(error.message);
  }
}

export function titleOf(conversation) {
  if (conversation.isRoom) return conversation.title;
  const distinction = distinctionOf(conversation.user);
  return `${nameOf(conversation.user)}${distinction ? ` #${distinction}` : ""}`;
}

function Header({ conversation, panel }) {
  useTopics("presence");
  const toggle = (name) => setPanel(panel === name ? null : name);
  const isOnline = conversation.isRoom ? null : state.users.get(conversation.user)?.online;
  const online = conversation.isRoom ? [...conversation.members].filter((id) => state.users.get(id)?.online).length : 0;
  const leave = () =>
    confirm({
      title: `Leave ${conversation.title}?`,
      text: "Its messages no longer reach your queue. You can join again at any time and then see everything that was written meanwhile.",
      label: "Leave",
      submit: async () => {
        await leaveRoom(conversation.title);
        if (conversationAt(currentRoute()) === conversation.id) go("#/");
      },
    });
  return html`<header class="conversation-head">
    <a class="icon-button only-phone" href="#/" aria-label="Back to the list" title="Back to the list"><${Icon} name="back" /></a>
    <div class="conversation-title"><h1 id="title"><bdi>${titleOf(conversation)}</bdi></h1>
      <p class="subtitle">${conversation.isRoom ? `${plural(conversation.members.size, "member")}, ${online} online` : isOnline ? "Online" : "Offline"}</p></div>
    <div class="conversation-actions">
      ${conversation.isRoom && html`<${IconButton} name="people" label="Members" isPressed=${panel === "members" ? "true" : "false"} onClick=${() => toggle("members")} />`}
      <${IconButton} name="search" label="Search" isPressed=${panel === "search" ? "true" : "false"} onClick=${() => toggle("search")} />
      <${IconButton} name="traffic" label="AMQP traffic" isPressed=${panel === "amqp" ? "true" : "false"} onClick=${() => toggle("amqp")} />
      ${conversation.isRoom && html`<${IconButton} name="leave" label="Leave room" onClick=${leave} />`}
    </div>
  </header>`;
}

function Typing({ conversation }) {
  useTopics(`typing ${conversation.id}`);
  const names = [...conversation.typing.keys()].map(nameOf);
  const text =
    names.length === 0 ? "" : names.length === 1 ? `${names[0]} is typing…` : names.length < 4 ? `${names.slice(0, -1).join(", ")} and ${names.at(-1)} are typing…` : `${names.length} people are typing…`;
  return html`<p class="typing">${text}</p>`;
}

// Only messages that have just arrived are announced, never history or what this user has written.
function Spoken({ conversation }) {
  useTopics(topicOf(conversation.id));
  const spoken = conversation.arrivals.slice(-SPOKEN_MAX);
  return html`<div class="offscreen" role="log" aria-live="polite" aria-label="New messages">
    ${spoken.map((each) => html`<p key=${each.id}>${each.author.name}: ${each.text}</p>`)}
  </div>`;
}

// Keys in the list: the arrows move between messages, letters act on the current one.
function pressInList(event, { rows, current, setCurrent, list, actions, jumpToNewest }) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const index = rows.findIndex((each) => each.key === current);
  const select = (wanted) => {
    const row = rows[Math.max(0, Math.min(rows.length - 1, wanted))];
    if (!row) return;
    event.preventDefault();
    setCurrent(row.key);
    list.reveal(row.key);
    list.elementOf(row.key)?.focus({ preventScroll: true });
  };
  const row = rows[index];
  const isOnButton = event.target.matches("button, a");
  switch (event.key) {
    case "ArrowUp":
      select(index < 0 ? list.lastShown() : index - 1);
      break;
    case "ArrowDown":
      select(index < 0 ? list.lastShown() : index + 1);
      break;
    case "End":
      event.preventDefault();
      jumpToNewest();
      break;
    case "r":
      if (row?.message?.id && !row.message.deleted) {
        event.preventDefault();
        actions.reply(row.message);
      }
      break;
    case "e":
      if (row?.isMine && !row.message.deleted) {
        event.preventDefault();
        actions.edit(row);
      }
      break;
    case "c":
      if (row?.message) actions.copy(row.message.text);
      break;
    case "p":
      if (row?.message && !row.isMine) actions.openPrivate(row.message.author.id);
      break;
    case "Delete":
      if (row?.isMine && !row.message.deleted) actions.erase(row);
      break;
    case "Enter":
      if (!isOnButton && row?.message?.quote) actions.jump(row.message.quote.id);
      break;
    default:
  }
}
