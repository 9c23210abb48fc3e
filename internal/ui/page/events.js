// What happened: a table of events, under a map of how many there were when.
import { html, useState } from './lib.js'
import { useNames, useResource } from './store.js'
import { count, number, stamp, words } from './format.js'
import { Command, Filter, Heading, Loaded, Subject } from './parts.js'
import { Grid } from './grid.js'
import { setQuery } from './fleet.js'

const STEPS = [300, 1000, 3000, 10000] // how many events are read at first, and then on request
const BARS = 60

/** @param {any} e */
function change(e) {
  const { before, after, ...rest } = e.data
  const text =
    e.type === 'drain.phase_changed' && rest.paused
      ? rest.paused === 'true'
        ? 'paused'
        : 'resumed'
      : after === undefined
        ? rest.text || rest.instances || ''
        : before
          ? `${before} → ${after || 'nothing'}`
          : after
  return {
    text,
    rest: Object.entries(rest)
      .map(([k, v]) => `${k} ${v}`)
      .sort()
      .join(' · '),
  }
}

/** @type {[RegExp, string][]} kinds of events, by the shape of their part of a bar */
const kinds = [
  [/failed|lost|offline|unreachable|not_ready/, 'bad'],
  [/^(drain|node|hold|leader)\./, 'move'],
  [/./, 'rest'],
]
const kindOf = (/** @type {any} */ e) =>
  kinds.find(([r], i) => r.test(i === 0 ? `${e.type} ${e.data.after || ''}` : e.type))?.[1] || 'rest'

/**
 * How many events there were in each of BARS equal spans.
 * @param {any[]} all the newest first
 */
export function rates(all) {
  if (all.length === 0) return { from: 0, step: 1, bars: [] }
  const from = Date.parse(all[all.length - 1].time),
    step = Math.max(1000, Math.ceil((Date.parse(all[0].time) - from + 1) / BARS))
  const bars = Array.from({ length: BARS }, () => ({ bad: 0, move: 0, rest: 0, n: 0 }))
  for (const e of all) {
    const b = bars[Math.min(BARS - 1, Math.floor((Date.parse(e.time) - from) / step))]
    b[/** @type {'bad'} */ (kindOf(e))]++
    b.n++
  }
  return { from, step, bars }
}

/**
 * @param {{ all: any[], at: number, onPick: (time: number, until: number) => void }} p at: the beginning of the chosen
 * span; 0: none
 */
function Rates({ all, at, onPick }) {
  const { from, step, bars } = rates(all),
    most = Math.max(...bars.map(b => b.n), 1)
  const time = (/** @type {number} */ i) => new Date(from + i * step).toISOString()
  return html`<div
      class="rates"
      role="group"
      aria-label="How many events there were when; each button shows those of its time"
    >
      ${bars.map(
        (b, i) =>
          html`<button
            type="button"
            disabled=${b.n === 0}
            aria-pressed=${at > 0 && Math.abs(at - (from + i * step)) < step}
            aria-label="${count(b.n, 'event')} from ${stamp(time(i))}"
            title="${count(b.n, 'event')} from ${stamp(time(i))}"
            onClick=${() => onPick(from + i * step, from + (i + 1) * step)}
          >
            ${['bad', 'move', 'rest'].map(
              k =>
                b[/** @type {'bad'} */ (k)] > 0 &&
                html`<i
                  class=${k}
                  style=${{ height: `${Math.max(2, (b[/** @type {'bad'} */ (k)] / most) * 44)}px` }}
                ></i>`,
            )}
          </button>`,
      )}
    </div>
    <p class="scale dim small">
      <span>${stamp(time(0))}</span
      ><span
        ><i class="bad"></i> failures <i class="move"></i> nodes, drains, leaders <i class="rest"></i> others; the
        longest bar has ${most}</span
      ><span>${stamp(all[0].time)}</span>
    </p>`
}

