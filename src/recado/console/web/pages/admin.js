// Administration: policies, virtual hosts, users and their permissions, limits, definitions.
import { at, get, isAdministrator, isPolicymaker, post, put, remove, session } from "../api.js";
import { AreaField, Badge, CheckField, confirm, download, Empty, Field, Form, Json, Loading, Name, notify, openDialog, Page, Panel, parseJsonField, Problem, SelectField, TextField, Tile } from "../components.js";
import * as format from "../format.js";
import { html, useMemo, useState } from "../lib.js";
import { queueStore, useLive, useLoaded } from "../live.js";
import { go, href } from "../router.js";
import { ListPage } from "./lists.js";
import { useVhosts } from "./vhosts.js";

const actionColumn = (withReload, width = "w-actions") => ({ id: "actions", label: html`<span class="offscreen">Actions</span>`, sortable: false, value: () => "", withReload, width });

// ── policies ──────────────────────────────────────────────────────────────────────────────────────

const APPLY_TO = [["queues", "Queues"], ["exchanges", "Exchanges"], ["all", "Everything"], ["classic_queues", "Classic queues"], ["quorum_queues", "Quorum queues"], ["streams", "Streams"]];
const labelOf = (options, value) => options.find(([each]) => each === value)?.[1] ?? value;

const POLICY_COLUMNS = [
  { id: "name", label: "Name", value: (each) => each.name.toLowerCase(), cell: (each) => html`<${Name}>${each.name}<//>`, width: "w-m" },
  { id: "vhost", label: "Virtual host", value: (each) => each.vhost, cell: (each) => html`<${Name} muted=${true}>${each.vhost}<//>`, width: "w-m", hide: "hide-m" },
  { id: "pattern", label: "Pattern", value: (each) => each.pattern, cell: (each) => html`<code><${Name}>${each.pattern}<//></code>`, width: "w-l" },
  { id: "apply-to", label: "Applies to", value: (each) => each["apply-to"], cell: (each) => labelOf(APPLY_TO, each["apply-to"]), width: "w-m", hide: "hide-m" },
  { id: "definition", label: "Definition", sortable: false, value: () => "", cell: (each) => html`<code class="name" title=${Object.entries(each.definition).map(([name, value]) => `${name}=${format.text(value)}`).join("\n")}>${Object.entries(each.definition).map(([name, value]) => `${name}=${format.text(value)}`).join(" ")}</code>`, hide: "hide-s" },
  { id: "priority", label: "Priority", number: true, value: (each) => each.priority, width: "w-xs", hide: "hide-s" },
];

export function PoliciesPage({ route }) {
  const kind = route.query.kind === "operator" ? "operator-policies" : "policies";
  const mayChange = kind === "policies" ? isPolicymaker() : isAdministrator();
  const edit = (policy, reload) => openDialog(policy ? `Change ${policy.name}` : "Add a policy", (close) => html`<${PolicyForm} kind=${kind} policy=${policy} close=${close} reload=${reload} />`);
  const ask = (policy, reload) =>
    confirm({
      title: `Delete the policy ${policy.name}?`,
      label: "Delete policy",
      lines: [`Queues and exchanges in ${policy.vhost} that match ${policy.pattern} lose these settings at once: ${Object.keys(policy.definition).join(", ")}.`],
      submit: async () => {
        await remove(at(kind, policy.vhost, policy.name));
        reload();
      },
      done: `${policy.name} was deleted.`,
    });
  const columns = mayChange
    ? [...POLICY_COLUMNS, actionColumn((policy, reload) => html`<div class="cell-actions"><button class="button small" onClick=${() => edit(policy, reload)}>Change</button><button class="button small danger" onClick=${() => ask(policy, reload)}>Delete</button></div>`)]
    : POLICY_COLUMNS;
  return html`<${ListPage} title=${kind === "policies" ? "Policies" : "Operator policies"} route=${route} hasVhost=${true} path="api/${kind}" columns=${columns} textOf=${(each) => `${each.name} ${each.pattern}`}
    rowKey=${(each) => `${each.vhost}\n${each.name}`}
    actions=${(reload) => html`<a class="button" href=${href(["policies"], kind === "policies" ? { kind: "operator" } : {})}>${kind === "policies" ? "Operator policies" : "Policies"}</a>
      ${mayChange && html`<button class="button primary" onClick=${() => edit(null, reload)}>Add policy</button>`}`}
    empty=${html`<${Empty} title="There are no policies." command="recado policies declare short '^orders\\.' max-length=100000">A policy gives limits, expiry and dead-lettering to all queues and exchanges whose names match.<//>`} />`;
}

