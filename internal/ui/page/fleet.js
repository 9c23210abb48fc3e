// The fleet: all nodes, by rack.
import { html, useMemo } from './lib.js'
import { useResource } from './store.js'
import { bytes, count, linkTo, nodeStates } from './format.js'
import { Bar, Filter, Heading, Loaded, Mark, Table } from './parts.js'

/** @param {any} n */
const rackOf = n => n.labels.rack || n.labels.zone || ''

/**
 * @param {any} n
 * @param {string} text words that all have to match; key=value matches a label or the state
 */
function matches(n, text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean).every(word => {
    const [key, value] = word.split('=')
    if (value !== undefined) return String(key === 'state' ? n.state : n.labels[key] ?? n.attributes[key] ?? '').toLowerCase() === value
    return [n.name, n.state, n.address, n.reason, ...Object.values(n.labels)].some(v => String(v).toLowerCase().includes(word))
  })
}

/** @param {URLSearchParams} query */
function replaceQuery(query) {
  const text = query.toString()
  location.replace((location.hash || '#/fleet').split('?')[0] + (text ? '?' + text : ''))
}

/** @param {string} key @param {string} value @param {URLSearchParams} query */
export function setQuery(key, value, query) {
  const q = new URLSearchParams(query)
  if (value) q.set(key, value)
  else q.delete(key)
  replaceQuery(q)
}

/** @param {{ query: URLSearchParams }} p */
export function Fleet({ query }) {
  const state = useResource('/v1/nodes')
  const text = query.get('q') || '', only = query.get('state') || ''
  const all = /** @type {any[]} */ (state.data?.items || [])
  const found = useMemo(() => all.filter(n => matches(n, text)).sort((a, b) =>
    rackOf(a).localeCompare(rackOf(b)) || a.name.localeCompare(b.name, 'en', { numeric: true })), [all, text])
  const shown = only ? found.filter(n => n.state === only) : found
  const racks = useMemo(() => {
    /** @type {Map<string, any[]>} */
    const by = new Map()
    for (const n of found) by.set(rackOf(n), [...by.get(rackOf(n)) || [], n])
    return [...by]
  }, [found])
  const counts = nodeStates.map(s => [s, found.filter(n => n.state === s).length]).filter(([, n]) => n)
  return html`<${Heading}>Fleet<//>
    <${Loaded} state=${state} empty="No node has joined this cluster yet.">
      <div class="tools"><${Filter} value=${text} hint="name, word or rack=r1" onChange=${(/** @type {string} */ v) => setQuery('q', v, query)} />
        <div class="states" role="group" aria-label="States">${counts.map(([s, n]) => html`<button type="button" aria-pressed=${only === s}
          onClick=${() => setQuery('state', only === s ? '' : String(s), query)}><${Mark} kind="node" state=${s} /> ${n}</button>`)}</div></div>
      ${found.length <= 600 && racks.length > 0 && html`<div class="map" aria-hidden="true">${racks.map(([rack, nodes]) => html`<div class="rack" key=${rack}>
        <span class="dim">${rack || 'no rack'}</span><div>${nodes.map(n => html`<a tabindex="-1" class=${only && n.state !== only ? 'off' : ''} key=${n.id}
        href=${linkTo('node/' + n.name)} title="${n.name}: ${n.state}, ${count(n.instances, 'instance')}"><${Mark} kind="node" state=${n.state} bare /></a>`)}</div></div>`)}</div>`}
      <p class="dim small">${shown.length === all.length ? count(all.length, 'node') : `${shown.length.toLocaleString('en')} of ${count(all.length, 'node')}`}.
        Bars show what is allocated to instances, not what they use.</p>
      ${shown.length === 0 ? html`<p class="empty">No node matches. <button type="button" onClick=${() => replaceQuery(new URLSearchParams())}>Show all</button></p>`
        : html`<${Table} caption="Nodes" rows=${shown} id=${(/** @type {any} */ n) => n.id} columns=${columns} />`}
    <//>`
}

/** @type {{ head: string, cell: (n: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const columns = [
  { head: 'node', cell: n => html`<a href=${linkTo('node/' + n.name)}>${n.name}</a>` },
  { head: 'state', cell: n => html`<${Mark} kind="node" state=${n.state} />${n.drain_phase === 'drained' ? html` <span class="dim">empty</span>` : ''}${
    n.warnings.length > 0 ? html` <span class="dim">${count(n.warnings.length, 'warning')}</span>` : ''}` },
  { head: 'instances', num: true, cell: n => n.instances },
  { head: 'memory allocated', rank: 2, cell: n => html`<${Bar} load part=${n.allocated.memory_bytes} whole=${n.capacity.memory_bytes - n.reserved.memory_bytes}
    text=${`${bytes(n.allocated.memory_bytes)} of ${bytes(n.capacity.memory_bytes - n.reserved.memory_bytes)}`} />` },
  { head: 'CPU shares', rank: 3, cell: n => html`<${Bar} load part=${n.allocated.cpu} whole=${n.capacity.cpu - n.reserved.cpu}
    text=${`${n.allocated.cpu} of ${n.capacity.cpu - n.reserved.cpu}`} />` },
  { head: 'rack', rank: 2, cell: n => rackOf(n) || html`<span class="dim">none</span>` },
  { head: 'address', rank: 3, cell: n => html`<span class="mono">${n.address}</span>` },
]
