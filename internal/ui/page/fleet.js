// The fleet: all nodes, by rack.
import { html, useMemo } from './lib.js'
import { useResource } from './store.js'
import { compare, count, linkTo, nodeStates, number } from './format.js'
import { FleetMap, useMapped } from './map.js'
import { NodeList, rackOf } from './nodelist.js'
import { Command, Filter, Heading, Loaded, Mark } from './parts.js'
import { fleetCharts } from './charts.js'
import { Plots } from './plots.js'

/**
 * @param {any} n
 * @param {string} text words that all have to match; key=value matches a label or the state
 */
function matches(n, text) {
  return text
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every(word => {
      const [key, value] = word.split('=')
      if (value !== undefined)
        return String(key === 'state' ? n.state : (n.labels[key] ?? n.attributes[key] ?? '')).toLowerCase() === value
      return [n.name, n.state, n.address, n.reason, ...Object.values(n.labels)].some(v =>
        String(v).toLowerCase().includes(word),
      )
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
  const state = useResource('/v1/nodes'),
    mapped = useMapped()
  const text = query.get('q') || '',
    only = query.get('state') || ''
  const all = /** @type {any[]} */ (state.data?.items || [])
  const found = useMemo(
    () => all.filter(n => matches(n, text)).sort((a, b) => compare(rackOf(a), rackOf(b)) || compare(a.name, b.name)),
    [all, text],
  )
  const shown = useMemo(() => (only ? found.filter(n => n.state === only) : found), [found, only])
  const racks = useMemo(() => {
    /** @type {Map<string, any[]>} */
    const by = new Map()
    for (const n of found) by.set(rackOf(n), [...(by.get(rackOf(n)) || []), n])
    return [...by]
  }, [found])
  const counts = nodeStates.map(s => [s, found.filter(n => n.state === s).length]).filter(([, n]) => n)
  return html`<${Heading}>Fleet<//>
    ${(mapped || all.length > 0) &&
    html`<div class="tools">
      <${Filter}
        value=${text}
        hint="name, word or rack=r1"
        onChange=${(/** @type {string} */ v) => setQuery('q', v, query)}
      />
      <div class="states" role="group" aria-label="States">
        ${counts.map(
          ([s, n]) =>
            html`<button
              type="button"
              aria-pressed=${only === s}
              onClick=${() => setQuery('state', only === s ? '' : String(s), query)}
            >
              <${Mark} kind="node" state=${s} /> ${number(Number(n))}
            </button>`,
        )}
      </div>
    </div>`}
    ${mapped &&
    html`<${FleetMap}
      matches=${(/** @type {any} */ n) => matches(n, text) && (!only || n.state === only)}
      by=${text + ' ' + only}
    />`}
    <${Loaded}
      state=${state}
      empty=${html`No node has joined this cluster yet. For the line that adds one:${' '}
        <${Command} text="outspan token create --role agent" />`}
    >
      ${!mapped &&
      found.length <= 600 &&
      racks.length > 0 &&
      html`<div class="map" aria-hidden="true">
        ${racks.map(
          ([rack, nodes]) =>
            html`<div class="rack" key=${rack}>
              <span class="dim">${rack || 'no rack'}</span>
              <div>
                ${nodes.map(
                  n =>
                    html`<a
                      tabindex="-1"
                      class=${only && n.state !== only ? 'off' : ''}
                      key=${n.id}
                      href=${linkTo('node/' + n.name)}
                      title="${n.name}: ${n.state}, ${count(n.instances, 'instance')}"
                      ><${Mark} kind="node" state=${n.state} bare
                    /></a>`,
                )}
              </div>
            </div>`,
        )}
      </div>`}
      <p class="dim small">
        ${shown.length === all.length
          ? count(all.length, 'node')
          : `${number(shown.length)} of ${count(all.length, 'node')}`}.
        Bars show what is allocated to instances, not what they use.
      </p>
      ${shown.length === 0
        ? html`<p class="empty">
            No node matches.${' '}
            <button type="button" onClick=${() => replaceQuery(new URLSearchParams())}>Show all</button>
          </p>`
        : html`<${NodeList} rows=${shown} />`}
    <//>
    <${Plots} charts=${fleetCharts} />`
}