function PolicyForm({ kind, policy, close, reload }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState(policy?.vhost ?? "/");
  const [name, setName] = useState(policy?.name ?? "");
  const [pattern, setPattern] = useState(policy?.pattern ?? "");
  const [applyTo, setApplyTo] = useState(policy?.["apply-to"] ?? "queues");
  const [priority, setPriority] = useState(String(policy?.priority ?? 0));
  const [definition, setDefinition] = useState(policy ? JSON.stringify(policy.definition, null, 2) : "");
  const submit = async () => {
    await put(at(kind, vhost, name), { pattern, definition: parseJsonField(definition, "Definition"), priority: Number(priority), "apply-to": applyTo });
    reload();
  };
  return html`<${Form} submit=${submit} close=${close} label=${policy ? "Change policy" : "Add policy"} done="The policy ${name} applies.">
    <${TextField} label="Name" value=${name} onChange=${setName} required disabled=${Boolean(policy)} />
    <${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${policy ? [policy.vhost] : vhosts} />
    <${TextField} label="Pattern" value=${pattern} onChange=${setPattern} required hint="regular expression for names" wide=${true} />
    <${PolicyPreview} vhost=${vhost} pattern=${pattern} applyTo=${applyTo} />
    <${SelectField} label="Applies to" value=${applyTo} onChange=${setApplyTo} options=${APPLY_TO} />
    <${TextField} label="Priority" type="number" value=${priority} onChange=${setPriority} hint="the highest that matches applies" />
    <${AreaField} label="Definition" value=${definition} onChange=${setDefinition} rows=${4} required hint=${'JSON, such as {"max-length": 100000, "dead-letter-exchange": "dead"}'} />
  <//>`;
}

// Which queues the pattern would affect, among those that the console knows.
function PolicyPreview({ vhost, pattern, applyTo }) {
  useLive("queues");
  if (!pattern || applyTo === "exchanges" || !queueStore.isLoaded) return null;
  let expression;
  try {
    expression = new RegExp(pattern, "u");
  } catch {
    return html`<p class="wide hint">The browser cannot preview this pattern; the node checks it.</p>`;
  }
  const type = { classic_queues: "classic", quorum_queues: "quorum", streams: "stream" }[applyTo];
  const names = [];
  for (const queue of queueStore.rows.values()) {
    if (queue.vhost === vhost && (!type || queue.type === type) && expression.test(queue.name)) names.push(queue.name);
  }
  return html`<p class="wide hint" role="status">Matches ${format.plural(names.length, "queue")}${names.length ? `: ${names.slice(0, 5).join(", ")}${names.length > 5 ? ", …" : ""}` : " now"}.</p>`;
}

// ── virtual hosts ─────────────────────────────────────────────────────────────────────────────────

const rate = (object, name) => object.message_stats?.[`${name}_details`]?.rate ?? 0;

const VHOST_COLUMNS = [
  { id: "name", label: "Name", value: (each) => each.name.toLowerCase(), cell: (each) => (isAdministrator() ? html`<a href=${href(["vhosts", each.name])}><${Name}>${each.name}<//></a>` : html`<${Name}>${each.name}<//>`) },
  { id: "description", label: "Description", value: (each) => each.description ?? "", cell: (each) => html`<bdi>${each.description}</bdi>`, hide: "hide-m" },
  { id: "type", label: "Default type", value: (each) => each.default_queue_type, cell: (each) => (each.default_queue_type === "undefined" ? "classic" : each.default_queue_type), width: "w-m", hide: "hide-l" },
  { id: "ready", label: "Ready", number: true, value: (each) => each.messages_ready, cell: (each) => format.count(each.messages_ready), width: "w-s" },
  { id: "unacked", label: "Unacked", number: true, value: (each) => each.messages_unacknowledged, cell: (each) => format.count(each.messages_unacknowledged), width: "w-s", hide: "hide-s" },
  { id: "publish", label: "Publish", number: true, value: (each) => rate(each, "publish"), cell: (each) => format.rate(rate(each, "publish")), width: "w-s", hide: "hide-s" },
  { id: "deliver", label: "Deliver", number: true, value: (each) => rate(each, "deliver_get"), cell: (each) => format.rate(rate(each, "deliver_get")), width: "w-s", hide: "hide-s" },
  { id: "queues", label: "Queues", sortable: false, number: true, value: () => 0, cell: (each) => html`<a href=${href(["queues"], { vhost: each.name })}>show</a>`, width: "w-s", hide: "hide-s" },
];