/** @param {{ query: URLSearchParams }} p */
export function Events({ query }) {
  const [tail, setTail] = useState(STEPS[0]),
    [span, setSpan] = useState(/** @type {[number, number] | null} */ (null))
  const state = useResource('/v1/events', { tail: String(tail), follow: 'false' }, { lines: true, grows: tail * 2 })
  const names = useNames()
  const text = query.get('q') || ''
  const all = /** @type {any[]} */ (state.data || [])
    .map(e => ({
      ...e,
      subject: e.subject.startsWith('node/')
        ? 'node/' + (names.get(e.subject.slice(5)) || e.subject.slice(5))
        : e.subject,
    }))
    .reverse()
  const matching = all.filter(e =>
    text
      .toLowerCase()
      .split(/\s+/)
      .every(w =>
        `${e.type} ${e.subject} ${e.cause} ${e.actor} ${Object.values(e.data).join(' ')}`.toLowerCase().includes(w),
      ),
  )
  const timed = matching.filter(e => !isNaN(Date.parse(e.time)))
  const found = span
    ? matching.filter(e => {
        const t = Date.parse(e.time)
        return t >= span[0] && t < span[1]
      })
    : matching
  const next = STEPS.find(n => n > tail)
  return html`<${Heading}>Events<//>
    <div class="tools">
      <${Filter}
        value=${text}
        hint="type, object, cause or person"
        onChange=${(/** @type {string} */ v) => setQuery('q', v, query)}
      />
      ${span && html`<button type="button" onClick=${() => setSpan(null)}>All times</button>`}
    </div>
    <${Loaded} state=${state}>
      ${timed.length > 0 &&
      html`<${Rates}
        all=${timed}
        at=${span ? span[0] : 0}
        onPick=${(/** @type {number} */ a, /** @type {number} */ b) => setSpan(span && span[0] === a ? null : [a, b])}
      />`}
      ${all.length > 0 &&
      html`<p class="dim small">
        ${found.length === all.length
          ? `The newest ${count(all.length, 'event')}`
          : `${found.length} of the newest ${count(all.length, 'event')}`},
        the newest first.
      </p>`}
      ${found.length === 0
        ? html`<p class="empty">${all.length ? 'No event matches.' : 'No event is kept.'}</p>`
        : html`<div class="dense">
            <${Grid} caption="Events" rows=${found} id=${(/** @type {any} */ e) => e.id} columns=${columns} />
          </div>`}
      ${next && all.length >= tail
        ? html`<p>
            <button
              type="button"
              onClick=${() => {
                setTail(next)
                setSpan(null)
              }}
            >
              Load up to ${number(next)} events
            </button>
          </p>`
        : all.length > 0 &&
          html`<p class="dim small">${all.length < tail ? 'No others are kept.' : 'The page shows no older ones.'}</p>`}
    <//>
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan events --follow" /></p>
    </section>`
}

/** @type {import('./grid.js').Column<any>[]} */
const columns = [
  { head: 'time', size: 110, cell: e => html`<time class="num" datetime=${e.time}>${stamp(e.time)}</time>` },
  { head: 'event', size: 180, by: e => e.type, cell: e => words(e.type.replace('.', ' ')) },
  {
    head: 'object',
    size: 200,
    by: e => e.subject,
    cell: e => html`<span class="mono"><${Subject} subject=${e.subject} name=${short(e.subject)} /></span>`,
  },
  { head: 'change', size: 320, cell: e => html`<span title=${change(e).rest}>${change(e).text}</span>` },
  { head: 'cause', size: 160, rank: 3, maybe: true, by: e => e.cause, cell: e => words(e.cause) },
  { head: 'by', size: 150, rank: 2, by: e => e.actor, cell: e => e.actor },
]

/** @param {string} subject ids are long: their ends tell them apart */
const short = subject => subject.replace(/\/([0-9A-Z]{26})\b/g, (_, id) => ' …' + id.slice(-8)).replace('/', ' ')
