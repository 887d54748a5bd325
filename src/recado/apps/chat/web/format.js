// Times and numbers for people, in the language of the browser.
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const preciseClock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const dayOfYear = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long", year: "numeric" });
const shortDay = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const whole = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const number = new Intl.NumberFormat();

// The day of a time as a number that grows, in local time.
export function dayNumber(time) {
  const date = new Date(time);
  return date.getFullYear() * 10_000 + date.getMonth() * 100 + date.getDate();
}

export const timeOf = (time) => clock.format(time);
export const preciseTimeOf = (time) => preciseClock.format(time);
export const momentOf = (time) => whole.format(time);
export const count = (value) => number.format(value);
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
// The reason of a refusal, as a sentence of its own.
export const sentence = (text) => (text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "");
export const badge = (value) => (value > 999 ? "999+" : String(value));

export function dayOf(time, now = Date.now()) {
  const number = dayNumber(time);
  if (number === dayNumber(now)) return "Today";
  const yesterday = new Date(now);
  yesterday.setDate(yesterday.getDate() - 1);
  if (number === dayNumber(yesterday)) return "Yesterday";
  return new Date(time).getFullYear() === new Date(now).getFullYear() ? day.format(time) : dayOfYear.format(time);
}

// Today the time, otherwise the day: beside a name in a list.
export const briefTimeOf = (time, now = Date.now()) => (dayNumber(time) === dayNumber(now) ? timeOf(time) : shortDay.format(time));
