// The frame: signing in, navigation, keys, themes, and which page an address shows.
import { isAdministrator, loadSession, onSignedOut, session, signIn, signOut } from "./api.js";
import { themeChanged } from "./chart.js";
import { DialogHost, NoticeHost, openDialog, TextField, Form } from "./components.js";
import { html, render, useEffect, useState } from "./lib.js";
import { connection, followChanges, resetLive, useLive } from "./live.js";
import { href, parseRoute, useRoute } from "./router.js";
import { OverviewPage } from "./pages/overview.js";
import { QueuePage, QueuesPage } from "./pages/queues.js";
import { ExchangePage, ExchangesPage } from "./pages/exchanges.js";
import { ChannelPage, ChannelsPage, ConnectionPage, ConnectionsPage, ConsumersPage } from "./pages/connections.js";
import { DefinitionsPage, LimitsPage, PoliciesPage, UserPage, UsersPage, VhostPage, VhostsPage } from "./pages/admin.js";
import { ActorsPage, ActorSystemPage, FeedPage, FeedsPage, PipelinePage, PipelinesPage } from "./pages/programs.js";
import { AuditPage } from "./pages/audit.js";
import { RouteTestPage } from "./pages/route-test.js";
import { DeadLetterQueuePage, DeadLettersPage } from "./pages/dead-letters.js";
import { SnapshotPage, SnapshotsPage } from "./pages/snapshots.js";
import { PathPage, TracePage, TracesPage } from "./pages/traces.js";

const NAVIGATION = [
  [null, [["overview", "Overview", "o"]]],
  ["Messages", [["queues", "Queues", "q"], ["exchanges", "Exchanges", "e"], ["dead-letters", "Dead letters", "x"], ["route-test", "Route test", "r"], ["traces", "Traces", "t"], ["snapshots", "Bulk actions", "b"]]],
  ["Clients", [["connections", "Connections", "c"], ["channels", "Channels", "h"], ["consumers", "Consumers", "s"]]],
  ["Programs", [["feeds", "Feeds", "f"], ["actors", "Actors", "a"], ["pipelines", "Pipelines", "i"]]],
  ["Administration", [["policies", "Policies", "p"], ["vhosts", "Virtual hosts", "v"], ["users", "Users", "u"], ["limits", "Limits", "l"], ["definitions", "Definitions", "d"], ["audit", "Audit log", "w"]]],
];
const FOR_ADMINISTRATORS = new Set(["users", "traces", "definitions", "audit"]);

const PAGES = {
  overview: [OverviewPage],
  queues: [QueuesPage, null, QueuePage],
  exchanges: [ExchangesPage, null, ExchangePage],
  "dead-letters": [DeadLettersPage, null, DeadLetterQueuePage],
  "route-test": [RouteTestPage],
  traces: [TracesPage, TracePage, PathPage],
  snapshots: [SnapshotsPage, SnapshotPage],
  connections: [ConnectionsPage, ConnectionPage],
  channels: [ChannelsPage, ChannelPage],
  consumers: [ConsumersPage],
  feeds: [FeedsPage, null, FeedPage],
  actors: [ActorsPage, ActorSystemPage],
  pipelines: [PipelinesPage, PipelinePage],
  policies: [PoliciesPage],
  vhosts: [VhostsPage, VhostPage],
  users: [UsersPage, UserPage],
  limits: [LimitsPage],
  definitions: [DefinitionsPage],
  audit: [AuditPage],
};

