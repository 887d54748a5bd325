// What this user has written and the server has not confirmed: new messages, edits and deletions.
//
// There is one queue per conversation. Only its first entry is sent; the next follows when that one is confirmed, so the
// order is kept, and a failed entry holds back its successors until it is sent again or discarded. Each entry has
// a client id, by which the server recognises an entry that it has already processed: after a lost connection the
// first entry is simply sent again. The queues are stored, so neither a reload nor a crash of the browser loses them.
import { load, namesWith, newId, remove, save, tabId } from "./storage.js";
import { send } from "./socket.js";
import { changed, state, topicOf } from "./store.js";

const TAB = tabId();
const ATTEMPTS_MAX = 6;
const REPEAT_MIN_MS = 250; // doubled with each attempt
const ADOPT_PAUSE_MS = 1_000; // in which the other tabs of this browser answer

export const outbox = { entries: [], isStored: true };
const inFlight = new Map(); // conversation → client id
const pauses = new Map(); // conversation → timer until its first entry is sent again
let channel = null;

const nameOf = (tab) => `outbox.${state.me.id}.${tab}`;

// Load what this tab had not sent, and what closed tabs of this browser had not.
export function openOutbox() {
  outbox.entries = load(nameOf(TAB), []);
  inFlight.clear();
  channel?.close();
  channel = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel(`recado.chat.${state.me.id}`);
  const alive = new Set([TAB]);
  if (channel) {
    channel.onmessage = ({ data }) => {
      if (data.question) channel.postMessage({ tab: TAB });
      else alive.add(data.tab);
    };
    channel.postMessage({ question: true });
  }
  const opened = channel;
  setTimeout(() => opened === channel && state.me && adopt(alive), ADOPT_PAUSE_MS);
}

export function closeOutbox() {
  channel?.close();
  channel = null;
  outbox.entries = [];
  inFlight.clear();
}

function adopt(alive) {
  const prefix = `outbox.${state.me.id}.`;
  const orphans = namesWith(prefix).filter((name) => !alive.has(name.slice(prefix.length)));
  const found = orphans.flatMap((name) => load(name, []));
  for (const name of orphans) remove(name);
  if (!found.length) return;
  outbox.entries = [...found, ...outbox.entries];
  store(...new Set(found.map((each) => each.conversation)));
  pumpAll();
}

function store(...conversations) {
  if (outbox.entries.length) outbox.isStored = save(nameOf(TAB), outbox.entries);
  else remove(nameOf(TAB));
  changed("outbox", ...conversations.map(topicOf));
}

export const entriesOf = (conversation) => outbox.entries.filter((each) => each.conversation === conversation);

export const isInFlight = (entry) => inFlight.get(entry.conversation) === entry.client_id;

// Add a message ({ kind: "message", conversation, text, reply_to, quote, thread }), an edit ({ kind: "edit", id, text,
// conversation }) or a deletion, and send it in its turn.
export function enqueue(entry) {
  outbox.entries.push({ ...entry, client_id: newId(), at: Date.now(), state: "pending", reason: null });
  store(entry.conversation);
  pump(entry.conversation);
}

export function retry(id) {
  const entry = outbox.entries.find((each) => each.client_id === id);
  if (!entry) return;
  Object.assign(entry, { state: "pending", reason: null, attempts: 0 });
  store(entry.conversation);
  pump(entry.conversation);
}

// The user is a member of the conversation again.
export function retryAll(conversation) {
  for (const each of entriesOf(conversation)) if (each.state === "failed") retry(each.client_id);
}

// Returns the entry, so that its text can be restored.
export function discard(id) {
  const entry = outbox.entries.find((each) => each.client_id === id);
  if (entry) settle(id);
  return entry;
}

// Change the text of a message that has not been sent. Returns false if it is on its way.
export function rewrite(id, text) {
  const entry = outbox.entries.find((each) => each.client_id === id);
  if (!entry || isInFlight(entry)) return false;
  Object.assign(entry, { text, state: "pending", reason: null, attempts: 0 });
  store(entry.conversation);
  pump(entry.conversation);
  return true;
}

// The server has confirmed an entry, or its message has come back. Returns the entry if it was still here.
export function settle(id) {
  const index = outbox.entries.findIndex((each) => each.client_id === id);
  if (index < 0) return null;
  const [entry] = outbox.entries.splice(index, 1);
  if (isInFlight(entry)) inFlight.delete(entry.conversation);
  store(entry.conversation);
  pump(entry.conversation);
  return entry;
}

// The server has refused an entry. What may succeed later is repeated some times before it counts as failed.
export function reject(id, reason, isRepeatable) {
  const entry = outbox.entries.find((each) => each.client_id === id);
  if (!entry) return;
  const { conversation } = entry;
  if (isInFlight(entry)) inFlight.delete(conversation);
  entry.attempts = (entry.attempts ?? 0) + 1;
  if (isRepeatable && entry.attempts < ATTEMPTS_MAX) {
    const resume = () => {
      pauses.delete(conversation);
      if (state.me) pump(conversation);
    };
    pauses.set(conversation, setTimeout(resume, REPEAT_MIN_MS * 2 ** entry.attempts));
  } else {
    Object.assign(entry, { state: "failed", reason });
  }
  store(conversation);
}

// The connection is lost: no answer will come to what was sent over it.
export function forgetFlights() {
  const conversations = [...inFlight.keys()];
  inFlight.clear();
  changed("outbox", ...conversations.map(topicOf));
}

export function pumpAll() {
  for (const conversation of new Set(outbox.entries.map((each) => each.conversation))) pump(conversation);
}

function pump(conversation) {
  if (inFlight.has(conversation) || pauses.has(conversation)) return;
  const entry = outbox.entries.find((each) => each.conversation === conversation);
  if (!entry || entry.state === "failed") return;
  if (send(frameOf(entry))) {
    inFlight.set(conversation, entry.client_id);
    changed(topicOf(conversation));
  }
}

function frameOf({ kind, client_id, conversation, text, reply_to, id }) {
  if (kind === "edit") return { type: "edit", client_id, id, text };
  if (kind === "delete") return { type: "delete", client_id, id };
  return { type: "send", client_id, conversation, text, reply_to: reply_to ?? null };
}
