// Plots of the figures that each server keeps of the last day.
import { html, signal, useEffect, useMemo, useRef, useState } from './lib.js'
import uPlot from './vendor/uplot.js'
import { may, useResource } from './store.js'
import { bytes, number, stamp } from './format.js'
import { Failure, Table } from './parts.js'

/** How much time the plots show. */
const span = signal('1h')
const spans = [
  ['15m', '15 min'],
  ['1h', '1 h'],
  ['6h', '6 h'],
  ['24h', '24 h'],
]
const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]]
const HEIGHT = 152
/** The steps of an axis, by its unit. @type {Record<string, number[]>} */
const steps = {
  bytes: Array.from({ length: 50 }, (_, i) => 2 ** i),
  '': Array.from({ length: 30 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3)),
}

/** @typedef {import('./charts.js').Line} Line */
/** @typedef {import('./charts.js').Chart} Chart */

/** @param {number | null | undefined} v @param {string} unit */
export function figure(v, unit) {
  if (v === null || v === undefined) return 'not known'
  switch (unit) {
    case 'bytes':
      return bytes(Math.round(v))
    case 'shares':
      return `${number(Number((v / 1000).toFixed(v < 10000 ? 2 : 1)))} cores`
    case 'seconds':
      return v < 1 ? `${(v * 1000).toFixed(v < 0.01 ? 2 : 0)} ms` : `${v.toFixed(v < 10 ? 1 : 0)} s`
    case 'per_second':
      return `${v.toFixed(v < 10 ? 1 : 0)}/s`
  }
  return Number.isInteger(v) ? number(v) : v.toFixed(1)
}

/**
 * Plots of one object, with their choice of time.
 * @param {{ charts: Chart[], query?: Record<string, string>, heading?: string, note?: any }} p
 */
export function Plots({ charts, query = {}, heading = 'The last hours', note }) {
  const seen = charts.filter(c => may(c.verb))
  if (seen.length === 0) return null
  return html`<section class="plotted">
    <div class="plotbar">
      <h2>${heading}</h2>
      <div class="states" role="group" aria-label="Time shown">
        ${spans.map(
          ([v, text]) =>
            html`<button
              type="button"
              aria-pressed=${span.value === v}
              onClick=${() => {
                span.value = v
              }}
            >
              ${text}
            </button>`,
        )}
      </div>
    </div>
    ${note && html`<p class="dim small">${note}</p>`}<${Shown} charts=${seen} query=${query} />
  </section>`
}

/** @param {{ charts: Chart[], query: Record<string, string> }} p */
function Shown({ charts, query }) {
  const names = charts.flatMap(c => c.lines.map(l => l.name)).join(',')
  const from = query.node && span.value === '24h' ? '12h' : span.value // what is kept of a node
  const state = useResource('/v1/series', { ...query, names, from }, { slow: true })
  const d = state.data
  if (!d) {
    if (!state.error) return html`<p class="dim">Asking the servers …</p>`
    return state.error.status === 403
      ? html`<p class="dim">${state.error.message}. ${state.error.hint}</p>`
      : html`<${Failure} error=${state.error} />`
  }
  if (d.note) return html`<p class="dim">${d.note}</p>`
  if (state.error) return html`<${Failure} error=${state.error} /><${Grid} charts=${charts} of=${d} />`
  return html`<${Grid} charts=${charts} of=${d} />`
}

/** @param {{ charts: Chart[], of: any }} p */
const Grid = ({ charts, of }) =>
  html`<div class="plots">${charts.map(c => html`<${Plot} key=${c.title} chart=${c} of=${of} />`)}</div>`

/** @param {string} text a duration of the API, such as 1m30s @returns {number} ms */
function ms(text) {
  const units = /** @type {Record<string, number>} */ ({ d: 86400000, h: 3600000, m: 60000, s: 1000, ms: 1 })
  return [...text.matchAll(/([\d.]+)(ms|[dhms])/g)].reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0)
}

