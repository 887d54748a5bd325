// One message: the icon of its thread, its author, the text that it answers, its own text, and whether it was sent.
import { distinctionOf, nameOf } from "./chat.js";
import { dayOf, momentOf, plural, sentence, timeOf } from "./format.js";
import { Icon, IconButton } from "./icons.js";
import { Component, html } from "./lib.js";
import { markOfRow } from "./rows.js";
import { state } from "./store.js";
import { isOnlyEmoji, parse } from "./text.js";

const STATES = {
  sent: ["check", "Sent: the broker has confirmed it"],
  sending: ["clock", "Sending"],
  waiting: ["clock", "Waiting to be sent"],
  failed: ["alert", "Not sent"],
};

export function Text({ parts }) {
  return parts.map(({ kind, text: part }) => {
    if (kind === "link") return html`<a href=${part} target="_blank" rel="noopener noreferrer nofollow">${part}</a>`;
    if (kind === "mention" || kind === "match") return html`<mark class=${kind}>${part}</mark>`;
    return part;
  });
}

// The name of a user; a click opens the private conversation.
export function Author({ user, actions, isTabStop = true }) {
  const distinction = distinctionOf(user.id);
  const content = html`<bdi>${user.name}</bdi>${distinction && html`<span class="distinction" title="Several users have this name; these are the first characters of the id.">#${distinction}</span>`}`;
  if (user.id === state.me.id) return html`<span class="author own">${content}</span>`;
  return html`<button type="button" class="author" tabindex=${isTabStop ? 0 : -1} title="Write to ${user.name} in private"
    onClick=${() => actions.openPrivate(user.id)}>${content}</button>`;
}

export class MessageRow extends Component {
  state = { isOver: false };

  shouldComponentUpdate(next, nextState) {
    const { row, index, total, isCurrent, isFlashing } = this.props;
    return (
      next.row !== row || next.index !== index || next.total !== total || next.isCurrent !== isCurrent || next.isFlashing !== isFlashing ||
      nextState.isOver !== this.state.isOver
    );
  }

  over = () => this.setState({ isOver: true });
  out = () => this.setState({ isOver: false });

  render({ row, index, total, isCurrent, isFlashing, actions }, { isOver }) {
    const { message, change } = row;
    const mark = markOfRow(row);
    const text = change?.kind === "edit" ? change.text : message.text;
    const isDeleted = message.deleted || change?.kind === "delete";
    const classes = ["message", row.hasHead && "start", row.isMine && "mine", row.state, isCurrent && "current", isFlashing && "flash", isDeleted && "deleted", mark && `thread t${mark.colour}`];
    const canReply = message.id !== null && !isDeleted;
    const label = row.isMine ? "You" : message.author.name;
    return html`<article class=${classes.filter(Boolean).join(" ")} data-key=${row.key} data-id=${message.id ?? undefined} tabindex="-1"
      aria-posinset=${index + 1} aria-setsize=${total} aria-label="${label}, ${timeOf(message.time)}"
      onFocus=${() => actions.setCurrent(row.key)} onPointerEnter=${this.over} onPointerLeave=${this.out}>
      ${row.isFirstOfDay && html`<div class="day"><span>${dayOf(message.time)}</span></div>`}
      ${row.isNews && html`<div class="news"><span>New messages</span></div>`}
      <div class="body">
        <${ThreadIcon} mark=${mark} message=${message} isTabStop=${isCurrent} reply=${canReply ? () => actions.reply(message) : null} />
        <div class="content">
          ${row.hasHead && html`<div class="head"><${Author} user=${message.author} actions=${actions} isTabStop=${isCurrent} />
            <time datetime=${new Date(message.time).toISOString()} title=${momentOf(message.time)}>${timeOf(message.time)}</time></div>`}
          ${message.quote && html`<${Quote} quote=${message.quote} actions=${actions} />`}
          ${isDeleted
            ? html`<p class="text muted">${change ? "Deleting…" : "This message was deleted."}</p>`
            : html`<p class="text ${isOnlyEmoji(text) ? "big" : ""}" dir="auto"><span class="isolated"><${Text} parts=${parse(text, state.me.name)} /></span>${message.edited && html` <span class="edited" title=${momentOf(message.edited)}>edited</span>`}${(row.isMine || row.state !== "sent") && html`<${State} name=${row.state} />`}</p>`}
          ${row.state === "failed" && html`<${Failure} row=${row} actions=${actions} />`}
        </div>
        <div class="aside">
          ${!row.hasHead && html`<time datetime=${new Date(message.time).toISOString()} title=${momentOf(message.time)}>${timeOf(message.time)}</time>`}
        </div>
        ${(isOver || isCurrent) && html`<${Tools} row=${row} actions=${actions} />`}
      </div>
    </article>`;
  }
}

