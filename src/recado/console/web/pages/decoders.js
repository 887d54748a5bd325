// How bodies of messages are shown. A decoder has an id, a label, `accepts(message, text, bytes)`, which tells whether it is tried without being
// chosen, and `decode(text, bytes)`, which returns text or a promise of it, or throws. `text` is null for bytes that are
// not UTF-8. The first decoder that accepts a body shows it; another one can be chosen at each message.
const HEX_BYTES = 512;
const TEXT_MAX = 400_000;
const DECOMPRESSED_BYTES_MAX = 1_000_000;
const DEPTH_MAX = 64;

const decoders = [];

export function addDecoder(decoder) {
  decoders.unshift(decoder);
}

export const listDecoders = () => decoders.map(({ id, label }) => [id, label]);

// Return { id, text } or a promise of it. Without `chosen`, the first decoder is used that accepts the body.
export function decodeBody(message, chosen = "") {
  const text = message.payload_encoding === "string" ? message.payload : null;
  const bytes = lazy(() => (text === null ? fromBase64(message.payload) : new TextEncoder().encode(text)));
  if (message.payload === "") return { id: "text", text: "(empty)" };
  const candidates = chosen ? decoders.filter((each) => each.id === chosen) : decoders;
  for (const each of candidates) {
    if (!chosen && !each.accepts(message, text, bytes)) continue;
    try {
      const decoded = each.decode(text, bytes);
      if (decoded instanceof Promise) {
        return decoded.then(
          (found) => ({ id: each.id, text: cut(found) }),
          (error) => (chosen ? { id: each.id, text: `This is not ${each.label}: ${error.message}` } : { id: "hex", text: hexOf(bytes()) }),
        );
      }
      return { id: each.id, text: cut(decoded) };
    } catch (error) {
      if (chosen) return { id: each.id, text: `This is not ${each.label}: ${error.message}` };
    }
  }
  return { id: "hex", text: hexOf(bytes()) };
}

const cut = (text) => (text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text);

function lazy(make) {
  let made = null;
  return () => (made ??= make());
}

function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}

// ── the decoders ──────────────────────────────────────────────────────────────────────────────────

function hexOf(bytes) {
  const lines = [];
  const shown = bytes.subarray(0, HEX_BYTES);
  for (let start = 0; start < shown.length; start += 16) {
    const row = [...shown.subarray(start, start + 16)];
    const hex = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
    lines.push(`${start.toString(16).padStart(4, "0")}  ${hex.padEnd(48)} ${text}`);
  }
  if (bytes.length > shown.length) lines.push(`… ${bytes.length - shown.length} more bytes`);
  return lines.join("\n");
}

const textOf = (text, bytes) => text ?? new TextDecoder("utf-8", { fatal: true }).decode(bytes());
const typeOf = (message) => (message.properties?.content_type ?? "").toLowerCase();