export function VhostsPage({ route }) {
  return html`<${ListPage} title="Virtual hosts" route=${route} path="api/vhosts" columns=${VHOST_COLUMNS} rowKey=${(each) => each.name} textOf=${(each) => `${each.name} ${each.description ?? ""}`}
    actions=${(reload) => isAdministrator() && html`<button class="button primary" onClick=${() => openDialog("Add a virtual host", (close) => html`<${VhostForm} close=${close} reload=${reload} />`)}>Add virtual host</button>`}
    empty=${html`<${Empty} title="You may not enter any virtual host." command="recado permissions declare USER '.*' '.*' '.*'">An administrator gives permissions.<//>`} />`;
}

function VhostForm({ vhost, close, reload }) {
  const [name, setName] = useState(vhost?.name ?? "");
  const [description, setDescription] = useState(vhost?.description ?? "");
  const [type, setType] = useState(vhost?.default_queue_type ?? "undefined");
  const submit = async () => {
    await put(at("vhosts", name), { description, default_queue_type: type });
    reload();
  };
  return html`<${Form} submit=${submit} close=${close} label=${vhost ? "Change" : "Add virtual host"} done="Virtual host ${name} is there.">
    <${TextField} label="Name" value=${name} onChange=${setName} required disabled=${Boolean(vhost)} maxlength="255" />
    <${SelectField} label="Default queue type" value=${type} onChange=${setType} options=${[["undefined", "Classic"], ["quorum", "Quorum"], ["stream", "Stream"]]} />
    <${TextField} label="Description" value=${description} onChange=${setDescription} wide=${true} />
  <//>`;
}

export function VhostPage({ names: [name] }) {
  const { data: vhost, error, reload } = useLoaded(at("vhosts", name));
  const permissions = useLoaded(at("vhosts", name, "permissions"));
  const limits = useLoaded(at("vhost-limits", name));
  const trail = [["Virtual hosts", ["vhosts"]]];
  if (!vhost) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const ask = () =>
    confirm({
      title: `Delete ${name}?`,
      label: "Delete virtual host",
      lines: [`The virtual host ${name}, all of its queues, exchanges, bindings and policies, and ${format.plural(vhost.messages, "message")} will be lost. Its connections are closed.`],
      submit: async () => {
        await remove(at("vhosts", name));
        go(["vhosts"]);
      },
      done: `${name} was deleted.`,
    });
  return html`<${Page} title=${name} trail=${trail} actions=${html`
      <button class="button" onClick=${() => openDialog(`Change ${name}`, (close) => html`<${VhostForm} vhost=${vhost} close=${close} reload=${reload} />`)}>Change</button>
      <button class="button danger" onClick=${ask}>Delete</button>`}>
    <div class="tiles">
      <${Tile} label="Ready" value=${format.brief(vhost.messages_ready)} link=${href(["queues"], { vhost: name, sort: "-ready" })} />
      <${Tile} label="Unacknowledged" value=${format.brief(vhost.messages_unacknowledged)} />
      <${Tile} label="Publish" value=${format.rate(rate(vhost, "publish"))} />
      <${Tile} label="Deliver" value=${format.rate(rate(vhost, "deliver_get"))} />
      <${Tile} label="Default queue type" value=${vhost.default_queue_type === "undefined" ? "classic" : vhost.default_queue_type} />
    </div>
    ${vhost.description && html`<p><bdi>${vhost.description}</bdi></p>`}
    <div class="columns">
      <${Panel} title="Permissions" id="permissions" flush=${true} actions=${html`<button class="button small" onClick=${() => openPermission({ vhost: name }, permissions.reload)}>Set permission</button>`}>
        ${permissions.data?.length ? html`<${PermissionTable} permissions=${permissions.data} by="user" reload=${permissions.reload} />` : html`<${Empty} title="No user may enter." command=${`recado permissions declare USER '.*' '.*' '.*' --vhost ${format.shell(name)}`} />`}
      <//>
      <${Panel} title="Limits" id="limits" actions=${html`<button class="button small" onClick=${() => openLimit({ vhost: name }, limits.reload)}>Set limit</button>`}>
        <${LimitList} values=${limits.data?.[0]?.value} />
      <//>
    </div>
  <//>`;
}

// ── users ─────────────────────────────────────────────────────────────────────────────────────────