/** @param {{ chart: Chart, of: any }} p of: an answer of /v1/series */
function Plot({ chart, of }) {
  const [at, setAt] = useState(/** @type {number | null} */ (null))
  const [open, setOpen] = useState(false)
  const column = (/** @type {string} */ name) => of.items.find((/** @type {any} */ c) => c.name === name)
  const lines = chart.lines.filter(
    l => column(l.name) && (!l.maybe || column(l.name).values.some((/** @type {number | null} */ v) => v)),
  )
  const begin = Date.parse(of.from) || 0,
    step = ms(of.step) || 1000
  const data = useMemo(
    () => [
      Array.from({ length: of.length }, (_, i) => (begin + i * step) / 1000),
      ...lines.map(l => column(l.name).values),
    ],
    [of],
  )
  const unit = column(chart.lines[0].name)?.unit || ''
  const known = (/** @type {number} */ i) => lines.some((_, l) => data[l + 1][i] !== null)
  let newest = of.length - 1
  while (newest > 0 && !known(newest)) newest--
  const any = known(newest)
  let gaps = 0
  for (let i = 0; i < newest; i++) if (!known(i)) gaps++
  const i = at === null ? newest : Math.min(at, of.length - 1)
  const time = stamp(new Date(begin + i * step).toISOString())
  const words = `${time}: ${lines.map((l, n) => `${l.text} ${figure(data[n + 1][i], unit)}`).join(', ')}`
  /** @param {KeyboardEvent} e */
  const key = e => {
    /** @type {Record<string, number>} */
    const to = { ArrowLeft: i - 1, ArrowRight: i + 1, PageUp: i - 10, PageDown: i + 10, Home: 0, End: newest }
    if (!(e.key in to)) {
      if (e.key === 'Escape') setAt(null)
      return
    }
    e.preventDefault()
    setAt(Math.max(0, Math.min(newest, to[e.key])))
  }
  return html`<figure class="plot">
    <figcaption>
      <span>${chart.title}</span><span class="dim">${any ? (at === null ? `newest, ${time}` : time) : ''}</span>
    </figcaption>
    ${any
      ? html`<div
          class="canvas"
          role="slider"
          tabindex="0"
          aria-label="${chart.title} over time"
          aria-valuemin="0"
          aria-valuemax=${newest}
          aria-valuenow=${i}
          aria-valuetext=${words}
          onKeyDown=${key}
          onBlur=${() => setAt(null)}
        >
          <${Canvas} data=${data} unit=${unit} marks=${of.marks} at=${at} onAt=${setAt} newest=${newest} />
        </div>`
      : html`<p class="empty">No samples yet, or nothing was known then. A server takes one each ${of.step}.</p>`}
    <ul class="legend">
      ${lines.map(
        (l, n) =>
          html`<li>
            <svg class="l-p${n}" width="24" height="8" aria-hidden="true">
              <line
                x1="0"
                x2="24"
                y1="4"
                y2="4"
                stroke="currentColor"
                stroke-width="2"
                stroke-dasharray=${dashes[n].join(' ')}
              /></svg
            >${l.text} <strong class="num">${figure(data[n + 1][i], unit)}</strong>
          </li>`,
      )}
      ${gaps > 0 && html`<li><span class="gap" aria-hidden="true"></span><span class="dim">not known</span></li>`}
      ${any &&
      of.marks.length > 0 &&
      html`<li class="dim">
        ▾${' '}
        ${of.marks.length === 1
          ? `${of.marks[0].server} elected ${stamp(of.marks[0].time)}`
          : `${of.marks.length} elections`}
      </li>`}
    </ul>
    ${any &&
    html`<details onToggle=${(/** @type {any} */ e) => setOpen(e.target.open)}>
      <summary>As a table</summary>
      ${open &&
      html`<${Rows} data=${data} lines=${lines} unit=${unit} of=${of} newest=${newest} title=${chart.title} />`}
    </details>`}
  </figure>`
}

/** @param {{ data: any[], lines: Line[], unit: string, of: any, newest: number, title: string }} p */
function Rows({ data, lines, unit, of, newest, title }) {
  const marks = of.marks.map((/** @type {any} */ m) => `${m.server} leads since ${stamp(m.time)} (term ${m.term})`)
  const rows = Array.from({ length: newest + 1 }, (_, n) => newest - n)
  return html`${marks.length > 0 && html`<p>${marks.join('; ')}.</p>`}<${Table}
      caption="${title} over time"
      rows=${rows}
      id=${(/** @type {number} */ i) => String(data[0][i])}
      columns=${[
        { head: 'from', cell: (/** @type {number} */ i) => stamp(new Date(data[0][i] * 1000).toISOString()) },
        ...lines.map((l, n) => ({
          head: l.text,
          num: true,
          cell: (/** @type {number} */ i) => figure(data[n + 1][i], unit),
        })),
      ]}
    />`
}

const css = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()

/**
 * Draws the lines. It is drawn anew when the width, the colours or the number of lines change.
 * @param {{ data: any[], unit: string, marks: any[], at: number | null, onAt: (at: number | null) => void,
 *   newest: number }} p
 */
