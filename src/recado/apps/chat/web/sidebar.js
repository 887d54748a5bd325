// The list of conversations, and the field that finds or joins one.
import { distinctionOf, endSession, joinRoom, nameOf, unreadTotal, unsentTotal } from "./chat.js";
import { openPrivateOrTell } from "./conversation-view.js";
import { copyText, Form, notice, openDialog } from "./dialogs.js";
import { createLink } from "./api.js";
import { badge, briefTimeOf, plural } from "./format.js";
import { Icon, IconButton, Logo } from "./icons.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { notificationState, turnOff, turnOn } from "./notifications.js";
import { addressTo, go, useRoute } from "./router.js";
import { state, useTopics } from "./store.js";

const FOUND_MAX = 8;
const HAS_KEYBOARD = matchMedia("(pointer: fine)").matches;

// Where it is all that is seen, it is the main part of the page.
export function Sidebar({ current, isMain }) {
  useTopics("conversations", "presence", "connection");
  useRoute();
  const conversations = sorted();
  useEffect(() => {
    const unread = unreadTotal();
    const title = state.conversations.get(current)?.title;
    document.title = `${unread ? `(${badge(unread)}) ` : ""}${title ? `${title} · ` : ""}recado chat`;
  });
  const rooms = conversations.filter((each) => each.isRoom);
  const privates = conversations.filter((each) => !each.isRoom);
  return html`<div class="sidebar" role=${isMain ? "main" : "complementary"} aria-label="Conversations">
    ${isMain && html`<h1 class="offscreen">Conversations</h1>`}
    <div class="brand"><a href="#/" aria-label="recado, start"><${Logo} />recado</a>
      <span class="status ${state.connection}" role="status">${{ live: "", waiting: "Not connected", connecting: "Connecting…" }[state.connection]}</span></div>
    <${Finder} />
    <nav class="lists" aria-label="Rooms and people">
      <div class="group"><h2>Rooms</h2><${IconButton} name="plus" label="All rooms" onClick=${showRooms} /></div>
      <ul>${rooms.map((each) => html`<${Entry} key=${each.id} conversation=${each} isCurrent=${each.id === current} />`)}</ul>
      ${!rooms.length && html`<p class="hint">You are in no room yet.</p>`}
      <div class="group"><h2>People</h2></div>
      <ul>${privates.map((each) => html`<${Entry} key=${each.id} conversation=${each} isCurrent=${each.id === current} />`)}</ul>
      ${!privates.length && html`<p class="hint">Click a name to write in private.</p>`}
    </nav>
    <div class="me"><span class="me-name"><bdi>${state.me.name}</bdi></span>
      <${IconButton} name="more" label="Settings and help" onClick=${showSettings} /></div>
  </div>`;
}

// Rooms by name, people by the time of the last message.
export function sorted() {
  const collator = new Intl.Collator();
  return [...state.conversations.values()].sort((one, other) => {
    if (one.isRoom !== other.isRoom) return one.isRoom ? -1 : 1;
    return one.isRoom ? collator.compare(one.title, other.title) : (other.lastMessage?.time ?? Infinity) - (one.lastMessage?.time ?? Infinity) || 0;
  });
}