const TAGS = ["administrator", "monitoring", "policymaker", "management"];
const TagBadges = ({ tags }) => (tags.length ? html`<span class="features">${tags.map((tag) => html`<${Badge} kind=${tag === "administrator" ? "accent" : ""}>${tag}<//>`)}</span>` : html`<span class="muted">no access to the console</span>`);

const userColumns = (vhostsOf) => [
  { id: "name", label: "Name", value: (each) => each.name.toLowerCase(), cell: (each) => html`<a href=${href(["users", each.name])}><${Name}>${each.name}<//></a>${each.name === session.user && html` <${Badge}>you<//>`}` },
  { id: "tags", label: "Tags", value: (each) => each.tags.join(" "), cell: (each) => html`<${TagBadges} tags=${each.tags} />` },
  { id: "vhosts", label: "Virtual hosts", value: (each) => vhostsOf(each.name), cell: (each) => (vhostsOf(each.name) ? html`<${Name} muted=${true}>${vhostsOf(each.name)}<//>` : html`<span class="zero">none</span>`), hide: "hide-m" },
  { id: "password", label: "Password", value: (each) => (each.password_hash ? 1 : 0), cell: (each) => (each.password_hash ? "set" : html`<${Badge} kind="warn" title="logs in by certificate or token only">none<//>`), width: "w-m", hide: "hide-s" },
  { id: "limits", label: "Limits", sortable: false, value: () => "", cell: (each) => Object.entries(each.limits ?? {}).map(([name, value]) => `${name} ${value}`).join(", ") || html`<span class="zero">none</span>`, hide: "hide-m" },
];

export function UsersPage({ route }) {
  const { data: permissions } = useLoaded("api/permissions");
  const columns = useMemo(() => userColumns((name) => (permissions ?? []).filter((each) => each.user === name).map((each) => each.vhost).sort().join(", ")), [permissions]);
  return html`<${ListPage} title="Users" route=${route} path="api/users" columns=${columns} rowKey=${(each) => each.name} textOf=${(each) => `${each.name} ${each.tags.join(" ")}`}
    actions=${(reload) => html`<button class="button primary" onClick=${() => openDialog("Add a user", (close) => html`<${UserForm} close=${close} reload=${reload} />`)}>Add user</button>`}
    empty=${html`<${Empty} title="There are no users." />`} />`;
}

function UserForm({ user, close, reload }) {
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [tags, setTags] = useState(new Set(user?.tags ?? []));
  const [allowed, setAllowed] = useState(!user);
  const submit = async () => {
    const body = { tags: [...tags].join(",") };
    if (password) body.password = password;
    else body.password_hash = user?.password_hash ?? "";
    await put(at("users", name), body);
    if (!user && allowed) await put(at("permissions", "/", name), { configure: ".*", write: ".*", read: ".*" });
    reload();
  };
  const toggle = (tag) => {
    const next = new Set(tags);
    if (!next.delete(tag)) next.add(tag);
    setTags(next);
  };
  return html`<${Form} submit=${submit} close=${close} label=${user ? "Change user" : "Add user"} done=${user ? `${name} was changed.` : `${name} was added.`}>
    <${TextField} label="Name" value=${name} onChange=${setName} required disabled=${Boolean(user)} maxlength="255" />
    <${TextField} label="Password" type="password" value=${password} onChange=${setPassword} autocomplete="new-password" hint=${user ? "empty: stays as it is" : "empty: login by certificate only"} />
    <${Field} label="Tags" wide=${true}>${(id) => html`<div class="checks" id=${id} role="group" aria-label="Tags">${TAGS.map((tag) => html`<${CheckField} key=${tag} label=${tag} value=${tags.has(tag)} onChange=${() => toggle(tag)} />`)}</div>`}<//>
    ${!user && html`<div class="wide"><${CheckField} label="Give all permissions in the virtual host /" value=${allowed} onChange=${setAllowed} /></div>`}
  <//>`;
}

export function UserPage({ names: [name] }) {
  const { data: user, error, reload } = useLoaded(at("users", name));
  const permissions = useLoaded(at("users", name, "permissions"));
  const topics = useLoaded(at("users", name, "topic-permissions"));
  const trail = [["Users", ["users"]]];
  if (!user) return html`<${Page} title=${name} trail=${trail}>${error ? html`<${Problem} error=${error} retry=${reload} />` : html`<${Loading} />`}<//>`;
  const ask = () =>
    confirm({
      title: `Delete the user ${name}?`,
      label: "Delete user",
      lines: [`${name} loses its permissions, and its connections are closed.`, name === session.user && "You are signed in as this user, and will be signed out."],
      submit: async () => {
        await remove(at("users", name));
        go(["users"]);
      },
      done: `${name} was deleted.`,
    });
  return html`<${Page} title=${name} trail=${trail} badges=${html`<${TagBadges} tags=${user.tags} />`} actions=${html`
      <button class="button" onClick=${() => openDialog(`Change ${name}`, (close) => html`<${UserForm} user=${user} close=${close} reload=${reload} />`)}>Change</button>
      <button class="button danger" onClick=${ask}>Delete</button>`}>
    <div class="columns">
      <div class="stack">
        <${Panel} title="Permissions" id="permissions" flush=${true} actions=${html`<button class="button small" onClick=${() => openPermission({ user: name }, permissions.reload)}>Set permission</button>`}>
          ${permissions.data?.length ? html`<${PermissionTable} permissions=${permissions.data} by="vhost" reload=${permissions.reload} />` : html`<${Empty} title="This user may not enter any virtual host." command=${`recado permissions declare ${format.shell(name)} '.*' '.*' '.*'`} />`}
        <//>
        <${Panel} title="Topic permissions" id="topics" flush=${true} actions=${html`<button class="button small" onClick=${() => openTopicPermission({ user: name }, topics.reload)}>Set topic permission</button>`}>
          ${topics.data?.length
            ? html`<${TopicTable} permissions=${topics.data} reload=${topics.reload} />`
            : html`<${Empty} title="No topic permissions.">All routing keys are allowed on exchanges that the user may write to.<//>`}
        <//>
      </div>
      <div class="stack">
        <${Panel} title="Limits" id="limits" actions=${html`<button class="button small" onClick=${() => openLimit({ user: name }, reload)}>Set limit</button>`}><${LimitList} values=${user.limits} /><//>
        <${PermissionQuestion} permissions=${permissions.data ?? []} user=${name} />
      </div>
    </div>
  <//>`;
}

// "What may this user do with this name?"
function PermissionQuestion({ permissions, user }) {
  const [vhost, setVhost] = useState("");
  const [name, setName] = useState("");
  const chosen = permissions.find((each) => each.vhost === (vhost || permissions[0]?.vhost));
  const may = (pattern) => {
    try {
      return new RegExp(pattern === "" ? "^$" : pattern, "u").test(name);
    } catch {
      return null;
    }
  };
  return html`<${Panel} title="What may ${user} do?" id="question">
    ${permissions.length
      ? html`<div class="stack">
        <${SelectField} label="Virtual host" value=${vhost || permissions[0].vhost} onChange=${setVhost} options=${permissions.map((each) => each.vhost)} />
        <${TextField} label="Queue or exchange" value=${name} onChange=${setName} placeholder="orders" />
        ${name && chosen && html`<ul class="stack" role="status">${["configure", "write", "read"].map((kind) => {
          const answer = may(chosen[kind]);
          return html`<li key=${kind}><${Badge} kind=${answer ? "good" : "bad"}>${answer === null ? "unknown" : answer ? "may" : "may not"}<//> ${kind} <span class="muted">by <code>${chosen[kind] || "(nothing)"}</code></span></li>`;
        })}</ul>`}</div>`
      : html`<p class="muted">Nothing: it may not enter any virtual host.</p>`}
  <//>`;
}

