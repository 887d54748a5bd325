// The address of a view is the fragment of the URL: `#/queues/%2F/orders?range=1h`. Links are ordinary links, so back,
// bookmarks and "open in a new tab" are the browser's. Segments are those of the API: each name is encoded.
import { useEffect, useState } from "./lib.js";

export function parseRoute(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const segments = path.split("/").filter((each) => each !== "");
  return {
    path: segments.map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

function decode(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment; // typed by hand
  }
}

export function href(segments, query = {}) {
  const path = segments.map((each) => encodeURIComponent(each)).join("/");
  const set = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const text = new URLSearchParams(set).toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

export function go(segments, query = {}) {
  location.hash = href(segments, query);
}

const listeners = new Set();
addEventListener("hashchange", () => notify());

function notify() {
  const route = parseRoute(location.hash);
  for (const each of listeners) each(route);
}

export function useRoute() {
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    listeners.add(setRoute);
    return () => listeners.delete(setRoute);
  }, []);
  return route;
}

// Change some parameters of the current view. Typing in a filter replaces the address; choosing something adds one.
export function setQuery(change, { replace = false } = {}) {
  const { path, query } = parseRoute(location.hash);
  const address = href(path, { ...query, ...change });
  if (address === location.hash) return;
  if (replace) {
    history.replaceState(null, "", address);
    notify();
  } else {
    location.hash = address;
  }
}
