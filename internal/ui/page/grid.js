// A grid of any number of rows. Only the rows near the visible ones are in the document, in chunks, whose heights are
// measured once they are drawn. It is one stop of the Tab key; inside, the arrow keys move.
import { html, useLayoutEffect, useMemo, useRef, useState } from './lib.js'
import { compare } from './format.js'

const CHUNK = 25 // rows
const ROW = 38 // px that a row is taken to need until some were drawn
const NEAR = 500 // px around the visible part that are drawn too
const WIDGETS = 'a[href], button, input, select, summary'

/**
 * @template T
 * @typedef {object} Column
 * @property {string} head
 * @property {(row: T) => any} cell
 * @property {(row: T) => string | number} [by] what the column is sorted by; absent: it can't be sorted
 * @property {number} [size] its share of the width; 120 by default
 * @property {number} [rank] 2: it is left out on a narrow screen in tables; 3: also on one of middle width, and in
 *   grids
 * @property {boolean} [num] the cells are numbers
 * @property {boolean} [maybe] it is left out if all its cells are empty
 */

/**
 * row -1: the head; nth: the widget in the cell
 * @typedef {{ row: number, id: string, col: number, nth: number }} Place
 */

/** @returns {string} the head of the column that the address sorts by, after "-" if descending */
const sorting = () => new URLSearchParams(location.hash.split('?')[1]).get('sort') || ''

/** @param {string} text */
function sortBy(text) {
  const [path, rest] = (location.hash || '#/fleet').split('?')
  const query = new URLSearchParams(rest)
  if (text) query.set('sort', text)
  else query.delete('sort')
  location.replace(path + (query.size ? '?' + query : ''))
}

/**
 * @template T
 * @param {T[]} rows
 * @param {Column<T>[]} columns
 * @param {string} sort
 */
function sorted(rows, columns, sort) {
  const down = sort.startsWith('-'),
    by = columns.find(c => c.head === sort.slice(down ? 1 : 0))?.by
  if (!by) return rows
  const keyed = rows.map(row => ({ row, key: by(row) }))
  keyed.sort((a, b) => (down ? compare(b.key, a.key) : compare(a.key, b.key)))
  return keyed.map(k => k.row)
}

/** @param {Element} cell @returns {HTMLElement[]} what can have the focus in a cell: its widgets, otherwise itself */
const stopsIn = cell => {
  const widgets = /** @type {HTMLElement[]} */ ([...cell.querySelectorAll(WIDGETS)])
  return widgets.length ? widgets : [/** @type {HTMLElement} */ (cell)]
}

/** @param {Element} tr @returns {HTMLElement[]} */
const stopsOf = tr => [...tr.children].filter(c => c.getClientRects().length > 0).flatMap(stopsIn)

/**
 * @template T
 * @param {{ caption: string, rows: T[], columns: Column<T>[], id: (row: T) => string }} p
 */
