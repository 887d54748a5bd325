// What each frame of the server changes, and what the user does to conversations.
import { loadHistory, loadSession, signOut } from "./api.js";
import { sentence } from "./format.js";
import { notifyOf } from "./notifications.js";
import { closeOutbox, enqueue, forgetFlights, openOutbox, outbox, pumpAll, reject, retryAll, settle } from "./outbox.js";
import { Segment } from "./segment.js";
import { connect, disconnect, send } from "./socket.js";
import { changed, state, topicOf } from "./store.js";

const PAGE_SIZE = 50;
const FIRST_PAGE_MAX = 200; // messages that the server answers at most
const TYPING_SHOWN_MS = 4_000;
const TYPING_LATE_MS = 1_000; // news of typing are collected by the server, and come after the message that was typed
const TYPING_PERIOD_MS = 3_000;
const READ_PAUSE_MS = 250;
const HELD_MAX = 1_000; // messages of a conversation that grows while its end is shown
const HELD_AFTER_TRIM = 300;
const AMQP_MAX = 300;
const REQUEST_TIMEOUT_MS = 10_000;

class Conversation {
  constructor({ id }) {
    this.id = id;
    this.user = id.startsWith("user:") ? id.slice("user:".length) : null;
    this.segment = new Segment();
    this.typing = new Map(); // user id → timer that ends it
    this.newFrom = null; // position after which messages were unread when the conversation was opened
    this.spokeAt = new Map(); // user id → time of the last message
    this.arrivals = []; // delivered while it is shown, for screen readers
  }

  update({ title, unread, read_position, last_position, last_message, members }) {
    this.title = title;
    this.unread = unread;
    this.readPosition = read_position;
    this.lastPosition = last_position;
    this.countedPosition = last_position; // the newest message that `unread` takes into account
    this.lastMessage = last_message;
    this.members = new Set(members ?? []);
    return this;
  }

  get isRoom() {
    return this.user === null;
  }
}

// ── the session ───────────────────────────────────────────────────────────────────────────────────

export async function start() {
  try {
    const me = await loadSession();
    if (me) enter(me);
    else setPhase("out");
  } catch {
    setPhase("lost");
  }
}

export function enter(me) {
  state.me = me;
  openOutbox();
  setPhase("in");
  connect({ resume, receive, lost: forgetFlights, signedOut: leave });
}

export async function endSession() {
  await signOut();
  leave();
}

function leave() {
  disconnect();
  closeOutbox();
  Object.assign(state, { me: null, connection: "connecting", users: new Map(), conversations: new Map(), rooms: [], amqp: [] });
  setPhase("out");
}

function setPhase(phase) {
  state.phase = phase;
  changed("phase");
}

// ── frames ────────────────────────────────────────────────────────────────────────────────────────

function resume() {
  const held = [...state.conversations.values()].filter((each) => each.segment.reachesEnd);
  return {
    type: "resume",
    positions: state.epoch ? Object.fromEntries(held.map((each) => [each.id, each.segment.seen])) : null,
  };
}

const HANDLERS = {
  welcome: onWelcome,
  missed: onMissed,
  message: ({ message }) => onMessage({ ...message, revision: message.position }),
  changed: ({ message, position }) => onChanged({ ...message, revision: position }),
  sent: onSent,
  failed: ({ client_id, reason, retry }) => reject(client_id, reason, retry),
  joined: onAdded,
  opened: onAdded,
  conversation: onAdded,
  left: onLeft,
  members: onMembers,
  presence: ({ users }) => {
    for (const each of users) state.users.set(each.id, each);
    changed("presence");
  },
  typing: onTyping,
  read: onRead,
  rooms: ({ rooms }) => {
    const known = new Map(state.rooms.map((each) => [each.name, each]));
    for (const each of rooms) known.set(each.name, each);
    state.rooms = [...known.values()];
    changed("rooms");
  },
  broker: ({ state: broker }) => {
    state.broker = broker;
    changed("connection");
  },
  amqp: onAmqp,
  error: onError,
  pong: () => {},
};

function receive(frame) {
  HANDLERS[frame.type]?.(frame);
}

