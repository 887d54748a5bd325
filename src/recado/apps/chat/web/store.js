// What the page knows, and who is told when it changes. Frames of the server change `state`; then `changed` names the
// topics, and the components that use them are rendered once before the next frame is painted.
import { useLayoutEffect, useReducer } from "./lib.js";

export const state = {
  phase: "loading", // loading, out (no session), in, lost (the server does not answer)
  me: null, // { id, name }
  connection: "connecting", // connecting, live, waiting (for the next attempt)
  epoch: 0, // number of connections so far
  broker: "connected",
  users: new Map(), // id → { id, name, online }
  conversations: new Map(), // id → Conversation
  rooms: [], // all that exist
  limits: { name: 40, room: 100, text: 8000 }, // characters; the server names its own
  amqp: [], // the newest operations of the broker because of this user
};

const listeners = new Map();
let dirty = new Set();
let isScheduled = false;
let flushes = 0;

export function changed(...topics) {
  for (const topic of topics) dirty.add(topic);
  if (isScheduled) return;
  isScheduled = true;
  if (document.visibilityState === "hidden") setTimeout(flush, 100);
  else requestAnimationFrame(flush);
}

function flush() {
  isScheduled = false;
  flushes += 1;
  const topics = dirty;
  dirty = new Set();
  const told = new Set();
  for (const topic of topics) for (const each of listeners.get(topic) ?? []) told.add(each);
  for (const each of told) each();
}

// A page that was hidden between `changed` and the frame would wait until it is seen again.
document.addEventListener("visibilitychange", () => {
  if (isScheduled) flush();
});

export function listen(topics, listener) {
  for (const topic of topics) {
    if (!listeners.has(topic)) listeners.set(topic, new Set());
    listeners.get(topic).add(listener);
  }
  return () => {
    for (const topic of topics) listeners.get(topic).delete(listener);
  };
}

export function useTopics(...topics) {
  const [, renderAgain] = useReducer((turn) => turn + 1, 0);
  const seen = flushes;
  useLayoutEffect(() => {
    if (flushes !== seen) renderAgain();
    return listen(topics, renderAgain);
  }, topics);
}

export const topicOf = (conversation) => `messages ${conversation}`;