function PermissionTable({ permissions, by, reload }) {
  const ask = (each) =>
    confirm({
      title: `Remove the permission of ${each.user} in ${each.vhost}?`,
      label: "Remove permission",
      lines: [`${each.user} can no longer enter ${each.vhost}. Open connections are refused their next operation.`],
      submit: async () => {
        await remove(at("permissions", each.vhost, each.user));
        reload();
      },
      done: "The permission was removed.",
    });
  return html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
    <thead><tr><th scope="col">${by === "user" ? "User" : "Virtual host"}</th><th scope="col">Configure</th><th scope="col">Write</th><th scope="col">Read</th><th scope="col"><span class="offscreen">Actions</span></th></tr></thead>
    <tbody>${permissions.map((each) => html`<tr key=${`${each.vhost}\n${each.user}`}>
      <td><a href=${href([by === "user" ? "users" : "vhosts", each[by]])}><${Name}>${each[by]}<//></a></td>
      <td><code><${Name}>${each.configure}<//></code></td><td><code><${Name}>${each.write}<//></code></td><td><code><${Name}>${each.read}<//></code></td>
      <td><div class="cell-actions"><button class="button small" onClick=${() => openPermission(each, reload)}>Change</button><button class="button small danger" onClick=${() => ask(each)}>Remove</button></div></td></tr>`)}</tbody></table></div>`;
}

function TopicTable({ permissions, reload }) {
  const ask = (each) =>
    confirm({
      title: `Remove the topic permission of ${each.user} on ${each.exchange || "(default)"}?`,
      label: "Remove topic permission",
      lines: [`All routing keys are then allowed for ${each.user} on this exchange in ${each.vhost}, as far as its permissions go.`],
      submit: async () => {
        await remove(at("topic-permissions", each.vhost, each.user, each.exchange || "amq.default"));
        reload();
      },
      done: "The topic permission was removed.",
    });
  return html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain broad">
    <thead><tr><th scope="col">Virtual host</th><th scope="col">Exchange</th><th scope="col">Write</th><th scope="col">Read</th><th scope="col"><span class="offscreen">Actions</span></th></tr></thead>
    <tbody>${permissions.map((each) => html`<tr key=${`${each.vhost}\n${each.exchange}`}>
      <td><${Name}>${each.vhost}<//></td><td><${Name}>${each.exchange || "(default)"}<//></td><td><code><${Name}>${each.write}<//></code></td><td><code><${Name}>${each.read}<//></code></td>
      <td><div class="cell-actions"><button class="button small" onClick=${() => openTopicPermission(each, reload)}>Change</button><button class="button small danger" onClick=${() => ask(each)}>Remove</button></div></td></tr>`)}</tbody></table></div>`;
}

