// The text of a message as parts: text, links and mentions. Nothing else has a meaning, so markup is shown as it is.

const ADDRESS = /\bhttps?:\/\/[^\s<>"']+/giu;
const CLOSING = { ")": "(", "]": "[", "}": "{" };
const EMOJI_ONLY = /^(?:\p{Extended_Pictographic}|\p{Emoji_Modifier}|\p{Regional_Indicator}|[\u200d\ufe0f\u20e3]|\s)+$/u;
const BIG_EMOJI_MAX = 16; // characters

// Punctuation after an address belongs to the sentence, and so does a bracket that was opened before it.
function trimAddress(found) {
  let address = found;
  for (;;) {
    const end = address.at(-1);
    const opening = CLOSING[end];
    const isSurplus = opening ? address.split(end).length > address.split(opening).length : /[.,:;!?'"*_~…]/u.test(end);
    if (!isSurplus) return address;
    address = address.slice(0, -1);
  }
}

function isSafe(address) {
  try {
    const { protocol, hostname } = new URL(address);
    return (protocol === "http:" || protocol === "https:") && hostname !== "";
  } catch {
    return false;
  }
}

const escape = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const patterns = new Map();

function mentionOf(name) {
  if (!patterns.has(name)) patterns.set(name, new RegExp(`(?<![\\p{L}\\p{N}])@${escape(name)}(?![\\p{L}\\p{N}])`, "iu"));
  return patterns.get(name);
}

export const mentions = (text, name) => mentionOf(name).test(text);
export const isOnlyEmoji = (text) => text.length <= BIG_EMOJI_MAX && /\p{Extended_Pictographic}|\p{Regional_Indicator}/u.test(text) && EMOJI_ONLY.test(text);

// Returns parts { kind: "text" | "link" | "mention" | "match", text }.
export function parse(text, name) {
  const parts = [];
  let end = 0;
  for (const { 0: found, index } of text.matchAll(ADDRESS)) {
    const address = trimAddress(found);
    if (!isSafe(address)) continue;
    mark(parts, text.slice(end, index), mentionOf(name), "mention");
    parts.push({ kind: "link", text: address });
    end = index + address.length;
  }
  mark(parts, text.slice(end), mentionOf(name), "mention");
  return parts;
}

// The words of a search in the text of a message that it has found.
export function parseFound(text, words) {
  const parts = [];
  mark(parts, text, new RegExp(words.map(escape).join("|"), "iu"), "match");
  return parts;
}

function mark(parts, text, pattern, kind) {
  let end = 0;
  for (const { 0: found, index } of text.matchAll(new RegExp(pattern, "giu"))) {
    if (!found) continue;
    if (index > end) parts.push({ kind: "text", text: text.slice(end, index) });
    parts.push({ kind, text: found });
    end = index + found.length;
  }
  if (end < text.length) parts.push({ kind: "text", text: text.slice(end) });
}

// The colour and the letters of a thread, from the id of its first message: the same on every device. The letters tell
// threads apart without colours: of ten threads, two have the same ones in 8 % of cases.
const COLOURS = 8;
const LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"; // I and O look like digits

export function markOf(thread) {
  let hash = 0x811c9dc5; // FNV-1a
  for (let index = 0; index < thread.length; index += 1) hash = Math.imul(hash ^ thread.charCodeAt(index), 0x01000193);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d) >>> 0;
  const rest = Math.floor(hash / COLOURS);
  return { colour: hash % COLOURS, letters: LETTERS[rest % LETTERS.length] + LETTERS[Math.floor(rest / LETTERS.length) % LETTERS.length] };
}
