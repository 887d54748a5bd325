// The part of a conversation that the browser holds: consecutive messages in the order of their positions.
//
// A segment that reaches the end of its conversation (`moreAfter` is false) grows with each delivered message, and `seen`
// is the position up to which it is complete, edits and deletions included: after a lost connection the server sends all
// that is newer. A segment around an older message ends before newer ones; these are loaded by scrolling.
//
// A message has one position for ever. Its `revision` is the position up to which it is known to be current.

const QUOTE_MAX = 200; // characters

export class Segment {
  constructor() {
    this.clear();
  }

  clear() {
    this.messages = [];
    this.byId = new Map();
    this.repliesByThread = new Map();
    this.moreBefore = false;
    this.moreAfter = false;
    this.isLoaded = false;
    this.loading = null; // what is being loaded: newest, before, after, around
    this.error = null;
    this.seen = 0;
    this.arrived = []; // delivered while a page was loading that may not contain them
    this.version = 0;
  }

  get reachesEnd() {
    return this.isLoaded && !this.moreAfter;
  }

  get first() {
    return this.messages[0] ?? null;
  }

  get last() {
    return this.messages[this.messages.length - 1] ?? null;
  }

  replace({ messages, more, more_after, position }) {
    this.messages = [];
    this.byId.clear();
    this.repliesByThread.clear();
    this.seen = 0;
    this.moreBefore = more;
    this.moreAfter = more_after;
    this.isLoaded = true;
    this.#merge(messages, position);
    if (!more_after) this.#attach(position);
  }

  prepend({ messages, more, position }) {
    this.moreBefore = more;
    this.#merge(messages, position);
  }

  append({ messages, more_after, position }) {
    this.moreAfter = more_after;
    this.#merge(messages, position);
    if (!more_after) this.#attach(position);
  }

  // A message, edit or deletion has been delivered, in the order of revisions.
  receive(message) {
    if (this.loading && this.loading !== "before") this.arrived.push(message);
    if (!this.isLoaded) return;
    const isInside = !this.first || message.position > this.first.position;
    if (this.byId.has(message.id) || (!this.moreAfter && isInside)) this.#insert(message);
    if (!this.moreAfter) this.seen = Math.max(this.seen, message.revision);
    this.version += 1;
  }

  // Show a confirmed message of this user before it is delivered. `seen` stays: earlier ones may still be on their way.
  confirm(message) {
    if (!this.reachesEnd || this.byId.has(message.id)) return;
    this.#insert(message);
    this.version += 1;
  }

  // What was missed while the connection was lost. If it is too much, pages are loaded instead.
  catchUp({ messages, position, isMore }) {
    for (const each of messages) if (!isMore || this.byId.has(each.id)) this.receive(each);
    if (isMore) this.moreAfter = true;
    else this.seen = Math.max(this.seen, position);
    this.version += 1;
  }

  // An edited or deleted message is quoted as it is now.
  requote({ id, text, author }) {
    for (const [index, each] of this.messages.entries()) {
      if (each.quote?.id !== id) continue;
      const quoting = { ...each, quote: { id, author_name: author.name, text: text.slice(0, QUOTE_MAX) } };
      this.messages[index] = quoting;
      this.byId.set(each.id, quoting);
    }
  }

  // Forget all but the newest messages.
  trim(size) {
    if (this.messages.length <= size) return;
    this.messages = this.messages.slice(-size);
    this.byId = new Map(this.messages.map((each) => [each.id, each]));
    this.repliesByThread.clear();
    for (const each of this.messages) this.#count(each);
    this.moreBefore = true;
    this.version += 1;
  }

  #merge(messages, position) {
    for (const each of messages) this.#insert({ ...each, revision: position });
    this.version += 1;
  }

  #attach(position) {
    this.seen = position;
    const { arrived } = this;
    this.arrived = [];
    for (const each of arrived) this.receive(each);
  }

  #insert(message) {
    const known = this.byId.get(message.id);
    if (known) {
      if (known.revision > message.revision) return;
      this.messages[this.#indexOf(known.position)] = message;
      this.byId.set(message.id, message);
      return;
    }
    this.byId.set(message.id, message);
    this.#count(message);
    if (!this.last || message.position > this.last.position) this.messages.push(message);
    else this.messages.splice(this.#indexOf(message.position), 0, message);
  }

  #count(message) {
    if (message.thread) this.repliesByThread.set(message.thread, (this.repliesByThread.get(message.thread) ?? 0) + 1);
  }

  // The index of the first message at or after a position.
  #indexOf(position) {
    let low = 0;
    let high = this.messages.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.messages[middle].position < position) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
