// Lanes: one for each instance of a drain, on a shared time axis. The upper bar is the instance that leaves, the lower
// one its replacement.
import { html, useState } from './lib.js'
import { count, duration, goesOn, linkTo, span, words } from './format.js'

/**
 * @typedef {object} Lane
 * @property {string} instance @property {string} group @property {number} slot -1: not known @property {string} state
 * @property {boolean} acked @property {string} replacement @property {string} target @property {string} pulling
 * @property {string | null} reserved_at @property {string | null} started_at @property {string | null} ready_at
 * @property {string | null} stopping_at @property {string | null} stopped_at
 * @property {string} node
 */

/**
 * Times in ms since 1970; over: the drain has ended.
 * @typedef {{ from: number, to: number, begun: boolean, over: boolean }} Axis
 */

/** The forecasts of the drains that this tab started, by their ids. @type {Map<string, any[]>} */
export const forecasts = new Map()

/** @param {any} f what is forecast for an instance @returns {boolean} whether it is not expected to go */
const stays = f => f.action === 'leave' || f.action === 'wait' || f.never

/** @param {string} id of a drain that this tab started: when instances are expected to be gone, in ms from its begin */
export const goneBy = id => {
  const all = forecasts.get(id)
  return all && new Map(all.filter(f => !stays(f)).map(f => [f.instance, msOf(f.after)]))
}

/** @param {string | null | undefined} time */
const ms = time => (time ? Date.parse(time) : 0)

/** @param {string} text a duration of the API; 0 if it is not known */
export function msOf(text) {
  const units = /** @type {Record<string, number>} */ ({ d: 86400000, h: 3600000, m: 60000, s: 1000, ms: 1 })
  let sum = 0
  for (const [, n, unit] of text.matchAll(/([\d.]+)(ms|[dhms])/g)) sum += Number(n) * units[unit]
  return sum
}

/**
 * What happens to an instance, in words.
 * @param {Lane} l
 * @param {string} blocker its code, or ''
 * @param {Axis} axis
 */
export function wordsOf(l, blocker, axis) {
  const on = l.target ? ` on ${l.target}` : ''
  const took = span(Math.max(ms(l.stopped_at), ms(l.ready_at)) - (ms(l.reserved_at) || ms(l.stopping_at)))
  if (l.stopped_at) {
    if (l.ready_at) return `moved to ${l.target} in ${took}`
    return l.replacement
      ? `stopped, ${l.started_at ? 'starts' : 'placed'}${on}`
      : l.pulling
        ? `stopped, ${l.target} pulls its image`
        : 'stopped, not replaced'
  }
  if (l.stopping_at) return l.ready_at ? `ready${on}, the old one stops` : 'stops'
  if (l.acked) return 'stays, as acknowledged'
  if (axis.over) return 'still here' // a replacement that had begun is given up
  if (l.ready_at) return `ready${on}${blocker ? ', ' + words(blocker) : ''}`
  if (l.started_at) return `starts${on}`
  if (l.pulling) return `${l.target} pulls its image`
  if (l.reserved_at) return `placed${on}`
  if (blocker && goesOn({ code: blocker })) return words(blocker)
  return blocker ? 'waits: ' + words(blocker) : axis.begun ? 'waits' : "waits for its node's turn"
}

/**
 * The bars of a lane: whose, how far, and from when to when.
 * @param {Lane} l
 * @param {Axis} axis
 * @returns {{ row: string, kind: string, from: number, to: number, title: string }[]}
 */
function barsOf(l, axis) {
  const end = axis.to,
    bars = /** @type {{ row: string, kind: string, from: number, to: number, title: string }[]} */ ([])
  const add = (
    /** @type {string} */ row,
    /** @type {string} */ kind,
    /** @type {number} */ from,
    /** @type {number} */ to,
    /** @type {string} */ title,
  ) => {
    if (from && to >= from) bars.push({ row, kind, from, to, title })
  }
  const stops = ms(l.stopping_at),
    gone = ms(l.stopped_at)
  add('old', 'runs', axis.from, stops || gone || end, `${l.instance} runs on ${l.node}`)
  add('old', 'stops', stops, gone || end, `${l.instance} stops`)
  const placed = ms(l.reserved_at),
    starts = ms(l.started_at),
    ready = ms(l.ready_at)
  add(
    'new',
    l.pulling ? 'pulls' : 'placed',
    placed,
    starts || ready || end,
    l.pulling ? `${l.target} pulls ${l.pulling}` : `${l.replacement} has its room on ${l.target}`,
  )
  add('new', 'starts', starts, ready || end, `${l.replacement} starts on ${l.target}`)
  add('new', 'ready', ready, end, `${l.replacement} is ready on ${l.target}`)
  return bars
}

/** @param {Axis} axis @returns {number[]} times that get a mark, in ms from the beginning */
function ticksOf(axis) {
  const all = axis.to - axis.from
  const step =
    [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800].find(
      s => all / s / 1000 <= 5,
    ) || 2592000
  const ticks = []
  for (let t = 0; t <= all - step * 700; t += step * 1000) ticks.push(t) // the last one must not be cut off
  return ticks.length ? ticks : [0]
}