function openTopicPermission(given, reload) {
  openDialog("Set a topic permission", (close) => html`<${TopicForm} given=${given} close=${close} reload=${reload} />`);
}

function TopicForm({ given, close, reload }) {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState(given.vhost ?? "/");
  const [exchange, setExchange] = useState(given.exchange ?? "");
  const [write, setWrite] = useState(given.write ?? ".*");
  const [read, setRead] = useState(given.read ?? ".*");
  const isChange = given.exchange !== undefined;
  const submit = async () => {
    await put(at("topic-permissions", vhost, given.user), { exchange, write, read });
    reload();
  };
  return html`<${Form} submit=${submit} close=${close} label="Set topic permission" done="The routing keys of ${given.user} on ${exchange} are limited.">
    <${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${isChange ? [given.vhost] : vhosts} />
    <${TextField} label="Topic exchange" value=${exchange} onChange=${setExchange} required=${!isChange} disabled=${isChange} />
    <${TextField} label="Write" value=${write} onChange=${setWrite} hint="regular expression of routing keys to publish with" wide=${true} />
    <${TextField} label="Read" value=${read} onChange=${setRead} hint="of routing keys to bind with" wide=${true} />
  <//>`;
}

function openPermission(given, reload) {
  openDialog("Set a permission", (close) => html`<${PermissionForm} given=${given} close=${close} reload=${reload} />`);
}

function PermissionForm({ given, close, reload }) {
  const vhosts = useVhosts();
  const [user, setUser] = useState(given.user ?? "");
  const [vhost, setVhost] = useState(given.vhost ?? "/");
  const [configure, setConfigure] = useState(given.configure ?? ".*");
  const [write, setWrite] = useState(given.write ?? ".*");
  const [read, setRead] = useState(given.read ?? ".*");
  const submit = async () => {
    await put(at("permissions", vhost, user), { configure, write, read });
    reload();
  };
  return html`<${Form} submit=${submit} close=${close} label="Set permission" done="${user} may enter ${vhost}.">
    <${TextField} label="User" value=${user} onChange=${setUser} required disabled=${given.user !== undefined} />
    <${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${given.vhost !== undefined ? [given.vhost] : vhosts} />
    <${TextField} label="Configure" value=${configure} onChange=${setConfigure} hint="regular expression of names to declare and delete" wide=${true} />
    <${TextField} label="Write" value=${write} onChange=${setWrite} hint="of exchanges to publish to, and queues to bind" wide=${true} />
    <${TextField} label="Read" value=${read} onChange=${setRead} hint="of queues to consume from" wide=${true} />
  <//>`;
}

// ── limits ────────────────────────────────────────────────────────────────────────────────────────

const VHOST_LIMITS = ["max-connections", "max-queues", "max-bindings", "max-consumers"];
const USER_LIMITS = ["max-connections", "max-channels"];

