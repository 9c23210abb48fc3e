// What instances print, as it comes: of one instance, or of all of a job or a group.
import { html, useEffect, useRef, useState } from './lib.js'
import { pause, streaming, visible } from './wait.js'
import { CallError, open } from './session.js'
import { count, quoted, stamp } from './format.js'
import { Command, Failure } from './parts.js'

const MOST = 4000 // lines that are kept
const LONGEST = 4000 // characters of a line that are shown
const SEEN = 1000 // lines that are remembered, so that none comes twice after a break
const POLL = 3000 // ms between two reads when too many streams run
const AGAIN = 1500 // ms before a broken stream is opened again

/**
 * label: the instance, if lines of several come; note: of a server
 * @typedef {{ label: string, time: string, text: string, note?: boolean }} Line
 */

/**
 * Takes the power from what a program printed. Colours and movements of the cursor go; other control characters, and
 * characters that change the direction of text, become visible.
 * @param {string} text
 */
export const plain = text =>
  text
    .replace(/\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-Z\\-~]/g, '')
    .replace(/\r$/, '')
    .replace(/[\x00-\x08\x0a-\x1f\x7f]/g, c =>
      c === '\x7f' ? '\u2421' : String.fromCharCode(0x2400 + c.charCodeAt(0)),
    )
    .replace(
      /[\x80-\x9f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]/g,
      c => `<U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}>`,
    )

/**
 * @param {string} raw as a server sends it
 * @param {boolean} merged whether it begins with its instance
 * @returns {Line}
 */
export function lineOf(raw, merged) {
  const [, label = '', rest] = (merged && /^([\w.-]+\[\d+\] \S{1,8}) \| ([^]*)$/.exec(raw)) || ['', '', raw]
  const [, time = '', text] = /^(\d{4}-\d\d-\d\dT[\d:.]+Z|-) ([^]*)$/.exec(rest) || ['', '', rest]
  return {
    label,
    note: !time,
    time: time === '-' ? '' : time,
    text: plain(text.length > LONGEST ? text.slice(0, LONGEST) + ' … cut off' : text),
  }
}

/** Reads one log until it is ended. It tells of each change of its state, and hands over lines in batches. */
class Tail {
  /**
   * @param {{ path: string, query: Record<string, string>, merged: boolean }} of
   * @param {(lines: Line[]) => void} give
   * @param {(state: string, error: CallError | null) => void} tell
   */
  constructor(of, give, tell) {
    this.of = of
    this.give = give
    this.tell = tell
    this.since = '' // the time of the newest line
    this.seen = new Set(/** @type {string[]} */ ([]))
    this.ended = false
  }

  /** @param {AbortSignal} over */
  async run(over) {
    for (let first = true; !over.aborted && !this.ended; ) {
      await visible(over)
      try {
        if (first) await this.read(over, false)
        first = false
        if (!(await streaming(() => this.read(over, true)))) {
          this.tell('polled', null)
          await pause(POLL, over)
          await this.read(over, false)
        }
      } catch (e) {
        if (over.aborted) return
        if (document.hidden) continue
        const error = e instanceof CallError ? e : null
        if (error && (error.status === 403 || error.status === 404 || (error.code === 'page_gone' && !error.retryable)))
          return this.tell('over', error)
        this.tell('broken', error)
        await pause(AGAIN, over)
      }
    }
  }

  /**
   * @param {AbortSignal} over
   * @param {boolean} follow
   */
  async read(over, follow) {
    const mine = new AbortController()
    const end = () => {
      if (over.aborted || document.hidden) mine.abort()
    } // a hidden tab follows nothing
    over.addEventListener('abort', end)
    document.addEventListener('visibilitychange', end)
    try {
      /** @type {Record<string, string>} */
      const query = { ...this.of.query, timestamps: 'true', follow: String(follow) }
      if (this.since) query.since = this.since
      else query.tail = this.of.merged ? '100' : '500'
      const reader = (await open(this.of.path, query, mine.signal)).getReader()
      this.tell('live', null)
      const text = new TextDecoder()
      for (let rest = ''; ; ) {
        const { done, value } = await reader.read()
        rest += done ? text.decode() : text.decode(value, { stream: true })
        const raw = rest.split('\n')
        rest = done ? '' : raw.pop() || ''
        this.take(raw.filter((l, i) => !done || l || i < raw.length - 1))
        if (rest.length > 1 << 20) rest = rest.slice(0, LONGEST)
        if (done) break
      }
      if (follow && !this.of.merged) {
        this.ended = true
        this.tell('ended', null)
      } else if (follow) await pause(AGAIN, over)
    } finally {
      over.removeEventListener('abort', end)
      document.removeEventListener('visibilitychange', end)
    }
  }

  /** @param {string[]} raw */
  take(raw) {
    const lines = []
    for (const one of raw) {
      const line = lineOf(one, this.of.merged)
      if (this.seen.has(one) && (line.time || line.note)) continue
      this.seen.add(one)
      if (line.time > this.since) this.since = line.time
      lines.push(line)
    }
    for (const one of this.seen) {
      if (this.seen.size <= SEEN) break
      this.seen.delete(one)
    }
    if (lines.length > 0) this.give(lines)
  }
}

const said = {
  '': 'asking …',
  live: 'live',
  polled: `read every ${POLL / 1000} s, because two logs are followed already in your tabs`,
  broken: 'broke off; trying again',
  ended: 'the log has ended',
  over: 'ended',
}