function Entry({ conversation, isCurrent }) {
  const { isRoom, unread, lastMessage } = conversation;
  const user = isRoom ? null : state.users.get(conversation.user);
  const title = isRoom ? conversation.title : nameOf(conversation.user);
  const distinction = isRoom ? null : distinctionOf(conversation.user);
  const preview = lastMessage && (lastMessage.deleted ? "Message deleted" : `${isRoom ? `${lastMessage.author.id === state.me.id ? "You" : lastMessage.author.name}: ` : ""}${lastMessage.text}`);
  return html`<li><a class="entry ${unread ? "unread" : ""}" href=${addressTo(conversation.id)} aria-current=${isCurrent ? "page" : undefined}>
    <span class="entry-mark ${isRoom ? "" : user?.online ? "online" : "offline"}" aria-hidden="true">${isRoom ? "#" : ""}</span>
    <span class="entry-title"><bdi>${title}</bdi>${distinction && html`<span class="distinction">#${distinction}</span>`}${!isRoom && html`<span class="offscreen">${user?.online ? ", online" : ", offline"}</span>`}</span>
    ${lastMessage && html`<time class="entry-time">${briefTimeOf(lastMessage.time)}</time>`}
    <span class="entry-preview" dir="auto">${preview ?? "No messages yet"}</span>
    ${unread > 0 && html`<span class="count" aria-label=${plural(unread, "unread message")}>${badge(unread)}</span>`}
  </a></li>`;
}

// ── finding and joining ───────────────────────────────────────────────────────────────────────────

function findTargets(text) {
  const wanted = text.trim().toLocaleLowerCase();
  if (!wanted) return [];
  const matches = (name) => name.toLocaleLowerCase().includes(wanted);
  const targets = [];
  for (const each of state.conversations.values()) {
    const title = each.isRoom ? each.title : nameOf(each.user);
    if (matches(title)) targets.push({ id: each.id, kind: each.isRoom ? "Room" : "Private", title, open: () => go(addressTo(each.id)) });
  }
  for (const each of state.rooms) {
    if (state.conversations.has(`room:${each.name}`) || !matches(each.name)) continue;
    targets.push({ id: `room:${each.name}`, kind: `Join, ${plural(each.members, "member")}`, title: each.name, open: () => join(each.name) });
  }
  for (const each of state.users.values()) {
    if (each.id === state.me.id || state.conversations.has(`user:${each.id}`) || !matches(each.name)) continue;
    targets.push({ id: `user:${each.id}`, kind: each.online ? "Online" : "Offline", title: each.name, open: () => openPrivateOrTell(each.id) });
  }
  const found = targets.slice(0, FOUND_MAX);
  const name = text.trim();
  if (!state.rooms.some((each) => each.name === name)) found.push({ id: `new:${name}`, kind: "New room", title: name, open: () => join(name) });
  return found;
}

async function join(name) {
  const conversation = await joinRoom(name);
  go(addressTo(conversation?.id ?? `room:${name}`));
}

function Finder() {
  useTopics("rooms");
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState(0);
  const [error, setError] = useState(null);
  const [hasFocus, setFocus] = useState(false);
  const input = useRef(null);
  const found = findTargets(text);
  const open = async (target) => {
    try {
      await target.open();
      setText("");
      setError(null);
      input.current.blur();
    } catch (failure) {
      setError(failure);
    }
  };
  const press = (event) => {
    if (event.isComposing || event.keyCode === 229) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) {
      event.preventDefault();
      setChosen((chosen + step + found.length) % found.length);
    } else if (event.key === "Enter" && found.length) {
      event.preventDefault();
      open(found[Math.min(chosen, found.length - 1)]);
    } else if (event.key === "Escape") {
      setText("");
      setError(null);
      input.current.blur();
    }
  };
  const isOpen = hasFocus && found.length > 0;
  return html`<div class="finder">
    <input ref=${input} data-finder type="search" role="combobox" aria-label="Find or join a room or person" placeholder=${HAS_KEYBOARD ? "Find or join  Ctrl K" : "Find or join"} value=${text}
      aria-expanded=${isOpen ? "true" : "false"} aria-controls="found" aria-autocomplete="list" aria-activedescendant=${isOpen ? `found-${chosen}` : undefined}
      autocomplete="off" spellcheck=${false} onKeyDown=${press} onFocus=${() => setFocus(true)} onBlur=${() => setFocus(false)}
      onInput=${(event) => {
        setText(event.target.value);
        setChosen(0);
        setError(null);
      }} />
    <ul class="found" id="found" role="listbox" aria-label="Found" hidden=${!isOpen}>
      ${found.map((target, index) => html`<li key=${target.id} id="found-${index}" role="option" aria-selected=${index === chosen ? "true" : "false"}
        onPointerDown=${(event) => {
          event.preventDefault();
          open(target);
        }}><bdi>${target.title}</bdi><span class="muted">${target.kind}</span></li>`)}
    </ul>
    ${error && html`<p class="form-error" role="alert">${error.message}</p>`}
  </div>`;
}

// All rooms, to join or open.
export function RoomList({ done }) {
  useTopics("rooms", "conversations");
  const [error, setError] = useState(null);
  const enter = async (name) => {
    try {
      await join(name);
      done?.();
    } catch (failure) {
      setError(failure);
    }
  };
  const rooms = [...state.rooms].sort((one, other) => other.members - one.members || one.name.localeCompare(other.name));
  return html`<ul class="room-list">
      ${rooms.map(({ name, members }) => {
        const isMember = state.conversations.has(`room:${name}`);
        return html`<li key=${name}><span class="room-name"><bdi>${name}</bdi><small class="muted">${plural(members, "member")}</small></span>
          <button type="button" class="button ${isMember ? "" : "primary"}" aria-label="${isMember ? "Open" : "Join"} ${name}" onClick=${() => enter(name)}>${isMember ? "Open" : "Join"}</button></li>`;
      })}
    </ul>
    ${error && html`<p class="form-error" role="alert">${error.message}</p>`}`;
}

export function JoinForm({ done }) {
  const [name, setName] = useState("");
  return html`<${Form} label="Join" submit=${async () => {
    if (!name.trim()) throw new Error("Please enter the name of a room.");
    await join(name.trim());
    done?.();
  }}><label class="field"><span>Name of a room</span>
    <input value=${name} onInput=${(event) => setName(event.target.value)} maxlength=${state.limits.room} autocomplete="off" /></label>
    <p class="hint">A room that does not exist yet is created.</p><//>`;
}