function LimitList({ values }) {
  const entries = Object.entries(values ?? {});
  if (!entries.length) return html`<p class="muted">No limits.</p>`;
  return html`<dl class="facts">${entries.map(([name, value]) => html`<dt>${name}</dt><dd>${format.count(value)}</dd>`)}</dl>`;
}

function openLimit(given, reload) {
  openDialog(`Set a limit of ${given.vhost ?? given.user}`, (close) => html`<${LimitForm} given=${given} close=${close} reload=${reload} />`);
}

function LimitForm({ given, close, reload }) {
  const names = given.vhost !== undefined ? VHOST_LIMITS : USER_LIMITS;
  const [name, setName] = useState(given.name ?? names[0]);
  const [value, setValue] = useState(String(given.value ?? ""));
  const submit = async () => {
    const path = given.vhost !== undefined ? at("vhost-limits", given.vhost, name) : at("user-limits", given.user, name);
    await put(path, { value: value === "" ? -1 : Number(value) });
    reload();
  };
  return html`<${Form} submit=${submit} close=${close} label="Set limit" done="The limit applies to what is opened next.">
    <${SelectField} label="Limit" value=${name} onChange=${setName} options=${names} />
    <${TextField} label="Value" type="number" min="0" value=${value} onChange=${setValue} hint="empty: no limit" />
  <//>`;
}