/** @param {Line} l */
function element(l) {
  const row = document.createElement('div')
  const part = (/** @type {string} */ name, /** @type {string} */ text) => {
    const e = document.createElement('span')
    e.className = name
    e.textContent = text
    row.append(e)
  }
  if (l.time) part('dim', stamp(l.time) + ' ')
  if (l.label) part('from', l.label + ' ')
  part('text', l.text)
  row.title = l.time
  return row
}

/**
 * The window with the lines. It holds still while somebody has scrolled up.
 * @param {{ of: { path: string, query: Record<string, string>, merged: boolean }, name: string, find: string }} p
 */
function Window({ of, name, find }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null)),
    held = useRef(/** @type {Line[]} */ ([])),
    still = useRef(false)
  const [state, setState] = useState(''),
    [error, setError] = useState(/** @type {any} */ (null)),
    [waiting, setWaiting] = useState(0)
  const [[lines, matching], setLines] = useState([0, 0]),
    [again, setAgain] = useState(0)
  const found = useRef(find)
  found.current = find.toLowerCase()
  const tally = () => {
    const rows = [...(box.current?.children || [])]
    setLines([
      rows.length,
      found.current ? rows.filter(r => !(/** @type {HTMLElement} */ (r).hidden)).length : rows.length,
    ])
  }
  const hide = (/** @type {HTMLElement} */ row) => {
    row.hidden = !(row.textContent || '').toLowerCase().includes(found.current)
  }
  const flush = () => {
    const b = box.current
    if (!b || still.current) return setWaiting(held.current.length)
    const rows = held.current.splice(0).map(element)
    b.append(...rows)
    while (b.childElementCount > MOST) b.firstElementChild?.remove()
    if (found.current) rows.forEach(hide)
    b.scrollTop = b.scrollHeight
    setWaiting(0)
    tally()
  }
  useEffect(() => {
    const over = new AbortController()
    let timer = 0
    box.current?.replaceChildren()
    held.current = []
    const give = (/** @type {Line[]} */ some) => {
      held.current = [...held.current, ...some].slice(-MOST)
      timer ||= setTimeout(() => {
        timer = 0
        flush()
      }, 150)
    }
    new Tail(of, give, (s, e) => {
      setState(s)
      setError(e)
    }).run(over.signal)
    return () => {
      over.abort()
      clearTimeout(timer)
    }
  }, [of.path, JSON.stringify(of.query), again])
  useEffect(() => {
    for (const row of box.current?.children || []) hide(/** @type {HTMLElement} */ (row))
    tally()
  }, [find])
  const scrolled = () => {
    const b = box.current
    if (!b) return // the box has gone meanwhile
    const was = still.current
    still.current = b.scrollTop + b.clientHeight < b.scrollHeight - 24
    if (was && !still.current) flush()
  }
  const resume = () => {
    still.current = false
    flush()
  }
  return html`<p class="dim small" role="status">
      ${said[/** @type {keyof typeof said} */ (state)]}${error && state === 'broken' ? `: ${error.message}` : ''};${' '}
      ${find ? `${matching} of ${count(lines, 'line')}` : count(lines, 'line')}${lines >= MOST
        ? ', older ones are left out'
        : ''}.
    </p>
    ${error &&
    state === 'over' &&
    html`<${Failure} error=${error} />
      <p><button type="button" onClick=${() => setAgain(again + 1)}>Try again</button></p>`}
    <div class="logs">
      <div
        class="lines mono"
        ref=${box}
        tabindex="0"
        role="log"
        aria-live="off"
        aria-label=${name}
        onScroll=${scrolled}
      ></div>
      ${lines === 0 && state && state !== 'over' && html`<p class="none dim">Nothing was printed yet.</p>`}
      ${waiting > 0 &&
      html`<button type="button" class="primary resume" onClick=${resume}>${count(waiting, 'new line')} ↓</button>`}
    </div>`
}

/**
 * The logs of an instance, a job or a group, with what to show of them.
 * @param {{ job?: string, group?: string, instance?: string }} p
 */
export function Logs({ job, group, instance }) {
  const [stream, setStream] = useState('both'),
    [find, setFind] = useState('')
  const merged = !instance
  /** @type {Record<string, string>} */
  const query = { stream }
  if (group) query.group = group
  const path = merged
    ? `/v1/jobs/${encodeURIComponent(job || '')}/logs`
    : `/v1/instances/${encodeURIComponent(instance || '')}/logs`
  const command = [
    'outspan logs',
    quoted(instance || (group ? `${job}/${group}` : job || '')),
    '-f',
    stream !== 'both' && '--' + stream,
  ]
    .filter(Boolean)
    .join(' ')
  return html`<div class="tools">
      <label class="pick"
        >Show${' '}
        <select value=${stream} onChange=${(/** @type {any} */ e) => setStream(e.target.value)}>
          <option value="both">all output</option>
          <option value="stdout">standard output</option>
          <option value="stderr">standard error</option>
        </select></label
      >
      <label class="filter"
        ><span class="unseen">Search in the logs</span
        ><input
          type="search"
          value=${find}
          placeholder="search in what is loaded"
          spellcheck=${false}
          autocomplete="off"
          onInput=${(/** @type {any} */ e) => setFind(e.target.value)}
      /></label>
    </div>
    <${Window} key=${stream} of=${{ path, query, merged }} name=${`Logs of ${instance || job}`} find=${find} />
    <p><${Command} text=${command} /></p>`
}
