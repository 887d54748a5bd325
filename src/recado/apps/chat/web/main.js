// The frame: signing in, the list beside the conversation, keys, and which view an address shows.
import { signIn } from "./api.js";
import { enter, start } from "./chat.js";
import { Banner, ConversationPage } from "./conversation-view.js";
import { DialogHost, Form, NoticeHost } from "./dialogs.js";
import { ExplainPage } from "./explain.js";
import { Logo } from "./icons.js";
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { outbox } from "./outbox.js";
import { Panel } from "./panels.js";
import { addressOf, addressTo, conversationAt, go, href, setPanel, useRoute } from "./router.js";
import { JoinForm, RoomList, showShortcuts, Sidebar, sorted } from "./sidebar.js";
import { load, save } from "./storage.js";
import { state, useTopics } from "./store.js";

const LAST_CONVERSATION = "conversation";
const WIDE = matchMedia("(min-width: 761px)");

function App() {
  useTopics("phase");
  useEffect(() => {
    start();
  }, []);
  switch (state.phase) {
    case "in":
      return html`<${Shell} />`;
    case "out":
      return html`<${SignIn} />`;
    case "lost":
      return html`<main class="welcome"><div class="card"><div class="brand"><${Logo} />recado</div>
        <p role="alert">The server does not answer.</p>
        <button class="button primary" onClick=${() => location.reload()}>Try again</button></div></main>`;
    default:
      return null;
  }
}

function SignIn() {
  const [name, setName] = useState("");
  const input = useRef(null);
  useEffect(() => {
    document.title = "Choose a name · recado chat";
    input.current.focus();
  }, []);
  const submit = async () => {
    const wanted = name.trim();
    if (!wanted) {
      input.current.focus();
      throw new Error("Please enter a name.");
    }
    enter(await signIn(wanted));
  };
  return html`<main class="welcome"><div class="card">
      <div class="brand"><${Logo} />recado</div>
      <h1>What should the others call you?</h1>
      <${Form} submit=${submit} label="Start">
        <label class="field"><span>Name</span>
          <input ref=${input} name="name" value=${name} onInput=${(event) => setName(event.target.value)} maxlength=${state.limits.name} autocomplete="nickname" spellcheck=${false} /></label>
      <//>
      <p class="hint">Any name will do. There is no password: an id is made for you, and it stays in this browser.</p>
    </div></main>`;
}

function useIsWide() {
  const [isWide, setWide] = useState(WIDE.matches);
  useEffect(() => {
    const look = () => setWide(WIDE.matches);
    WIDE.addEventListener("change", look);
    return () => WIDE.removeEventListener("change", look);
  }, []);
  return isWide;
}

function Shell() {
  useTopics("welcome", "conversations");
  const route = useRoute();
  const isWide = useIsWide();
  const shown = conversationAt(route);
  const explained = route.path[0] === "explain" ? route.path[1] : null;
  const last = load(LAST_CONVERSATION);
  useKeys(shown);
  useEffect(() => {
    if (shown) save(LAST_CONVERSATION, shown);
  }, [shown]);
  // On a wide screen there is always a conversation, if there is any.
  useEffect(() => {
    if (shown || explained || !WIDE.matches || !state.conversations.size) return;
    const wanted = state.conversations.has(last) ? last : sorted()[0].id;
    go(addressOf(wanted), { replace: true });
  });
  const current = shown ?? (explained ? last : null);
  const { panel } = route.query;
  const shownPanel = explained && !isWide ? null : panel; // a phone shows the explanation alone
  // On a phone the list and the conversation are two views; without a conversation the list has nothing to show.
  const isInMain = shown || explained || (state.epoch > 0 && state.conversations.size === 0);
  return html`<button class="skip" onClick=${() => document.querySelector("textarea, .empty button, #title")?.focus()}>Skip to the conversation</button>
    <div class="shell ${isInMain ? "in-conversation" : ""} ${shownPanel && (shown || explained) ? "with-panel" : ""}">
      <${Sidebar} current=${current} isMain=${!isWide && !isInMain} />
      <main class="main">
        ${explained ? html`<${ExplainPage} operation=${explained} back=${current ? addressOf(current, { panel }) : href([])} />` : shown ? html`<${ConversationPage} id=${shown} route=${route} />` : html`<${Start} />`}
      </main>
      <${Panel} key=${shownPanel} name=${shownPanel} conversation=${state.conversations.get(current)} isMain=${!isWide} />
    </div>
    <${DialogHost} /><${NoticeHost} />`;
}

// No conversation is chosen, or there is none yet.
function Start() {
  useTopics("rooms", "welcome", "connection");
  const isNew = state.epoch > 0 && state.conversations.size === 0;
  return html`<section class="conversation"><${Banner} />
    <div class="empty start">
      <h1>${isNew ? html`Welcome, <bdi>${state.me.name}</bdi>` : "Choose a conversation"}</h1>
      ${state.rooms.length > 0 && html`<p>These rooms are open to everyone.</p><${RoomList} />`}
      <${JoinForm} />
    </div></section>`;
}

// ── keys ──────────────────────────────────────────────────────────────────────────────────────────

function useKeys(shown) {
  useEffect(() => {
    const press = (event) => {
      if (event.isComposing || event.keyCode === 229 || document.querySelector("dialog[open]")) return;
      const isTyping = event.target.matches("input, textarea, select");
      const isControl = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
      const finder = document.querySelector("[data-finder]");
      if (isControl && event.key.toLowerCase() === "k") {
        event.preventDefault();
        if (finder.offsetParent !== null) {
          finder.focus();
        } else {
          go("#/"); // on a phone the list is another view
          requestAnimationFrame(() => finder.focus());
        }
      } else if (isControl && event.key === "/") {
        event.preventDefault();
        if (shown) setPanel("search");
      } else if (event.altKey && !event.ctrlKey && !event.metaKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
        event.preventDefault();
        step(shown, event.key === "ArrowUp" ? -1 : 1, event.shiftKey);
      } else if (event.key === "Escape" && isTyping && event.target.matches(".composer textarea")) {
        document.querySelector(".messages")?.focus();
      } else if (!isTyping && !event.ctrlKey && !event.metaKey && !event.altKey && event.key === "?") {
        showShortcuts();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [shown]);
}

function step(shown, direction, isUnreadOnly) {
  const conversations = sorted();
  const from = conversations.findIndex((each) => each.id === shown);
  for (let distance = 1; distance <= conversations.length; distance += 1) {
    const index = (from + direction * distance + conversations.length * 2) % conversations.length;
    const found = conversations[index];
    if (isUnreadOnly && !found.unread) continue;
    go(addressTo(found.id));
    return;
  }
}

// Closing the page loses nothing: what was not sent is stored. Only where the browser stores nothing, it asks.
addEventListener("beforeunload", (event) => {
  if (outbox.entries.length && !outbox.isStored) event.preventDefault();
});

render(html`<${App} />`, document.getElementById("app"));