const LIMIT_COLUMNS = [
  { id: "of", label: "Of", value: (each) => `${each.kind} ${each.of}`.toLowerCase(), cell: (each) => html`<span class="muted">${each.kind === "vhosts" ? "virtual host" : "user"}</span> ${isAdministrator() ? html`<a href=${href([each.kind, each.of])}><${Name}>${each.of}<//></a>` : html`<${Name}>${each.of}<//>`}` },
  { id: "limit", label: "Limit", value: (each) => each.name },
  { id: "value", label: "Value", number: true, value: (each) => each.value, cell: (each) => format.count(each.value), width: "w-m" },
];

export function LimitsPage({ route }) {
  const vhosts = useLoaded(session.is_monitor || isAdministrator() ? "api/vhost-limits" : null);
  const users = useLoaded("api/user-limits");
  const rows = [
    ...(vhosts.data ?? []).flatMap((each) => Object.entries(each.value).map(([name, value]) => ({ kind: "vhosts", of: each.vhost, name, value }))),
    ...(users.data ?? []).flatMap((each) => Object.entries(each.value).map(([name, value]) => ({ kind: "users", of: each.user, name, value }))),
  ];
  const reload = () => {
    vhosts.reload();
    users.reload();
  };
  const names = useVhosts();
  return html`<${LimitTable} route=${route} rows=${rows} isLoaded=${users.data !== null} error=${users.error} reload=${reload} vhosts=${names} />`;
}

function LimitTable({ route, rows, isLoaded, error, reload, vhosts }) {
  const actions = isAdministrator() && html`<button class="button primary" onClick=${() => openDialog("Set a limit", (close) => html`<${ChooseLimit} vhosts=${vhosts} close=${close} reload=${reload} />`)}>Set limit</button>`;
  return html`<${Page} title="Limits" actions=${actions}>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    <section class="panel bare">${!isLoaded
      ? html`<${Loading} />`
      : rows.length
        ? html`<div class="scroller whole"><table class="table plain"><thead><tr>${LIMIT_COLUMNS.map((each) => html`<th scope="col" class=${each.number ? "number" : ""}>${each.label}</th>`)}</tr></thead>
          <tbody>${rows.map((row) => html`<tr key=${`${row.kind}\n${row.of}\n${row.name}`}>${LIMIT_COLUMNS.map((each) => html`<td class=${each.number ? "number" : ""}>${each.cell ? each.cell(row) : each.value(row)}</td>`)}</tr>`)}</tbody></table></div>`
        : html`<${Empty} title="There are no limits.">A virtual host or a user may be limited in connections, queues, bindings, consumers and channels.<//>`}</section>
  <//>`;
}

function ChooseLimit({ vhosts, close, reload }) {
  const [kind, setKind] = useState("vhost");
  const [vhost, setVhost] = useState("/");
  const [user, setUser] = useState("");
  const given = kind === "vhost" ? { vhost } : { user };
  return html`<div class="dialog-body stack">
      <${SelectField} label="Of" value=${kind} onChange=${setKind} options=${[["vhost", "Virtual host"], ["user", "User"]]} />
      ${kind === "vhost" ? html`<${SelectField} label="Virtual host" value=${vhost} onChange=${setVhost} options=${vhosts} />` : html`<${TextField} label="User" value=${user} onChange=${setUser} />`}
    </div><${LimitForm} key=${kind} given=${given} close=${close} reload=${reload} />`;
}

// ── definitions ───────────────────────────────────────────────────────────────────────────────────

const IMPORT_MAX_BYTES = 20_000_000;

export function DefinitionsPage() {
  const vhosts = useVhosts();
  const [vhost, setVhost] = useState("");
  const [file, setFile] = useState(null);
  const [preview, setPreview] = useState(null);
  const path = vhost ? at("definitions", vhost) : "api/definitions";
  const exportAll = async () => {
    try {
      const document = await get(path);
      download(vhost ? `definitions-${vhost}.json` : "definitions.json", "application/json", JSON.stringify(document, null, 2));
    } catch (error) {
      notify(error.message, "bad");
    }
  };
  const choose = async (event) => {
    const [chosen] = event.target.files;
    setPreview(null);
    if (!chosen) return setFile(null);
    if (chosen.size > IMPORT_MAX_BYTES) return notify(`${chosen.name} has ${format.bytes(chosen.size)}; 20 MB are allowed.`, "bad");
    return setFile({ name: chosen.name, text: await chosen.text() });
  };
  const compare = async () => setPreview(await post(`${path}?dry_run=true`, file.text));
  return html`<${Page} title="Definitions">
    <p class="muted">Users, virtual hosts, permissions, policies, exchanges, queues and bindings, as RabbitMQ writes them. Messages are not part of them.</p>
    <div class="toolbar"><${SelectField} label="Virtual host" value=${vhost} onChange=${(value) => { setVhost(value); setPreview(null); }} options=${[["", "All virtual hosts"], ...vhosts.map((each) => [each, each])]} /></div>
    <div class="grid">
      <${Panel} title="Export" id="export"><div class="stack"><p>The file has hashes of passwords: keep it as you keep backups.</p><div><button class="button primary" onClick=${exportAll}>Download definitions</button></div></div><//>
      <${Panel} title="Import" id="import">
        <${Form} submit=${compare} label="Show what would change">
          <${Field} label="File" wide=${true} hint="Nothing is changed yet.">${(id) => html`<input id=${id} type="file" accept=".json,application/json" onChange=${choose} required />`}<//>
        <//>
      <//>
    </div>
    ${preview && html`<${ImportPreview} preview=${preview} path=${path} file=${file} done=${() => setPreview(null)} />`}
  <//>`;
}

function ImportPreview({ preview, path, file, done }) {
  const { created, changed, unchanged, skipped, errors } = preview;
  const same = Object.values(unchanged).reduce((sum, each) => sum + each, 0);
  const apply = async () => {
    await post(path, file.text);
    done();
  };
  const nameOf = (each) => Object.entries(each).filter(([name]) => !["kind", "changes"].includes(name)).map(([, value]) => format.text(value)).join(" · ");
  return html`<${Panel} title="Import of ${file.name}" id="preview">
    <div class="tiles">
      <${Tile} label="Created" value=${format.count(created.length)} /><${Tile} label="Changed" value=${format.count(changed.length)} tone=${changed.length ? "warn" : ""} />
      <${Tile} label="Unchanged" value=${format.count(same)} /><${Tile} label="Skipped" value=${format.count(skipped.length)} /><${Tile} label="Errors" value=${format.count(errors.length)} tone=${errors.length ? "bad" : ""} />
    </div>
    <div class="stack">
      ${errors.slice(0, 20).map((text) => html`<p class="form-error">${text}</p>`)}
      ${[["Created", created], ["Changed", changed]].map(([label, entries]) => entries.length > 0 && html`<div><h3>${label}</h3><ul>${entries.slice(0, 100).map((each) => html`<li><${Badge}>${each.kind}<//> <bdi>${nameOf(each)}</bdi>${each.changes && html`<${Json} value=${each.changes} />`}</li>`)}</ul>${entries.length > 100 && html`<p class="muted">and ${format.count(entries.length - 100)} more</p>`}</div>`)}
      ${skipped.slice(0, 20).map((text) => html`<p class="muted">${text}</p>`)}
      ${errors.length === 0 && html`<${Form} submit=${apply} label="Import ${format.plural(created.length + changed.length, "change")}" danger=${changed.length > 0} done="The definitions were imported." />`}
    </div>
  <//>`;
}
