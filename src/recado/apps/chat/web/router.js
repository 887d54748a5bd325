// The address of a view is the fragment of the URL: `#/room/general?panel=amqp`. Links are ordinary links, so back,
// bookmarks and "open in a new tab" are the browser's.
import { useEffect, useState } from "./lib.js";

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const segments = path.split("/").filter((each) => each !== "");
  return { path: segments.map(decode), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // typed by hand
  }
}

export function href(segments, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(set).toString();
  return `#/${segments.map((each) => encodeURIComponent(each)).join("/")}${text ? `?${text}` : ""}`;
}

// `room:general` is at `#/room/general`.
export function addressOf(conversation, query = {}) {
  const [kind, name] = conversation.split(/:(.*)/s);
  return href([kind, name], query);
}

// The address to go to from here: the AMQP traffic is that of the user and stays open.
export function addressTo(conversation) {
  const { panel } = currentRoute().query;
  return addressOf(conversation, { panel: panel === "amqp" ? panel : null });
}

// The conversation that an address shows; null for other views.
export function conversationAt({ path }) {
  return (path[0] === "room" || path[0] === "user") && path.length === 2 ? `${path[0]}:${path[1]}` : null;
}

const listeners = new Set();
const tell = () => {
  const route = parseRoute(location.hash);
  for (const each of listeners) each(route);
};
addEventListener("hashchange", tell);

export const currentRoute = () => parseRoute(location.hash);

export function go(address, { replace = false } = {}) {
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    tell();
  } else {
    location.hash = address;
  }
}

export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useEffect(() => {
    listeners.add(setRoute);
    return () => listeners.delete(setRoute);
  }, []);
  return route;
}

// Show or hide the panel beside the conversation.
export function setPanel(panel, options) {
  const { path, query } = currentRoute();
  go(href(path, { ...query, panel, at: null }), options);
}
