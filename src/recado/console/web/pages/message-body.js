// A body as the first decoder shows it that knows it, and as another one on demand.
import { html, useEffect, useState } from "../lib.js";
import { decodeBody, listDecoders } from "./decoders.js";

export function MessageBody({ message, label }) {
  const [chosen, setChosen] = useState("");
  const [decoded, setDecoded] = useState(null);
  useEffect(() => {
    let isGone = false;
    Promise.resolve(decodeBody(message, chosen)).then((found) => isGone || setDecoded(found));
    return () => {
      isGone = true;
    };
  }, [message.payload, message.payload_encoding, chosen]);
  if (decoded === null) return null;
  return html`<div class="body-view">
    ${message.payload !== "" && html`<select class="body-decoder" aria-label="Show the body as" title="Show the body as" value=${decoded.id} onChange=${(event) => setChosen(event.target.value)}>
      ${listDecoders().map(([id, text]) => html`<option key=${id} value=${id} selected=${id === decoded.id}>${text}</option>`)}
    </select>`}
    <pre class="payload" tabindex="0" role="region" aria-label=${label}>${decoded.text}</pre>
  </div>`;
}