/** @param {number} part @param {number} whole */
const percent = (part, whole) => `${Math.round(Math.max(0, Math.min(1, part / (whole || 1))) * 10000) / 100}%`

/**
 * The lanes of one node.
 * @param {{ caption: string, lanes: Lane[], axis: Axis, blockers?: Map<string, string>, plan?: Map<string, number>,
 *   say?: (l: Lane) => string }} p blockers: codes by instance; plan: when each instance is expected to be gone, in ms
 * from the beginning; say: what happens, where that is no past
 */
export function Lanes({ caption, lanes, axis, blockers, plan, say }) {
  const [most, setMost] = useState(200)
  const whole = axis.to - axis.from
  return html`<div class="lanes" role="table" aria-label=${caption}>
      <div class="lane head" role="row">
        <span role="columnheader">instance</span
        ><span role="columnheader" class="track axis"
          >${ticksOf(axis).map(
            t => html`<i key=${t} style=${{ left: percent(t, whole) }}>${t === 0 ? 'begin' : '+' + span(t)}</i>`,
          )}</span
        ><span role="columnheader" class="how">what happens</span>
      </div>
      ${lanes.slice(0, most).map(l => {
        const blocker = blockers?.get(l.instance) || '',
          due = plan?.get(l.instance)
        return html`<div
          class="lane ${blocker && !goesOn({ code: blocker }) ? 'waits' : ''}"
          role="row"
          key=${l.instance}
        >
          <span role="rowheader"
            ><a href=${linkTo('instance/' + ((l.stopped_at && l.replacement) || l.instance))} title=${l.instance}
              >${l.group}${l.slot < 0 ? '' : '/' + l.slot}</a
            ></span
          >
          <span role="cell" class="track"
            ><span aria-hidden="true"
              >${barsOf(l, axis).map(
                b =>
                  html`<b
                    class="${b.row} ${b.kind}"
                    title=${b.title}
                    style=${{ left: percent(b.from - axis.from, whole), width: percent(b.to - b.from, whole) }}
                  ></b>`,
              )}${due !== undefined &&
              due > 0 &&
              html`<b
                class="due"
                title=${`the forecast: gone after ${span(due)}`}
                style=${{ left: percent(due, whole) }}
              ></b>`}</span
            ></span
          >
          <span role="cell" class="how">${say ? say(l) : wordsOf(l, blocker, axis)}</span>
        </div>`
      })}
    </div>
    ${lanes.length > most &&
    html`<p>
      <button type="button" onClick=${() => setMost(most + 400)}>Show more of ${count(lanes.length, 'lane')}</button>
    </p>`}`
}

/** @param {{ planned?: boolean }} p planned: a forecast is drawn in it */
export const Legend = ({ planned }) =>
  html`<p class="legend small dim">
    <span>above, the old one:</span><span><b class="runs"></b>runs</span><span><b class="stops"></b>stops</span>
    <span>below, the new one:</span><span><b class="pulls"></b>pulls</span
    ><span><b class="placed"></b>has its room</span><span><b class="starts"></b>starts</span
    ><span><b class="ready"></b>ready</span>${planned && html`<span><b class="due"></b>gone by the forecast</span>`}
  </p>`

/**
 * Lanes of a forecast: nothing has begun.
 * @param {any[]} forecast
 * @param {number} from
 * @returns {{ lanes: Lane[], axis: Axis }}
 */
export function planned(forecast, from) {
  const known = forecast.map(f => msOf(f.after)),
    last = Math.max(10000, ...known)
  const time = (/** @type {number} */ t) => new Date(from + t).toISOString()
  const lanes = forecast.map(f => {
    const after = msOf(f.after),
      gone = stays(f) || !after ? null : time(after)
    return /** @type {Lane} */ ({
      node: f.node,
      instance: f.instance,
      group: f.group,
      slot: -1,
      state: 'ready',
      acked: false,
      replacement: '',
      target: f.target,
      pulling: '',
      reserved_at: null,
      started_at: null,
      ready_at: null,
      stopping_at: gone,
      stopped_at: gone,
    })
  })
  return {
    lanes,
    axis: { from, to: from + last * 1.15, begun: true, over: false },
  }
}

/** @param {any} f what is forecast for one instance, in words */
export function plannedWords(f) {
  const when = duration(f.after),
    after = when && ` after about ${when}`
  if (f.blocker) return `${f.never ? 'stays' : 'waits'}: ${words(f.blocker)}`
  switch (f.action) {
    case 'move':
      return `moves${f.target ? ` to ${f.target}` : ''}${after}`
    case 'stop_first':
      return `stops, then starts${f.target ? ` on ${f.target}` : ''}${after}`
    case 'stop':
      return `stops here${after}`
    case 'leave':
      return 'stays here'
  }
  return words(f.action)
}
