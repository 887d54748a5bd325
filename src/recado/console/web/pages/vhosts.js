// The virtual hosts that the user may enter, for filters and forms.
import { get } from "../api.js";
import { html, useEffect, useState } from "../lib.js";
import { setQuery } from "../router.js";

export function useVhosts() {
  const [names, setNames] = useState(["/"]);
  useEffect(() => {
    let isGone = false;
    get("api/vhosts?columns=name").then(
      (found) => isGone || (found.length && setNames(found.map((each) => each.name))),
      () => {},
    );
    return () => {
      isGone = true;
    };
  }, []);
  return names;
}

export function VhostFilter({ current }) {
  const names = useVhosts();
  if (names.length < 2 && !current) return null;
  return html`<select aria-label="Virtual host" value=${current} onChange=${(event) => setQuery({ vhost: event.target.value })}>
    <option value="">All virtual hosts</option>
    ${names.map((name) => html`<option key=${name} value=${name} selected=${name === current}>${name}</option>`)}
  </select>`;
}