function onWelcome({ me, users, conversations, rooms, broker, limits }) {
  state.me = me;
  state.users = new Map(users.map((each) => [each.id, each]));
  state.rooms = rooms;
  state.broker = broker;
  if (limits) Object.assign(state.limits, limits);
  const before = state.conversations;
  state.conversations = new Map(conversations.map((each) => [each.id, (before.get(each.id) ?? new Conversation(each)).update(each)]));
  for (const conversation of state.conversations.values()) {
    const { segment } = conversation;
    if (segment.error) {
      segment.error = null;
      if (!segment.isLoaded) loadNewest(conversation);
    }
    changed(topicOf(conversation.id));
  }
  if (isDrawerOpen) watchAmqp(true);
  changed("conversations", "presence", "rooms", "connection", "welcome");
  pumpAll();
}

function onMissed({ conversation: id, position, messages, changed: older, more }) {
  const conversation = state.conversations.get(id);
  if (!conversation) return;
  const { segment } = conversation;
  const missed = [...older, ...messages].map((each) => ({ ...each, revision: position }));
  for (const each of missed) if (each.client_id) settle(each.client_id);
  if (more && conversation.isAtEnd !== false) segment.clear();
  else segment.catchUp({ messages: missed, position, isMore: more });
  changed(topicOf(id));
}

function onMessage(message) {
  const conversation = state.conversations.get(message.conversation);
  if (message.client_id) settle(message.client_id);
  if (!conversation) return;
  const isMine = message.author.id === state.me.id;
  if (message.position > conversation.lastPosition) {
    conversation.lastPosition = message.position;
    conversation.lastMessage = message;
    changed("conversations");
  }
  if (message.position > conversation.countedPosition) {
    conversation.countedPosition = message.position;
    if (!isMine && !message.deleted && message.position > conversation.readPosition) {
      conversation.unread += 1;
      changed("conversations");
    }
  }
  stopTyping(conversation, message.author.id);
  conversation.spokeAt.set(message.author.id, Date.now());
  if (!isMine) {
    conversation.arrivals.push(message);
    notifyOf(message, conversation);
  }
  conversation.segment.receive(message);
  changed(topicOf(conversation.id));
}

function onChanged(message) {
  const conversation = state.conversations.get(message.conversation);
  if (!conversation) return;
  const { segment } = conversation;
  if (message.deleted && !segment.byId.get(message.id)?.deleted && message.author.id !== state.me.id) {
    if (message.position > conversation.readPosition && conversation.unread > 0) conversation.unread -= 1;
  }
  if (conversation.lastMessage?.id === message.id) conversation.lastMessage = message;
  segment.receive(message);
  segment.requote(message);
  changed("conversations", topicOf(conversation.id));
}

function onSent({ client_id, id, position }) {
  const entry = settle(client_id);
  const conversation = entry && state.conversations.get(entry.conversation);
  if (!conversation) return;
  const { segment } = conversation;
  if (entry.kind === "message") {
    segment.confirm({
      id,
      conversation: entry.conversation,
      position,
      revision: position,
      author: state.me,
      text: entry.text,
      time: entry.at,
      client_id,
      thread: entry.thread ?? null,
      quote: entry.quote ?? null,
      edited: null,
      deleted: false,
    });
  } else {
    const message = segment.byId.get(id);
    if (message) {
      const change = entry.kind === "delete" ? { deleted: true, text: "" } : { text: entry.text, edited: Date.now() };
      segment.byId.set(id, Object.assign(message, change));
      segment.version += 1;
    }
  }
  changed(topicOf(conversation.id));
}

function onAdded({ conversation: given }) {
  const known = state.conversations.get(given.id);
  state.conversations.set(given.id, (known ?? new Conversation(given)).update(given));
  changed("conversations", topicOf(given.id));
  answer(given.id, { conversation: given });
  retryAll(given.id);
}

function onLeft({ conversation: id }) {
  state.conversations.delete(id);
  changed("conversations", topicOf(id));
  answer(id, {});
}

