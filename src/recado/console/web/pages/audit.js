// Who has changed what: the newest lines of the audit log, with filters in the address.
import { get } from "../api.js";
import { download, Empty, Loading, Name, Page, Problem, toCsv } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { useLoaded } from "../live.js";
import { href, setQuery } from "../router.js";

const PAGE_COUNT = 100;
const CSV_COUNT = 1_000;
const LOAD_MS = 5_000;
const FILTERS = [["user", "User"], ["action", "Action"], ["object", "Object"]];

// The first clause of the summary, without marks of code.
const actionText = ({ summary, action }) => summary.replaceAll("`", "").replace(/[;:.](\s.*)?$/s, "") || action;

function Lines({ rows }) {
  return html`<div class="scroller whole" tabindex="0" role="group" aria-label="Table"><table class="table plain loose" aria-label="Audit log">
    <thead><tr><th scope="col">Time</th><th scope="col" class="hide-s">User</th><th scope="col">Action</th><th scope="col">Object</th><th scope="col" class="hide-m">Outcome</th><th scope="col" class="hide-l">Address</th></tr></thead>
    <tbody>${rows.map((each) => html`<tr key=${each.number}>
      <td class="when" title=${each.at}>${format.dateTime(Date.parse(each.at))}</td>
      <td class="word hide-s"><${UserLink} name=${each.user} /></td>
      <td title=${each.action}>${actionText(each)}<div class="only-s muted">by <${UserLink} name=${each.user} /></div></td>
      <td><${Name}>${objectText(each)}<//></td>
      <td class="hide-m">${detailsText(each)}</td>
      <td class="word hide-l" title=${each.address}>${each.address}</td>
    </tr>`)}</tbody></table></div>`;
}

const UserLink = ({ name }) => html`<a href=${href(["users", name])}><${Name}>${name}<//></a>`;

function objectText({ object }) {
  const { vhost, ...others } = object;
  const names = Object.values(others).filter((each) => each !== "");
  return [...(vhost && vhost !== "/" ? [vhost] : []), ...(names.length ? names : vhost ? [vhost] : [])].join(" · ") || format.NONE;
}

function detailsText({ details }) {
  if (!details) return "";
  return Object.entries(details).map(([name, value]) => `${name.replaceAll("_", " ")}: ${format.text(value)}`).join(", ");
}

function addressOf(query, count) {
  const chosen = { ...Object.fromEntries(FILTERS.map(([name]) => [name, query[name]])), before: query.before, count };
  const set = Object.entries(chosen).filter(([, value]) => value);
  return `api/audit?${new URLSearchParams(set)}`;
}

export function AuditPage({ route: { query } }) {
  const path = addressOf(query, PAGE_COUNT);
  const { data, error, reload } = useLoaded(path, query.before ? 0 : LOAD_MS);
  const isFiltered = FILTERS.some(([name]) => query[name]);
  const rows = useMemo(() => data ?? [], [data]);
  const [failure, setFailure] = useState(null);
  const save = async () => {
    setFailure(null);
    try {
      const lines = await get(addressOf(query, CSV_COUNT));
      const cells = lines.map((each) => [each.number, each.at, each.user, each.address, each.action, each.summary, JSON.stringify(each.object), each.details ? JSON.stringify(each.details) : ""]);
      download("audit.csv", "text/csv", toCsv([["number", "at", "user", "address", "action", "summary", "object", "details"], ...cells]));
    } catch (problem) {
      setFailure(problem);
    }
  };
  const actions = html`<button class="button" onClick=${save} disabled=${!rows.length}>CSV</button>`;
  return html`<${Page} title="Audit log" actions=${actions}>
    <div class="toolbar" role="search">
      ${FILTERS.map(([name, label], index) => html`<${QueryField} key=${name} name=${name} label=${label} value=${query[name] ?? ""} isFirst=${index === 0} />`)}
      <span class="grow"></span>
      <button class="button" type="button" disabled=${!query.before} onClick=${() => setQuery({ before: "" })}>Newest</button>
      <button class="button" type="button" disabled=${rows.length < PAGE_COUNT} onClick=${() => setQuery({ before: rows.at(-1).number })}>Older</button>
    </div>
    ${(error || failure) && html`<${Problem} error=${error || failure} retry=${failure ? save : reload} />`}
    ${!error || data ? html`<section class="panel bare">
      ${!data ? html`<${Loading} />` : rows.length ? html`<${Lines} rows=${rows} />`
        : html`<${Empty} title=${isFiltered ? "Nothing matches the filters." : "Nothing was changed since the node has started."}>Older lines are in the log of the node, under recado.audit.<//>`}
    </section>` : null}
  <//>`;
}

// The address follows a moment after the last key.
function QueryField({ name, label, value, isFirst }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  const sent = useRef(value);
  useEffect(() => {
    if (value !== sent.current) {
      sent.current = value;
      setText(value);
    }
  }, [value]);
  const change = (event) => {
    const next = event.target.value;
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      sent.current = next;
      setQuery({ [name]: next, before: "" }, { replace: true });
    }, 200);
  };
  return html`<input type="search" class="field-m" data-filter=${isFirst ? "" : undefined} aria-label="${label} of the change" placeholder=${label} value=${text} onInput=${change} autocomplete="off" spellcheck=${false} />`;
}
