// Numbers, sizes and times as text. Times are in the time zone of the browser.
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const stamp = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hour12: false });

export const NONE = "–";

export function count(value) {
  return value == null ? NONE : whole.format(value);
}

// Seven digits at most, for tiles and narrow columns; the title of the element has the whole number.
export function brief(value) {
  if (value == null) return NONE;
  return Math.abs(value) < 1_000_000 ? whole.format(value) : short.format(value);
}

export function rate(value) {
  if (value == null || Number.isNaN(value)) return NONE;
  if (value === 0) return "0/s";
  if (value < 10) return `${value.toFixed(1)}/s`;
  return `${value < 1_000_000 ? whole.format(value) : short.format(value)}/s`;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(value) {
  if (value == null) return NONE;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(seconds) {
  if (seconds == null || Number.isNaN(seconds)) return NONE;
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function time(ms) {
  return clock.format(ms);
}

const precise = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false });

export function timeMs(ms) {
  return precise.format(ms);
}

export function dateTime(ms) {
  return ms == null ? NONE : stamp.format(ms);
}

export function plural(number, noun, nouns = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : nouns}`;
}

export function text(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// A word of a shell command: names come from clients, and commands are copied into terminals.
export function shell(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
