// Where would a message go? The answer of the node, with the reason for each match and each dead end.
import { post } from "../api.js";
import { Arguments, Badge, exchangeLabel, exchangeSegment, Name, Page, Panel, parseJsonField } from "../components.js";
import * as format from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { href, setQuery } from "../router.js";
import { useVhosts } from "./vhosts.js";
import { AreaField, SelectField, TextField } from "../components.js";

const PAUSE_MS = 200; // after the last key

export function RouteTestPage({ route }) {
  const vhosts = useVhosts();
  const { vhost = "/", exchange = "", key = "", headers = "" } = route.query;
  const [state, setState] = useState({ trace: null, error: null });
  const change = (name) => (value) => setQuery({ [name]: value }, { replace: true });
  useEffect(() => {
    let isGone = false;
    const timer = setTimeout(async () => {
      try {
        const body = { vhost, exchange, routing_key: key, headers: parseJsonField(headers, "Headers") };
        const trace = await post("api/route-test", body);
        if (!isGone) setState({ trace, error: null });
      } catch (error) {
        if (!isGone) setState({ trace: null, error });
      }
    }, PAUSE_MS);
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, [vhost, exchange, key, headers]);
  const { trace, error } = state;
  return html`<${Page} title="Route test">
    <div class="columns">
      <${Panel} title="Where it would go" id="answer">
        ${error && html`<p class="form-error" role="alert">${error.message}</p>`}
        ${trace && html`<${Trace} trace=${trace} vhost=${vhost} />`}
      <//>
      <${Panel} title="A message" id="message">
        <div class="stack">
          <${SelectField} label="Virtual host" value=${vhost} onChange=${change("vhost")} options=${vhosts} />
          <${TextField} label="Exchange" value=${exchange} onChange=${change("exchange")} placeholder="(default)" hint="empty: the default exchange" />
          <${TextField} label="Routing key" value=${key} onChange=${change("key")} data-filter />
          <${AreaField} label="Headers" value=${headers} onChange=${change("headers")} rows=${3} hint=${'JSON, such as {"type": "order"}'} />
          <p class="muted">Nothing is published.</p>
        </div>
      <//>
    </div>
  <//>`;
}

function Trace({ trace, vhost }) {
  return html`<div class="stack" role="status">
    ${trace.publish_refusal && html`<div class="banner bad"><strong>You may not publish it.</strong><span>${trace.publish_refusal}</span></div>`}
    ${trace.routed
      ? html`<div class="banner good"><strong>It reaches ${format.plural(trace.queue_count, "queue")}.</strong></div>`
      : html`<div class="banner warn"><strong>It reaches no queue.</strong><span>${trace.unroutable_reason}</span></div>`}
    ${trace.queues.length > 0 && html`<ul class="features">${trace.queues.map((each) => html`<li key=${each.name}><a href=${href(["queues", vhost, each.name])}><${Badge} kind=${each.refusal ? "bad" : "accent"} title=${each.refusal}>${each.name}${each.refusal ? `: ${each.refusal}` : ""}<//></a></li>`)}</ul>`}
    <div>${trace.exchanges.map((each, index) => html`<div class="hop" key=${`${each.name}${index}`}>
      <div class="toolbar"><strong>${index + 1}.</strong><a href=${href(["exchanges", vhost, exchangeSegment(each.name)])}><${Name}>${exchangeLabel(each.name)}<//></a>
        <${Badge}>${each.type}<//>${each.is_alternate && html`<${Badge} kind="warn">alternate<//>`}${each.delay_ms ? html`<${Badge}>after ${each.delay_ms} ms<//>` : null}</div>
      ${each.matches.length > 0 && html`<ul class="stack">${each.matches.map((match) => html`<li key=${`${match.destination}${match.properties_key}`}>
        <code>${match.routing_key === "" ? "(empty key)" : match.routing_key}</code> <span class="muted">${reason(match)} →</span>${" "}
        <a href=${href([match.destination_type === "queue" ? "queues" : "exchanges", vhost, match.destination])}><${Name}>${match.destination}<//></a>
        ${Object.keys(match.arguments).length > 0 && html`<${Arguments} values=${match.arguments} />`}</li>`)}</ul>`}
      ${each.match_count > each.matches.length && html`<p class="muted">and ${format.count(each.match_count - each.matches.length)} more</p>`}
      ${each.alternate_exchange && html`<p class="muted">Nothing matches: the alternate exchange ${each.alternate_exchange} gets it.</p>`}
      ${each.dead_end && html`<p class="warn">${each.dead_end}</p>`}
    </div>`)}</div>
  </div>`;
}

function reason(match) {
  if (match.is_fallback) return "dead-letter binding, as nothing else matches";
  if (match.matched_keys.length) return `matches ${match.matched_keys.join(", ")}`;
  return "matches";
}