// A bubble in the colour of the thread, with its letters; an empty one if there is no thread yet. A click replies.
function ThreadIcon({ mark, message, isTabStop, reply }) {
  const label = mark ? `Reply in thread ${mark.letters}` : "Reply";
  return html`<button type="button" class="bubble" aria-label="${label}, to ${message.author.name}" title=${label} tabindex=${isTabStop ? 0 : -1}
    disabled=${!reply} onClick=${reply}>${mark?.letters ?? ""}</button>`;
}

function Quote({ quote, actions }) {
  return html`<button type="button" class="quote" onClick=${() => actions.jump(quote.id)} title="Show the message that this one answers">
    <b><bdi>${quote.author_name}</bdi></b> <span dir="auto">${quote.text || html`<i>Message deleted</i>`}</span></button>`;
}

function State({ name }) {
  const [icon, label] = STATES[name];
  return html`<span class="state ${name}" role="img" aria-label=${label} title=${label}>${icon === "check" ? html`<svg class="icon" viewBox="0 0 20 20" width="16" height="16" aria-hidden="true"><path d="m5 10.5 3.5 3.5L15 6.5" /></svg>` : html`<${Icon} name=${icon} />`}</span>`;
}

function Failure({ row, actions }) {
  const id = row.change?.client_id ?? row.key;
  const what = row.change ? (row.change.kind === "edit" ? "The change was not sent." : "The deletion was not sent.") : "Not sent.";
  return html`<div class="failure" role="alert"><span>${what} ${sentence(row.reason)}</span>
    <div><button type="button" class="button small" onClick=${() => actions.retry(id)}>Try again</button>
    <button type="button" class="button small" onClick=${() => actions.discard(id)}>Discard</button></div></div>`;
}

function Tools({ row, actions }) {
  const { message } = row;
  const isDeleted = message.deleted || row.change?.kind === "delete";
  if (isDeleted) return null;
  return html`<div class="tools" role="group" aria-label="Actions">
    ${message.id && html`<${IconButton} name="reply" label="Reply" onClick=${() => actions.reply(message)} />`}
    <${IconButton} name="copy" label="Copy text" onClick=${() => actions.copy(message.text)} />
    ${row.isMine && row.state !== "sending" && html`<${IconButton} name="edit" label="Edit" onClick=${() => actions.edit(row)} />`}
    ${row.isMine && (message.id || row.state === "waiting") && html`<${IconButton} name="remove" label="Delete" onClick=${() => actions.erase(row)} />`}
  </div>`;
}

// The beginning of a conversation.
export function Intro({ conversation, index, total }) {
  return html`<article class="intro" data-key="intro" tabindex="-1" aria-posinset=${index + 1} aria-setsize=${total} aria-label="Beginning">
    <h2>${conversation.isRoom ? html`This is the beginning of <bdi>${conversation.title}</bdi>` : html`Only you and <bdi>${nameOf(conversation.user)}</bdi> see what is written here`}</h2>
    <p>${conversation.isRoom ? `${plural(conversation.members.size, "member")}. Anyone can join a room by its name.` : "Both of you receive each message in a queue of your own."}</p>
  </article>`;
}
