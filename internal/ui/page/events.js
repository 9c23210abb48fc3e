// The newest events.
import { html } from './lib.js'
import { useNames, useResource } from './store.js'
import { count, stamp, words } from './format.js'
import { Filter, Heading, Loaded, Subject, Table } from './parts.js'
import { setQuery } from './fleet.js'

const TAIL = 300

/** @param {any} e */
function change(e) {
  const { before, after, ...rest } = e.data
  const text = after === undefined ? rest.text || rest.instances || '' : before ? `${before} → ${after || 'nothing'}` : after
  return { text, rest: Object.entries(rest).map(([k, v]) => `${k} ${v}`).sort().join(' · ') }
}

/** @param {{ query: URLSearchParams }} p */
export function Events({ query }) {
  const state = useResource('/v1/events', { tail: String(TAIL), follow: 'false' }, { lines: true })
  const names = useNames()
  const text = query.get('q') || ''
  const all = /** @type {any[]} */ (state.data || []).map(e => ({ ...e, subject: e.subject.startsWith('node/') ? 'node/' + (names.get(e.subject.slice(5)) || e.subject.slice(5)) : e.subject })).reverse()
  const found = all.filter(e => text.toLowerCase().split(/\s+/).every(w =>
    `${e.type} ${e.subject} ${e.cause} ${e.actor} ${Object.values(e.data).join(' ')}`.toLowerCase().includes(w)))
  return html`<${Heading}>Events<//>
    <div class="tools"><${Filter} value=${text} hint="type, object, cause or person" onChange=${(/** @type {string} */ v) => setQuery('q', v, query)} /></div>
    <${Loaded} state=${state}>
      <p class="dim small">${found.length === all.length ? `The newest ${count(all.length, 'event')}` : `${found.length} of the newest ${count(all.length, 'event')}`}, the newest first.</p>
      ${found.length === 0 ? html`<p class="empty">No event matches.</p>` : html`<${Table} caption="Events" rows=${found} id=${(/** @type {any} */ e) => e.id} columns=${columns} />`}
    <//>`
}

/** @type {{ head: string, cell: (e: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const columns = [
  { head: 'time', cell: e => html`<time class="num" datetime=${e.time}>${stamp(e.time)}</time>` },
  { head: 'event', cell: e => words(e.type.replace('.', ' ')) },
  { head: 'object', cell: e => html`<span class="mono"><${Subject} subject=${e.subject} name=${short(e.subject)} /></span>` },
  { head: 'change', cell: e => html`<span title=${change(e).rest}>${change(e).text}</span>` },
  { head: 'cause', rank: 3, maybe: true, cell: e => words(e.cause) },
  { head: 'by', rank: 2, cell: e => e.actor },
]

/** @param {string} subject ids are long: their ends tell them apart */
const short = subject => subject.replace(/\/([0-9A-Z]{26})\b/g, (_, id) => ' …' + id.slice(-8)).replace('/', ' ')