const Logo = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="8" fill="#3d4fd6" /><path d="M8 10.5h16M8 16h10M8 21.5h13" stroke="#fff" stroke-width="2.6" stroke-linecap="round" /><circle cx="24" cy="16" r="2.3" fill="#ffc857" /></svg>`;

function App() {
  const [state, setState] = useState("loading");
  useEffect(() => {
    loadSession().then(
      (isSignedIn) => {
        if (isSignedIn) returnToView();
        setState(isSignedIn ? "in" : "out");
      },
      () => setState("lost"),
    );
    return onSignedOut(() => setState("out"));
  }, []);
  if (state === "loading") return null;
  if (state === "lost") return html`<${Lost} />`;
  if (state === "out") {
    return html`<${SignIn} done=${() => {
      resetLive();
      returnToView();
      setState("in");
    }} />`;
  }
  return html`<${Shell} />`;
}

// ── signing in ────────────────────────────────────────────────────────────────────────────────────

const RETURN_KEY = "recado.return";
const PROBLEMS = {
  denied: "The identity provider has refused to sign you in.",
  expired: "Signing in has taken too long, or was begun in another browser. Please try again.",
  provider: "The identity provider does not answer as it should. The log of the node has the reason.",
  refused: "The node does not accept the token of the identity provider. The log of the node has the reason.",
  tag: "Your token has no tag for the console: management, policymaker, monitoring or administrator.",
};

// The view that a user wanted to see before signing in elsewhere: the provider leads back to the start.
function keepView() {
  try {
    if (parseRoute(location.hash).path[0] !== "sign-in") sessionStorage.setItem(RETURN_KEY, location.hash);
  } catch {
    // Storage is off: the overview is shown.
  }
}

function returnToView() {
  let wanted = null;
  try {
    wanted = sessionStorage.getItem(RETURN_KEY);
    sessionStorage.removeItem(RETURN_KEY);
  } catch {
    // As above.
  }
  if (wanted && location.hash === "") location.replace(wanted);
  else if (parseRoute(location.hash).path[0] === "sign-in") location.replace("#/");
}

function Lost() {
  return html`<main class="welcome"><div class="card"><div class="brand"><${Logo} />recado</div>
    <p role="alert">The node does not answer.</p>
    <button class="button primary" onClick=${() => location.reload()}>Try again</button></div></main>`;
}

function SignIn({ done }) {
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const { path, query } = useRoute();
  const problem = path[0] === "sign-in" ? PROBLEMS[query.problem] : null;
  useEffect(() => {
    document.title = "Sign in · recado";
    document.querySelector(session.provider ? ".card > .button" : "input[name=username]").focus();
  }, []);
  const submit = async () => {
    try {
      await signIn(username, password);
    } catch (error) {
      setPassword("");
      throw error.message === "Not management user" ? new Error(`${username} has no tag for the console: management, policymaker, monitoring or administrator.`) : error;
    }
    done();
  };
  return html`<main class="welcome">
    <div class="card">
      <div class="brand"><${Logo} />recado</div>
      <h1>Sign in to the console</h1>
      ${problem && html`<p class="form-error" role="alert">${problem}</p>`}
      ${session.provider && html`<a class="button primary" href="api/session/oauth" onClick=${keepView}>Sign in with ${session.provider}</a>
        <p class="divider"><span>or with a password</span></p>`}
      <${Form} submit=${submit} label="Sign in">
        <${TextField} label="User name" name="username" value=${username} onChange=${setUsername} autocomplete="username" autocapitalize="none" required />
        <${TextField} label="Password" name="password" type="password" value=${password} onChange=${setPassword} autocomplete="current-password" required />
      <//>
    </div>
    ${!session.provider && html`<p class="foot">A new node has the user guest with the password guest, from its own machine only. An OAuth 2 token works as the password.</p>`}
  </main>`;
}

function Shell() {
  const route = useRoute();
  const [isOpen, setOpen] = useState(false);
  const section = route.path[0] ?? "overview";
  useKeys();
  useEffect(followChanges, []);
  useEffect(() => setOpen(false), [section, route.path.length]);
  useEffect(() => {
    scrollTo(0, 0);
  }, [route.path.join("/")]);
  const View = PAGES[section]?.[route.path.length ? route.path.length - 1 : 0];
  return html`<button class="skip" onClick=${() => document.getElementById("main").focus()}>Skip to content</button>
    <div class="shell">
      <header class="topbar">
        <a class="brand" href=${href([])}><${Logo} />recado</a>
        <button class="button" aria-expanded=${isOpen} aria-controls="sidebar" onClick=${() => setOpen(!isOpen)}>${isOpen ? "Close" : "Menu"}</button>
      </header>
      <${Sidebar} section=${section} isOpen=${isOpen} close=${() => setOpen(false)} />
      <main class="main" id="main" tabindex="-1">
        ${View ? html`<${View} key=${route.path.join("\n")} route=${route} names=${route.path.slice(1)} />` : html`<${Unknown} />`}
      </main>
    </div>
    <${DialogHost} /><${NoticeHost} />`;
}

function Unknown() {
  useEffect(() => {
    document.title = "No such page · recado";
  }, []);
  return html`<div class="panel"><div class="empty"><h1 class="empty-title">There is no such page.</h1><p><a href=${href([])}>Go to the overview</a></p></div></div>`;
}

function Sidebar({ section, isOpen, close }) {
  useLive("status");
  const status = { live: "Live", lost: "Connection lost", connecting: "Connecting" }[connection.status];
  return html`<aside class="sidebar ${isOpen ? "open" : ""}" id="sidebar">
    <a class="brand" href=${href([])}><${Logo} />recado</a>
    <nav class="nav" aria-label="Main">
      ${NAVIGATION.map(
        ([group, entries]) => html`${group && html`<div class="nav-group">${group}</div>`}
          ${entries
            .filter(([id]) => !FOR_ADMINISTRATORS.has(id) || isAdministrator())
            .map(([id, label]) => html`<a key=${id} href=${href(id === "overview" ? [] : [id])} onClick=${close}
              aria-current=${id === section ? "page" : undefined}>${label}</a>`)}`,
      )}
    </nav>
    <div class="sidebar-foot">
      <div class="row"><span class="status ${connection.status}" role="status">${status}</span>
        <button class="button small ghost" onClick=${showHelp} aria-label="Keyboard shortcuts">?</button></div>
      <div class="row"><span class="node-name muted" title=${session.node}>${session.cluster_name}</span></div>
      <div class="row"><${ThemeSwitch} /><span class="muted">${session.version}</span></div>
      <div class="row"><span class="node-name" title=${session.user}>${session.user}</span>
        <button class="button small" onClick=${signOut}>Sign out</button></div>
    </div>
  </aside>`;
}

// ── themes ────────────────────────────────────────────────────────────────────────────────────────

const THEMES = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };

function ThemeSwitch() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "");
  const choose = () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(theme) + 1) % names.length];
    if (next) document.documentElement.dataset.theme = next;
    else delete document.documentElement.dataset.theme;
    try {
      localStorage.setItem("recado.theme", next);
    } catch {
      // Storage is off: the choice lasts as long as the page.
    }
    setTheme(next);
    themeChanged();
  };
  return html`<button class="button small ghost" onClick=${choose}>${THEMES[theme]}</button>`;
}

// ── keys ──────────────────────────────────────────────────────────────────────────────────────────

function useKeys() {
  useEffect(() => {
    let pending = 0;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const isTyping = event.target.matches("input:not([type=checkbox]), textarea, select");
      if (isTyping) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      if (event.key === "/") {
        const field = document.querySelector("[data-filter]");
        if (field) {
          event.preventDefault();
          field.focus();
          field.select();
        }
      } else if (event.key === "?") {
        showHelp();
      } else if (event.key === "g") {
        pending = Date.now();
        return;
      } else if (Date.now() - pending < 1_500) {
        for (const [, entries] of NAVIGATION) {
          for (const [id, , key] of entries) if (key === event.key) location.hash = href(id === "overview" ? [] : [id]);
        }
      }
      pending = 0;
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

function showHelp() {
  const entries = NAVIGATION.flatMap(([, each]) => each).filter(([id]) => !FOR_ADMINISTRATORS.has(id) || isAdministrator());
  openDialog(
    "Keyboard shortcuts",
    () => html`<div class="dialog-body"><dl class="keys">
      <dt><kbd>/</kbd></dt><dd>Filter the list</dd>
      <dt><kbd>Esc</kbd></dt><dd>Leave a field, close a dialog</dd>
      ${entries.map(([, label, key]) => html`<dt><kbd>g</kbd> <kbd>${key}</kbd></dt><dd>${label}</dd>`)}
      <dt><kbd>?</kbd></dt><dd>This list</dd>
    </dl></div>`,
  );
}

render(html`<${App} />`, document.getElementById("app"));