function onMembers({ conversation: id, joined, left }) {
  const conversation = state.conversations.get(id);
  if (!conversation) return;
  for (const each of joined) conversation.members.add(each);
  for (const each of left) conversation.members.delete(each);
  changed("presence", topicOf(id));
}

function onTyping({ conversation: id, users }) {
  const conversation = state.conversations.get(id);
  if (!conversation) return;
  for (const user of users) {
    if (user === state.me.id || Date.now() - (conversation.spokeAt.get(user) ?? 0) < TYPING_LATE_MS) continue;
    clearTimeout(conversation.typing.get(user));
    conversation.typing.set(user, setTimeout(() => stopTyping(conversation, user), TYPING_SHOWN_MS));
  }
  changed(`typing ${id}`);
}

function stopTyping(conversation, id) {
  if (!conversation.typing.has(id)) return;
  clearTimeout(conversation.typing.get(id));
  conversation.typing.delete(id);
  changed(`typing ${conversation.id}`);
}

function onRead({ conversation: id, position, unread, last_position }) {
  const conversation = state.conversations.get(id);
  if (!conversation) return;
  conversation.readPosition = Math.max(conversation.readPosition, position);
  conversation.unread = unread;
  conversation.countedPosition = last_position ?? conversation.countedPosition;
  changed("conversations", topicOf(id));
}

let amqpNumber = 0;

function onAmqp({ entries }) {
  const news = entries.filter((each) => each.time > amqpClearedAt);
  if (isAmqpRepeated) state.amqp = [];
  isAmqpRepeated = false;
  state.amqp = [...state.amqp, ...news.map((each) => ({ ...each, number: (amqpNumber += 1) }))].slice(-AMQP_MAX);
  changed("amqp");
}

// ── requests over the socket ──────────────────────────────────────────────────────────────────────

const waiting = new Map(); // id of a conversation → { resolve, reject, timer }

function ask(id, frame) {
  return new Promise((resolve, fail) => {
    if (!send(frame)) {
      fail(new Error("There is no connection. Please try again when it is back."));
      return;
    }
    const timer = setTimeout(() => answer(id, { error: new Error("The server has not answered. Please try again.") }), REQUEST_TIMEOUT_MS);
    waiting.set(id, { resolve, fail, timer });
  });
}

function answer(id, { error, conversation }) {
  const asked = waiting.get(id);
  if (!asked) return;
  waiting.delete(id);
  clearTimeout(asked.timer);
  if (error) asked.fail(error);
  else asked.resolve(conversation);
}

// A refused frame: the field says which request it was. What nobody waits for is shown.
function onError({ field, reason }) {
  const kind = { room: "room:", user: "user:" }[field];
  const asked = kind && [...waiting.keys()].find((each) => each.startsWith(kind));
  if (asked) answer(asked, { error: new Error(sentence(reason)) });
  else console.warn("the server has refused a request:", field, reason);
}

export const joinRoom = (name) => ask(`room:${name}`, { type: "join", room: name });
export const leaveRoom = (name) => ask(`room:${name}`, { type: "leave", room: name });

export async function openPrivate(user) {
  if (!state.conversations.has(`user:${user}`)) await ask(`user:${user}`, { type: "open", user });
}

// ── pages of history ──────────────────────────────────────────────────────────────────────────────

async function loadPage(conversation, kind, values, apply) {
  const { segment } = conversation;
  if (segment.loading) return;
  segment.loading = kind;
  segment.error = null;
  segment.arrived = [];
  const { epoch } = state;
  changed(topicOf(conversation.id));
  try {
    const page = await loadHistory({ conversation: conversation.id, limit: PAGE_SIZE, ...values });
    segment.loading = null;
    if (state.epoch !== epoch && !page.more_after && kind !== "before") {
      // The connection was lost meanwhile, and what was published then may be in neither.
      await loadPage(conversation, kind, values, apply);
      return;
    }
    for (const each of page.messages) if (each.client_id) settle(each.client_id); // sent, and the answer was lost
    apply(page);
  } catch (error) {
    segment.loading = null;
    segment.error = error;
  }
  changed(topicOf(conversation.id));
}