addDecoder({ id: "hex", label: "bytes", accepts: (message, text) => text === null, decode: (text, bytes) => hexOf(bytes()) });
addDecoder({ id: "text", label: "text", accepts: (message, text) => text !== null, decode: textOf });
addDecoder({
  id: "form",
  label: "form fields",
  accepts: (message) => typeOf(message).includes("x-www-form-urlencoded"),
  decode: (text, bytes) => [...new URLSearchParams(textOf(text, bytes))].map(([name, value]) => `${name} = ${value}`).join("\n"),
});
addDecoder({
  id: "base64",
  label: "base64 within",
  accepts: (message) => message.properties?.headers?.body_encoding === "base64",
  decode: (text, bytes) => {
    const inner = fromBase64(textOf(text, bytes).trim());
    return decodeBody({ payload: new TextDecoder().decode(inner), payload_encoding: "string", properties: {} }).text;
  },
});
addDecoder({
  id: "msgpack",
  label: "MessagePack",
  accepts: (message) => /msgpack/.test(typeOf(message)),
  decode: (text, bytes) => JSON.stringify(readMessagePack(bytes()), null, 2),
});
addDecoder({
  id: "json",
  label: "JSON",
  accepts: (message, text) => text !== null && /^\s*[[{]/.test(text),
  decode: (text, bytes) => indentJson(textOf(text, bytes)),
});
addDecoder({
  id: "gzip",
  label: "gzip",
  accepts: (message, text, bytes) => text === null && bytes()[0] === 0x1f && bytes()[1] === 0x8b,
  decode: async (text, bytes) => {
    const inner = await decompress(bytes());
    const decoded = new TextDecoder().decode(inner);
    return (await decodeBody({ payload: decoded, payload_encoding: "string", properties: {} })).text;
  },
});

// Numbers stay as they were written: parsing would round integers beyond 2^53.
function indentJson(source) {
  JSON.parse(source);
  const parts = [];
  const pattern = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g;
  let depth = 0;
  let before = "";
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of source.matchAll(pattern)) {
    if (token === "}" || token === "]") {
      depth -= 1;
      parts.push(before === "{" || before === "[" ? token : line() + token);
    } else {
      if (before === "{" || before === "[" || before === ",") parts.push(line());
      parts.push(token === ":" ? ": " : token);
      if (token === "{" || token === "[") depth += 1;
    }
    before = token;
  }
  return parts.join("");
}

async function decompress(bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts = [];
  let size = 0;
  while (size < DECOMPRESSED_BYTES_MAX) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
  }
  await reader.cancel();
  return new Uint8Array(await new Blob(parts).arrayBuffer()).subarray(0, DECOMPRESSED_BYTES_MAX);
}

function readMessagePack(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;
  const take = (size) => {
    if (at + size > bytes.length) throw new Error("it ends too early");
    at += size;
    return at - size;
  };
  const many = (count, read) => {
    if (count > bytes.length) throw new Error("it ends too early");
    return Array.from({ length: count }, read);
  };
  const text = (size) => new TextDecoder().decode(bytes.subarray(take(size), at));
  const binary = (size) => `bytes ${[...bytes.subarray(take(size), at)].map((each) => each.toString(16).padStart(2, "0")).join("")}`;
  const big = (value) => (Number.isSafeInteger(Number(value)) ? Number(value) : String(value));
  const read = (depth) => {
    if (depth > DEPTH_MAX) throw new Error("it is nested too deeply");
    const inner = () => read(depth + 1);
    const table = (count) => Object.fromEntries(many(count, () => [String(inner()), inner()]));
    const code = bytes[take(1)];
    if (code < 0x80) return code;
    if (code < 0x90) return table(code & 15);
    if (code < 0xa0) return many(code & 15, inner);
    if (code < 0xc0) return text(code & 31);
    if (code >= 0xe0) return code - 256;
    const u8 = () => view.getUint8(take(1));
    const u16 = () => view.getUint16(take(2));
    const u32 = () => view.getUint32(take(4));
    const extension = (size) => `type ${view.getInt8(take(1))} ${binary(size)}`;
    const readers = {
      0xc0: () => null, 0xc2: () => false, 0xc3: () => true,
      0xc4: () => binary(u8()), 0xc5: () => binary(u16()), 0xc6: () => binary(u32()),
      0xc7: () => extension(u8()), 0xc8: () => extension(u16()), 0xc9: () => extension(u32()),
      0xca: () => view.getFloat32(take(4)), 0xcb: () => view.getFloat64(take(8)),
      0xcc: u8, 0xcd: u16, 0xce: u32, 0xcf: () => big(view.getBigUint64(take(8))),
      0xd0: () => view.getInt8(take(1)), 0xd1: () => view.getInt16(take(2)), 0xd2: () => view.getInt32(take(4)), 0xd3: () => big(view.getBigInt64(take(8))),
      0xd4: () => extension(1), 0xd5: () => extension(2), 0xd6: () => extension(4), 0xd7: () => extension(8), 0xd8: () => extension(16),
      0xd9: () => text(u8()), 0xda: () => text(u16()), 0xdb: () => text(u32()),
      0xdc: () => many(u16(), inner), 0xdd: () => many(u32(), inner), 0xde: () => table(u16()), 0xdf: () => table(u32()),
    };
    if (!readers[code]) throw new Error(`byte ${code} is no type`);
    return readers[code]();
  };
  const value = read(0);
  if (at < bytes.length) throw new Error(`${bytes.length - at} bytes follow`);
  return value;
}