function Canvas({ data, unit, marks, at, onAt, newest }) {
  const into = useRef(/** @type {HTMLElement | null} */ (null)),
    plot = useRef(/** @type {uPlot | null} */ (null))
  const latest = useRef({ marks, newest })
  const moving = useRef(false) // the cursor is set by the keyboard, not by the pointer
  latest.current = { marks, newest }
  const [theme, setTheme] = useState(0)
  useEffect(() => {
    const dark = matchMedia('(prefers-color-scheme: dark)'),
      forced = matchMedia('(forced-colors: active)'),
      next = () => setTheme(n => n + 1)
    dark.addEventListener('change', next)
    forced.addEventListener('change', next)
    return () => {
      dark.removeEventListener('change', next)
      forced.removeEventListener('change', next)
    }
  }, [])
  useEffect(() => {
    const box = /** @type {HTMLElement} */ (into.current),
      width = () => Math.max(120, box.clientWidth)
    const axis = {
      stroke: css('--dim'),
      font: '12px system-ui, sans-serif',
      grid: { stroke: css('--line'), width: 1 },
      ticks: { stroke: css('--line'), width: 1, size: 4 },
    }
    const u = (plot.current = new uPlot(
      {
        width: width(),
        height: HEIGHT,
        legend: { show: false },
        padding: [12, 20, 0, 0],
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
        scales: {
          x: { time: true },
          y: {
            range: (/** @type {any} */ _, /** @type {number} */ low, /** @type {number} */ high) => [
              Math.min(0, low || 0),
              (high || 0) > 0 ? high * 1.1 : unit === 'shares' ? 1000 : 1,
            ],
          },
        },
        axes: [
          {
            ...axis,
            size: 28,
            values: (/** @type {any} */ _, /** @type {number[]} */ all) =>
              all.map(t => new Date(t * 1000).toTimeString().slice(0, 5)),
          },
          {
            ...axis,
            size: 72,
            space: 32,
            ...(steps[unit] && { incrs: steps[unit] }),
            values: (/** @type {any} */ _, /** @type {number[]} */ all) => all.map(v => tick(v, unit)),
          },
        ],
        series: [
          {},
          ...data.slice(1).map((_, n) => ({
            stroke: css('--p' + n),
            width: 1.75,
            dash: dashes[n],
            spanGaps: false,
            points: { show: false, filter: alone },
          })),
        ],
        hooks: {
          drawClear: [(/** @type {uPlot} */ p) => gapsOf(p, latest.current.newest)],
          draw: [(/** @type {uPlot} */ p) => marksOf(p, latest.current.marks)],
          setCursor: [
            (/** @type {uPlot} */ p) => {
              if (!moving.current) onAt(p.cursor.left < 0 ? null : p.cursor.idx)
            },
          ],
        },
      },
      data,
      box,
    ))
    const grown = new ResizeObserver(() => {
      if (box.clientWidth > 0) u.setSize({ width: width(), height: HEIGHT })
    })
    grown.observe(box)
    return () => {
      grown.disconnect()
      plot.current = null
      u.destroy()
    }
  }, [theme, data.length, unit])
  useEffect(() => {
    plot.current?.setData(data)
  }, [data])
  useEffect(() => {
    const p = plot.current
    if (!p || (p.cursor.idx === at && at !== null)) return
    moving.current = true
    p.setCursor(at === null ? { left: -10, top: -10 } : { left: p.valToPos(data[0][at], 'x'), top: 0 })
    moving.current = false
  }, [at])
  return html`<div ref=${into}></div>`
}

/** @param {number} v @param {string} unit a number for an axis; one of cores has them in its legend */
function tick(v, unit) {
  return v === 0 ? '0' : figure(v, unit).replace(' cores', '')
}

/** The values that no line reaches, since those beside them are not known. @param {uPlot} p @param {number} series */
const alone = (p, series) => {
  const all = p.data[series],
    is = (/** @type {number} */ i) => (all[i] ?? null) !== null
  return all.map((_, i) => i).filter(i => is(i) && !is(i - 1) && !is(i + 1))
}

/** Shades the time of which nothing is known. @param {uPlot} p @param {number} newest */
function gapsOf(p, newest) {
  const [times, ...lines] = p.data,
    step = times.length > 1 ? Number(times[1]) - Number(times[0]) : 0
  p.ctx.save()
  p.ctx.fillStyle = css('--gap')
  for (let i = 0; i <= newest; i++) {
    if (lines.some(l => l[i] !== null)) continue
    let end = i
    while (end < newest && lines.every(l => l[end] === null)) end++
    const from = p.valToPos(Number(times[i]) - (i > 0 ? step : 0), 'x', true),
      to = p.valToPos(Number(times[end]), 'x', true)
    p.ctx.fillRect(Math.max(from, p.bbox.left), p.bbox.top, to - Math.max(from, p.bbox.left), p.bbox.height)
    i = end
  }
  p.ctx.restore()
}

/** Draws the elections. @param {uPlot} p @param {any[]} marks */
function marksOf(p, marks) {
  p.ctx.save()
  p.ctx.strokeStyle = p.ctx.fillStyle = css('--dim')
  p.ctx.lineWidth = devicePixelRatio
  p.ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio])
  for (const m of marks) {
    const x = Math.round(p.valToPos(Date.parse(m.time) / 1000, 'x', true)),
      size = 4 * devicePixelRatio
    if (x < p.bbox.left || x > p.bbox.left + p.bbox.width) continue
    p.ctx.beginPath()
    p.ctx.moveTo(x, p.bbox.top)
    p.ctx.lineTo(x, p.bbox.top + p.bbox.height)
    p.ctx.stroke()
    p.ctx.beginPath()
    p.ctx.moveTo(x - size, p.bbox.top - 2 * size)
    p.ctx.lineTo(x + size, p.bbox.top - 2 * size)
    p.ctx.lineTo(x, p.bbox.top)
    p.ctx.fill()
  }
  p.ctx.restore()
}
