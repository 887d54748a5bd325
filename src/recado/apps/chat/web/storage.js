// Values that survive a reload. Where the browser keeps nothing, they last as long as the page.
const PREFIX = "recado.chat.";
const memory = new Map();

export function load(name, fallback = null) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    if (text !== null) return JSON.parse(text);
  } catch {
    // Storage is off, or holds something else.
  }
  return memory.has(name) ? memory.get(name) : fallback;
}

// Returns whether the browser has stored the value: it does not if storage is off or full.
export function save(name, value) {
  memory.set(name, value);
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function remove(name) {
  memory.delete(name);
  try {
    localStorage.removeItem(PREFIX + name);
  } catch {
    // Storage is off.
  }
}

export function namesWith(prefix) {
  const names = new Set([...memory.keys()].filter((each) => each.startsWith(prefix)));
  try {
    for (let index = 0; index < localStorage.length; index += 1) {
      const key = localStorage.key(index);
      if (key.startsWith(PREFIX + prefix)) names.add(key.slice(PREFIX.length));
    }
  } catch {
    // Storage is off.
  }
  return [...names];
}

// An id of this tab: it survives a reload, and differs between tabs.
export function tabId() {
  let id = null;
  try {
    id = sessionStorage.getItem(`${PREFIX}tab`);
    // A duplicated tab has a copy of the session storage, and a new tab that a link opened may have one too.
    if (id && performance.getEntriesByType("navigation")[0]?.type !== "reload" && sessionStorage.getItem(`${PREFIX}open`)) id = null;
    if (!id) sessionStorage.setItem(`${PREFIX}tab`, (id = newId()));
    sessionStorage.setItem(`${PREFIX}open`, "yes");
    addEventListener("pagehide", () => sessionStorage.removeItem(`${PREFIX}open`));
  } catch {
    id ??= newId();
  }
  return id;
}

// `crypto.randomUUID` exists only with TLS or on this machine; random bytes do everywhere.
export function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((each) => each.toString(16).padStart(2, "0")).join("");
}