export function Grid({ caption, rows, columns: all, id }) {
  const box = useRef(/** @type {any} */ (null)),
    place = useRef(/** @type {Place} */ ({ row: 0, id: '', col: 0, nth: 0 }))
  const heights = useRef(/** @type {Map<number, number>} */ (new Map())),
    width = useRef(0)
  const wanted = useRef(false),
    inside = useRef(/** @type {HTMLElement | null} */ (null))
  const [seen, see] = useState([0, 1]),
    [, draw] = useState(0)
  const sort = sorting()
  const columns = all.filter(c => !c.maybe || rows.some(c.cell))
  const list = useMemo(() => sorted(rows, all, sort), [rows, sort])
  const chunks = Math.ceil(list.length / CHUNK)
  const sizeOf = (/** @type {number} */ c) => Math.min(CHUNK, list.length - c * CHUNK)

  const known = [...heights.current].filter(([c]) => c < chunks)
  const one = known.length ? known.reduce((s, [, h]) => s + h, 0) / known.reduce((s, [c]) => s + sizeOf(c), 0) : ROW
  const heightOf = (/** @type {number} */ c) => heights.current.get(c) ?? sizeOf(c) * one

  // Rows come and go: the place stays with its row.
  const here = place.current
  if (here.row >= 0 && list.length && (!list[here.row] || id(list[here.row]) !== here.id)) {
    const now = here.id ? list.findIndex(row => id(row) === here.id) : -1
    here.row = now >= 0 ? now : Math.min(here.row, list.length - 1)
    here.id = id(list[here.row])
  }
  const kept = Math.max(0, Math.floor(here.row / CHUNK))
  const drawn = [
    ...new Set([kept, ...Array.from({ length: Math.max(0, seen[1] - seen[0] + 1) }, (_, i) => seen[0] + i)]),
  ]
    .filter(c => c < chunks)
    .sort((a, b) => a - b)

  /** Finds out which chunks are near the visible part. */
  const look = () => {
    const top = box.current.scrollTop - NEAR,
      bottom = box.current.scrollTop + box.current.clientHeight + NEAR
    let first = 0,
      last = 0
    for (let c = 0, at = 0; c < chunks; c++) {
      const end = at + heightOf(c)
      if (end < top) first = c + 1
      if (at < bottom) last = c
      at = end
    }
    first = Math.min(first, last)
    if (first !== seen[0] || last !== seen[1]) see([first, last])
  }

  /** @param {number} row @returns {HTMLTableRowElement | null} */
  const trOf = row => box.current.querySelector(`tr[aria-rowindex="${row + 2}"]`)
  /** @param {Place} p @returns {HTMLElement | undefined} */
  const stopAt = p => {
    const tr = trOf(p.row),
      cell = tr?.children[p.col]
    if (!tr) return undefined
    if (!cell || cell.getClientRects().length === 0) return stopsOf(tr)[p.col ? stopsOf(tr).length - 1 : 0]
    const stops = stopsIn(cell)
    return stops[Math.min(p.nth, stops.length - 1)]
  }
  const focus = () => {
    const to = stopAt(here)
    if (!to) return
    wanted.current = false
    to.tabIndex = 0
    to.focus({ preventScroll: true })
    if (here.row >= 0) to.closest('tr')?.scrollIntoView({ block: 'nearest' })
    else box.current.scrollTop = 0
  }
  /** @param {number} row @param {HTMLElement} [stop] in this row; the same column without it */
  const move = (row, stop) => {
    here.row = Math.max(-1, Math.min(list.length - 1, row))
    here.id = here.row >= 0 ? id(list[here.row]) : ''
    if (stop) noteColumn(stop)
    wanted.current = true
    draw(n => n + 1)
  }
  /** @param {HTMLElement} stop */
  const noteColumn = stop => {
    const cell = /** @type {HTMLTableCellElement} */ (stop.closest('th, td'))
    here.col = cell.cellIndex
    here.nth = Math.max(0, stopsIn(cell).indexOf(stop))
  }

  useLayoutEffect(() => {
    if (width.current !== box.current.clientWidth) heights.current.clear()
    width.current = box.current.clientWidth
    for (const body of box.current.querySelectorAll('tbody[data-chunk]')) {
      heights.current.set(Number(body.dataset.chunk), body.getBoundingClientRect().height)
    }
    for (const tr of box.current.querySelectorAll('tr[role=row]'))
      for (const cell of tr.children) for (const stop of stopsIn(cell)) stop.tabIndex = -1
    const to = stopAt(here)
    if (to) to.tabIndex = 0
    if (wanted.current || (inside.current && !inside.current.isConnected)) focus()
    look()
  })
  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => draw(n => n + 1))
    watch.observe(box.current)
    return () => watch.disconnect()
  }, [])

  const onFocus = (/** @type {any} */ e) => {
    inside.current = e.target
    const tr = e.target.closest('tr[role=row]')
    if (!tr) return
    const row = Number(tr.getAttribute('aria-rowindex')) - 2
    if (row !== here.row) Object.assign(here, { row, id: row >= 0 ? id(list[row]) : '' })
    noteColumn(e.target)
    const before = box.current.querySelectorAll('[tabindex="0"]')
    for (const stop of before) stop.tabIndex = -1
    e.target.tabIndex = 0
  }
  // A row that goes takes the focus with it. That is told apart from a person who leaves.
  const onBlur = (/** @type {any} */ e) =>
    setTimeout(() => {
      if (inside.current === e.target && e.target.isConnected) inside.current = null
    })
  const onKey = (/** @type {any} */ e) => {
    const tr = e.target.closest('tr[role=row]')
    if (!tr || e.altKey || e.metaKey || e.shiftKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return
    const far = e.ctrlKey,
      page = Math.max(1, Math.floor(box.current.clientHeight / one) - 1)
    if (far && e.key !== 'Home' && e.key !== 'End') return
    const stops = stopsOf(tr),
      at = stops.indexOf(e.target)
    switch (e.key) {
      case 'ArrowDown':
        move(here.row + 1)
        break
      case 'ArrowUp':
        move(here.row - 1)
        break
      case 'PageDown':
        move(here.row + page)
        break
      case 'PageUp':
        move(Math.max(0, here.row - page))
        break
      case 'ArrowRight':
        move(here.row, stops[Math.min(stops.length - 1, at + 1)])
        break
      case 'ArrowLeft':
        move(here.row, stops[Math.max(0, at - 1)])
        break
      case 'Home':
        here.col = 0
        move(far ? 0 : here.row, far ? undefined : stops[0])
        break
      case 'End':
        here.col = columns.length - 1
        move(far ? list.length - 1 : here.row, far ? undefined : stops[stops.length - 1])
        break
      case 'Enter':
        if (e.target.matches(WIDGETS) || here.row < 0) return
        tr.querySelector('a[href]')?.click()
        break
      default:
        return
    }
    e.preventDefault()
  }

  const whole = columns.reduce((s, c) => s + (c.size || 120), 0)
  let at = 0 // the next chunk that is neither drawn nor a gap
  const gap = (/** @type {number} */ to) => {
    let px = 0
    for (; at < to; at++) px += heightOf(at)
    return (
      px > 0 &&
      html`<tbody key=${'gap' + to} aria-hidden="true" class="gap">
        <tr role="presentation">
          <td style=${{ height: `${px}px` }}></td>
        </tr>
      </tbody>`
    )
  }
  const head = (/** @type {Column<T>} */ c) => {
    const dir = sort === c.head ? 'ascending' : sort === '-' + c.head ? 'descending' : 'none'
    const first = c.num ? '-' + c.head : c.head,
      second = c.num ? c.head : '-' + c.head
    return html`<th scope="col" role="columnheader" class=${classOf(c)} aria-sort=${c.by ? dir : null}>
      ${c.by
        ? html`<button type="button" onClick=${() => sortBy(sort === first ? second : sort === second ? '' : first)}>
            ${c.head}<span class="dir" aria-hidden="true"
              >${dir === 'ascending' ? '↑' : dir === 'descending' ? '↓' : ''}</span
            >
          </button>`
        : c.head}
    </th>`
  }
  return html`<div class="grid" ref=${box} onScroll=${look}>
    <table
      role="grid"
      aria-label=${caption}
      aria-rowcount=${list.length + 1}
      onKeyDown=${onKey}
      onFocusIn=${onFocus}
      onFocusOut=${onBlur}
    >
      <colgroup>
        ${columns.map(c => html`<col class=${classOf(c)} style=${{ width: `${((c.size || 120) / whole) * 100}%` }} />`)}
      </colgroup>
      <thead role="rowgroup">
        <tr role="row" aria-rowindex="1">
          ${columns.map(head)}
        </tr>
      </thead>
      ${drawn.map(c => {
        const before = gap(c)
        at = c + 1
        return [
          before,
          html`<tbody role="rowgroup" key=${c} data-chunk=${c}>
            ${list
              .slice(c * CHUNK, (c + 1) * CHUNK)
              .map(
                (row, i) => html`<${Row} key=${id(row)} row=${row} index=${c * CHUNK + i + 2} columns=${columns} />`,
              )}
          </tbody>`,
        ]
      })}
      ${gap(chunks)}
    </table>
  </div>`
}

/** @param {Column<any>} c */
const classOf = c => `r${c.rank || 1}${c.num ? ' num' : ''}`

/** @param {{ row: any, index: number, columns: Column<any>[] }} p */
const Row = ({ row, index, columns }) =>
  html`<tr role="row" aria-rowindex=${index}>
    ${columns.map((c, i) =>
      i === 0
        ? html`<th scope="row" role="rowheader" class=${classOf(c)}>${c.cell(row)}</th>`
        : html`<td role="gridcell" class=${classOf(c)} data-head=${c.head}><div>${c.cell(row)}</div></td>`,
    )}
  </tr>`
