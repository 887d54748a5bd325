// The connection to the server: it is opened again whenever it is lost, and a connection that no longer answers is
// found by pings, because browsers do not show those of the protocol.
import { changed, state } from "./store.js";

const PAUSE_MIN_MS = 250;
const PAUSE_MAX_MS = 8_000;
const PING_PERIOD_MS = 15_000; // without a frame of the server
const PONG_TIMEOUT_MS = 10_000;
const OPEN_TIMEOUT_MS = 10_000;
const SIGNED_OUT_CODE = 4401;

let socket = null;
let handlers = null;
let pause = PAUSE_MIN_MS;
let retryTimer = 0;
let watchTimer = 0;

// `handlers` are resume() → the first frame, receive(frame), lost() and signedOut().
export function connect(given) {
  handlers = given;
  open();
}

export function disconnect() {
  handlers = null;
  clearTimeout(retryTimer);
  drop();
}

// Returns whether the frame was handed to a connection; it may still be lost with it.
export function send(frame) {
  if (state.connection !== "live" || socket?.readyState !== WebSocket.OPEN) return false;
  socket.send(JSON.stringify(frame));
  return true;
}

export function reconnectNow() {
  if (!handlers || state.connection !== "waiting") return;
  pause = PAUSE_MIN_MS;
  clearTimeout(retryTimer);
  open();
}

function setConnection(name) {
  if (state.connection === name) return;
  state.connection = name;
  changed("connection");
}

function open() {
  drop();
  setConnection("connecting");
  const opened = new WebSocket(new URL("socket", document.baseURI).href.replace(/^http/, "ws"));
  socket = opened;
  watch(OPEN_TIMEOUT_MS, () => fail(opened));
  opened.onopen = () => opened.send(JSON.stringify(handlers.resume()));
  opened.onmessage = (event) => {
    if (opened !== socket) return;
    const frame = JSON.parse(event.data);
    if (frame.type === "welcome") {
      pause = PAUSE_MIN_MS;
      state.epoch += 1;
      setConnection("live");
    }
    watch(PING_PERIOD_MS, ping);
    handlers.receive(frame);
  };
  opened.onclose = (event) => {
    if (opened !== socket) return;
    if (event.code === SIGNED_OUT_CODE) {
      const { signedOut } = handlers;
      disconnect();
      signedOut();
    } else {
      fail(opened);
    }
  };
}

function ping() {
  send({ type: "ping" });
  const asked = socket;
  watch(PONG_TIMEOUT_MS, () => fail(asked));
}

// There is one timer: for the opening, the next ping, or its answer.
function watch(time, action) {
  clearTimeout(watchTimer);
  watchTimer = setTimeout(action, time);
}

function drop() {
  clearTimeout(watchTimer);
  const dropped = socket;
  socket = null;
  dropped?.close();
}

function fail(failed) {
  if (failed !== socket || !handlers) return;
  drop();
  setConnection("waiting");
  handlers.lost();
  // Half of the pause is random, so that all browsers do not return at the same moment.
  retryTimer = setTimeout(open, pause * (0.5 + Math.random() / 2));
  pause = Math.min(pause * 2, PAUSE_MAX_MS);
}

addEventListener("online", reconnectNow);
addEventListener("offline", () => socket && fail(socket));
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && reconnectNow());