// The newest messages, from the first unread one on if they are not too many.
export function loadNewest(conversation) {
  const { segment } = conversation;
  const limit = Math.min(FIRST_PAGE_MAX, Math.max(PAGE_SIZE, conversation.unread + 20));
  return loadPage(conversation, "newest", { limit }, (page) => segment.replace(page));
}

export function loadBefore(conversation) {
  const { segment } = conversation;
  if (!segment.moreBefore || !segment.first) return undefined;
  return loadPage(conversation, "before", { before: segment.first.position, limit: 100 }, (page) => segment.prepend(page));
}

export function loadAfter(conversation) {
  const { segment } = conversation;
  if (!segment.moreAfter || !segment.last) return undefined;
  return loadPage(conversation, "after", { after: segment.last.position, limit: 100 }, (page) => segment.append(page));
}

export const loadAround = (conversation, values) =>
  loadPage(conversation, "around", values, (page) => conversation.segment.replace(page));

export function trim(conversation) {
  if (conversation.segment.messages.length > HELD_MAX) conversation.segment.trim(HELD_AFTER_TRIM);
}

// ── reading and writing ───────────────────────────────────────────────────────────────────────────

const reads = new Map(); // conversation → position to be sent

// The user has seen everything up to a position.
export function markRead(conversation, position) {
  if (position <= Math.max(conversation.readPosition, reads.get(conversation.id) ?? 0)) return;
  if (!reads.size) setTimeout(sendReads, READ_PAUSE_MS);
  reads.set(conversation.id, position);
}

function sendReads() {
  for (const [id, position] of reads) send({ type: "read", conversation: id, position });
  reads.clear();
}

let typedAt = 0;

export function tellTyping(conversation) {
  if (Date.now() - typedAt < TYPING_PERIOD_MS) return;
  typedAt = Date.now();
  send({ type: "typing", conversation: conversation.id });
}

export function write(conversation, text, original) {
  typedAt = 0;
  enqueue({
    kind: "message",
    conversation: conversation.id,
    text,
    reply_to: original?.id ?? null,
    thread: original ? (original.thread ?? original.id) : null,
    quote: original ? { id: original.id, author_name: original.author.name, text: original.text.slice(0, 200) } : null,
  });
}

export const edit = (message, text) => enqueue({ kind: "edit", conversation: message.conversation, id: message.id, text });
export const erase = (message) => enqueue({ kind: "delete", conversation: message.conversation, id: message.id });

let isDrawerOpen = false;
let isAmqpRepeated = false; // the next entries begin with the last ones once more
let amqpClearedAt = 0;

export function watchAmqp(isOpen) {
  isDrawerOpen = isOpen;
  isAmqpRepeated = isOpen;
  send({ type: "drawer", open: isOpen });
}

export function clearAmqp() {
  amqpClearedAt = state.amqp.at(-1)?.time ?? 0;
  state.amqp = [];
  changed("amqp");
}

// ── names ─────────────────────────────────────────────────────────────────────────────────────────

export const nameOf = (id) => state.users.get(id)?.name ?? "unknown";

// Wide and other letters of compatibility count as the plain ones, and invisible parts of emoji as nothing.
const foldName = (name) => name.normalize("NFKC").replace(/[\u200d\ufe0f]/gu, "").toLocaleLowerCase();

// Anybody may choose any name. Where two users have the same one, the first characters of the id tell them apart.
export function distinctionOf(id) {
  const name = foldName(nameOf(id));
  if (namesVersion !== state.users || namesSize !== state.users.size) {
    namesVersion = state.users;
    namesSize = state.users.size;
    idsByName.clear();
    for (const each of state.users.values()) {
      const key = foldName(each.name);
      idsByName.set(key, (idsByName.get(key) ?? 0) + 1);
    }
  }
  return (idsByName.get(name) ?? 0) > 1 ? id.slice(0, 4) : null;
}

const idsByName = new Map();
let namesVersion = null;
let namesSize = 0;

export const unreadTotal = () => [...state.conversations.values()].reduce((sum, each) => sum + each.unread, 0);
export const unsentTotal = () => outbox.entries.length;
