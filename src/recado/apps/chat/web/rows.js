// The rows of a conversation: its messages with what stands around them, then what this user has written since. A row
// that has not changed is the same object, so that it is not rendered again.
import { dayNumber } from "./format.js";
import { isInFlight } from "./outbox.js";
import { markOf } from "./text.js";

const GROUP_MAX_MS = 5 * 60_000; // messages of one author within this time have one heading

const ESTIMATES = { row: 6, head: 25, quote: 28, line: 22, day: 52, news: 34, state: 30, intro: 130, left: 110 };
const CHARACTER_PX = 7.4;

export function buildRows(conversation, entries, me, before) {
  const { segment } = conversation;
  const known = new Map(before.map((each) => [each.key, each]));
  const changes = new Map();
  const unsent = [];
  for (const entry of entries) {
    if (entry.kind === "message") unsent.push(entry);
    else changes.set(entry.id, entry);
  }
  const rows = [];
  let previous = null;
  let isNewsShown = false;
  const add = (message, entry) => {
    const isMine = message.author.id === me.id;
    const isFirstOfDay = !previous || dayNumber(previous.time) !== dayNumber(message.time);
    const isNews = !isNewsShown && conversation.newFrom !== null && !isMine && message.position > conversation.newFrom;
    isNewsShown ||= isNews;
    const hasHead =
      isFirstOfDay || isNews || Boolean(message.quote) || previous.author.id !== message.author.id || message.time - previous.time > GROUP_MAX_MS;
    const thread = message.thread ?? message.id;
    const isInThread = message.thread !== null || segment.repliesByThread.has(message.id);
    const change = message.id ? (changes.get(message.id) ?? null) : null;
    const row = {
      kind: "message",
      key: message.client_id ?? message.id,
      message,
      isMine,
      isFirstOfDay,
      isNews,
      hasHead,
      thread: isInThread ? thread : null,
      replies: segment.repliesByThread.get(message.id) ?? 0,
      change,
      // Confirmed, in a queue behind others, on its way, or failed.
      state: stateOf(entry ?? change),
      reason: (entry ?? change)?.reason ?? null,
    };
    rows.push(reuse(known.get(row.key), row));
    previous = message;
  };
  if (segment.isLoaded && !segment.moreBefore) rows.push(known.get("intro") ?? { kind: "intro", key: "intro" });
  for (const message of segment.messages) add(message, null);
  if (segment.reachesEnd || !segment.isLoaded) {
    for (const entry of unsent) add(messageOf(entry, me), entry);
  }
  return rows;
}

function stateOf(entry) {
  if (!entry) return "sent";
  if (entry.state === "failed") return "failed";
  return isInFlight(entry) ? "sending" : "waiting";
}

const messages = new WeakMap(); // entry → what is shown for it

function messageOf(entry, me) {
  const shown = messages.get(entry);
  if (shown?.text === entry.text) return shown;
  const { client_id, conversation, text, at, thread, quote } = entry;
  const message = { id: null, client_id, conversation, text, time: at, author: me, thread, quote, position: Infinity, edited: null, deleted: false };
  messages.set(entry, message);
  return message;
}

function reuse(known, row) {
  if (!known) return row;
  for (const name of Object.keys(row)) if (known[name] !== row[name]) return row;
  return known;
}

export const markOfRow = (row) => (row.thread === null ? null : markOf(row.thread));

// The height of a row that has not been measured.
export function estimate(row, width) {
  if (row.kind === "intro") return ESTIMATES.intro;
  const { text } = row.message;
  const perLine = Math.max(20, (Math.min(width, 900) - ESTIMATES.left) / CHARACTER_PX);
  let lines = 0;
  for (const line of text.split("\n")) lines += Math.max(1, Math.ceil(line.length / perLine));
  return (
    ESTIMATES.row +
    lines * ESTIMATES.line +
    (row.hasHead ? ESTIMATES.head : 0) +
    (row.message.quote ? ESTIMATES.quote : 0) +
    (row.isFirstOfDay ? ESTIMATES.day : 0) +
    (row.isNews ? ESTIMATES.news : 0) +
    (row.state === "failed" ? ESTIMATES.state : 0)
  );
}
