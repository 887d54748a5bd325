// A page with one list from the API, which is loaded again every few seconds: filter, order, empty state.
import { Empty, Loading, Page, Problem } from "../components.js";
import { html, useMemo } from "../lib.js";
import { useLoaded } from "../live.js";
import { FilterField, parseSort, sortRows, Table } from "../table.js";
import { VhostFilter } from "./vhosts.js";

// `textOf(row)` is what the filter searches. `children(reload)` is shown above the list.
export function ListPage({ title, path, columns, textOf, rowKey, route, sort: defaultSort, empty, actions, hasVhost = false, vhostOf = (row) => row.vhost, period = 5_000, keep, children }) {
  const { data, error, reload } = useLoaded(path, period);
  const { filter = "", vhost = "" } = route.query;
  const sort = parseSort(route.query.sort, columns, defaultSort);
  const rows = useMemo(() => {
    if (!data) return [];
    const wanted = filter.toLowerCase();
    const found = data.filter((row) => (!keep || keep(row)) && (!wanted || textOf(row).toLowerCase().includes(wanted)) && (!vhost || vhostOf(row) === vhost));
    return sortRows(found, columns, sort);
  }, [data, filter, vhost, sort.id, sort.descending, keep]);
  const total = data ? (keep ? data.filter(keep).length : data.length) : null;
  return html`<${Page} title=${title} actions=${actions?.(reload)}>
    ${children?.(reload)}
    <div class="toolbar">
      <${FilterField} value=${filter} label="Filter ${title.toLowerCase()}" shown=${rows.length} total=${total} />
      ${hasVhost && html`<${VhostFilter} current=${vhost} />`}
    </div>
    ${error && html`<${Problem} error=${error} retry=${reload} />`}
    ${!error || data ? html`<section class="panel bare">
      ${!data
        ? html`<${Loading} />`
        : html`<${Table} rows=${rows} columns=${columns.map((each) => (each.withReload ? { ...each, cell: (row) => each.withReload(row, reload) } : each))} rowKey=${rowKey} sort=${sort} label=${title}
            empty=${total ? html`<${Empty} title="Nothing matches the filter." />` : empty} />`}
    </section>` : null}
  <//>`;
}