function showRooms() {
  openDialog("Rooms", (close) => html`<${RoomList} done=${close} /><${JoinForm} done=${close} />`);
}

// ── settings ──────────────────────────────────────────────────────────────────────────────────────

export function showSettings() {
  openDialog("Settings and help", (close) => html`<${Settings} close=${close} />`);
}

const NOTIFICATIONS = {
  on: ["On for private messages and mentions", "Turn off"],
  off: ["Off", "Turn on"],
  denied: ["Blocked in the settings of this browser", null],
  unsupported: ["This page may not show them: it needs https or this machine", null],
};
const THEMES = { "": "As the system", light: "Light", dark: "Dark" };

function Settings({ close }) {
  const [, refresh] = useState(0);
  const [notifications, action] = NOTIFICATIONS[notificationState()];
  const toggle = async () => {
    if (notificationState() === "on") turnOff();
    else await turnOn();
    refresh(Date.now());
  };
  return html`<ul class="settings">
    <li><${Icon} name="bell" /><span><b>Notifications</b><small>${notifications}</small></span>
      ${action && html`<button type="button" class="button" aria-label="${action} notifications" onClick=${toggle}>${action}</button>`}</li>
    <li><${Icon} name="sun" /><span><b id="theme-label">Theme</b></span><${ThemeSwitch} /></li>
    <li><${Icon} name="device" /><span><b>Another device</b><small>Continue there under this name</small></span>
      <button type="button" class="button" onClick=${() => showLink(close)}>Use on another device</button></li>
    <li><${Icon} name="keys" /><span><b>Keyboard</b></span><button type="button" class="button" onClick=${showShortcuts}>Shortcuts</button></li>
    <li><${Icon} name="leave" /><span><b><bdi>${state.me.name}</bdi></b><small class="id">${state.me.id}</small></span>
      <button type="button" class="button danger" onClick=${() => askSignOut(close)}>Sign out</button></li>
  </ul>`;
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const choose = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("recado.theme", name);
    } catch {
      // Storage is off: the choice lasts as long as the page.
    }
    setTheme(name);
  };
  return html`<div class="segmented" role="group" aria-labelledby="theme-label">
    ${Object.entries(THEMES).map(([name, label]) => html`<button key=${name} type="button" aria-pressed=${theme === name ? "true" : "false"} onClick=${() => choose(name)}>${label}</button>`)}
  </div>`;
}

async function showLink(close) {
  try {
    const url = await createLink();
    openDialog(
      "Use on another device",
      () => html`<p>Open this address there within five minutes. It works once, and signs that device in as <b><bdi>${state.me.name}</bdi></b>.</p>
        <div class="link-box"><code>${url}</code><button type="button" class="button primary" onClick=${() => copyText(url, "The address is copied")}>Copy</button></div>
        <p class="hint">Do not pass it on: anyone who opens it writes as you.</p>`,
    );
  } catch (error) {
    close();
    notice(error.message);
  }
}

function askSignOut(close) {
  const unsent = unsentTotal();
  openDialog(
    "Sign out?",
    (cancel) => html`<${Form} label="Sign out" isDanger cancel=${cancel} submit=${async () => {
      await endSession();
      close();
    }}><p>${unsent ? `${plural(unsent, "message")} of yours ${unsent === 1 ? "has" : "have"} not been sent. ` : ""}This name and its private conversations cannot be opened in this browser again. To keep them, use the address for another device first.</p><//>`,
  );
}

const SHORTCUTS = [
  ["In the field", [["Enter", "Send"], ["Shift Enter", "New line"], ["↑", "Edit your last message, if the field is empty"], [":name:", "Emoji"], ["@name", "Mention a member"], ["Esc", "Leave the reply or the edit; then go to the messages"]]],
  ["In the messages", [["↑ ↓", "Previous, next message"], ["End", "Newest message"], ["r", "Reply"], ["e", "Edit"], ["Delete", "Delete"], ["c", "Copy the text"], ["p", "Write to the author in private"], ["Enter", "Show the message that this one answers"]]],
  ["Everywhere", [["Ctrl K", "Find or join a room or person"], ["Alt ↑ ↓", "Previous, next conversation"], ["Alt Shift ↑ ↓", "Previous, next unread conversation"], ["Ctrl /", "Search messages"], ["?", "This list"]]],
];

export function showShortcuts() {
  openDialog(
    "Keyboard shortcuts",
    () => html`${SHORTCUTS.map(([title, keys]) => html`<h3>${title}</h3><dl class="keys">
      ${keys.map(([key, text]) => html`<dt>${key.split(" ").map((each) => html`<kbd>${each}</kbd> `)}</dt><dd>${text}</dd>`)}
    </dl>`)}`,
  );
}
