// Follows the page's stream for tabs, and tells each what it asks for. It runs in the worker that the tabs share, or in
// a tab if the browser has no shared workers.
import { INSTANCE, NONE, Cutter, Reader, STATE, copyOf } from './frames.js'
import { headersOf, same } from './pass.js'
import { pause } from './wait.js'

const FIRST = 500,
  LAST = 30000 // ms between two attempts, which grow
const REFUSED = 60000 // ms after a refusal that stays: each one is a line of the audit log
const LASTED = 10000 // ms after which a stream counts as one that worked
const SILENT = 10000 // ms without a byte after which a stream is given up: a frame comes each second
const UNSEEN = 15000 // ms for which the stream goes on while all tabs are hidden

/** @typedef {import('./pass.js').Pass} Pass */

/**
 * What the stream does: connecting; live; broken: it is tried again; refused: again after a minute; ended: nobody
 * answers at this address any more, and nothing is asked, since another program may get the port; paused: all tabs are
 * hidden.
 * @typedef {'connecting' | 'live' | 'broken' | 'refused' | 'ended' | 'paused'} Course
 */

/**
 * @typedef {object} Tab
 * @property {MessagePort} port
 * @property {boolean} known it has shown a good secret
 * @property {boolean} gone it has ended, or said that it wants nothing more
 * @property {boolean} shown
 * @property {boolean} rows whether it wants rows
 * @property {boolean} missed whether it lacks rows, and needs a copy of all
 * @property {Set<string>} topics what it wants to hear of: node/NAME, job/NAME
 */

export class Hub {
  constructor() {
    /** @type {Set<Tab>} */
    this.tabs = new Set()
    this.pass = /** @type {Pass | null} */ (null) // that the server has accepted
    /** @type {AbortController | null} */
    this.running = null
    this.unseen = 0 // the timer that ends the stream while all tabs are hidden
    this.course = /** @type {Course} */ ('connecting')
    this.message = ''
    this.reader = new Reader()
  }

  /** @param {MessagePort} port of a tab */
  connect(port) {
    /** @type {Tab} */
    const tab = { port, known: false, gone: false, shown: true, rows: false, missed: true, topics: new Set() }
    port.onmessage = e => this.hear(tab, e.data)
  }

  /** @param {Tab} tab @param {any} m */
  async hear(tab, m) {
    if (m.bye) return this.drop(tab)
    if (m.topics) tab.topics = new Set(m.topics)
    if (m.rows !== undefined) {
      tab.missed ||= m.rows && !tab.rows
      tab.rows = m.rows
    }
    if (m.shown !== undefined) tab.shown = m.shown
    if (m.pass !== undefined) {
      // The tab holds this lock for as long as it lives.
      if (m.lock) navigator.locks.request(m.lock, () => this.drop(tab))
      if (!(await this.knows(m.pass || {}, tab))) return
      tab.known = true
      this.tabs.add(tab)
      this.tellCourse(tab)
    }
    if (!tab.known) return
    this.catchUp(tab)
    this.attend()
  }

  /** @param {Tab} tab */
  drop(tab) {
    tab.gone = true
    this.tabs.delete(tab)
    tab.port.close()
    this.attend()
  }

  /**
   * Whether a tab may hear what the server says. Only the server can tell, unless it has told before, and it is asked
   * until it answers. If the tab may not, this tells it so.
   * @param {Pass} pass @param {Tab} tab
   */
  async knows(pass, tab) {
    const tell = (/** @type {Course} */ course, /** @type {string} */ message) =>
      tab.port.postMessage({ course, message })
    for (let wait = FIRST; !tab.gone && !same(this.pass, pass); wait = Math.min(2 * wait, LAST)) {
      try {
        const got = await fetch('/v1/auth/whoami', { headers: headersOf(pass) })
        if (got.status === 401 && (pass.session || (await got.json()).code === 'page_not_entered')) {
          tell('refused', 'this tab has no access')
          return false
        }
        if (!same(this.pass, pass)) this.accept(pass)
      } catch {
        if (wait > FIRST && !pass.session) {
          // as in run: another program may get the port
          tell('ended', 'outspan ui has ended')
          return false
        }
        tell('broken', 'the server of this page does not answer')
        await new Promise(done => setTimeout(done, wait))
      }
    }
    return !tab.gone
  }

  /** @param {Pass} pass of another server at this address than before, or of another sign-in */
  accept(pass) {
    this.pass = pass
    for (const tab of this.tabs)
      tab.port.postMessage({
        course: 'ended',
        message: 'somebody else has signed in, or this page is of an earlier outspan ui',
      })
    this.tabs.clear()
    this.stop()
    this.reader = new Reader()
  }

  /** Follows the stream while a tab is shown. */
  attend() {
    clearTimeout(this.unseen)
    const seen = [...this.tabs].some(t => t.shown)
    if (seen && !this.running) {
      this.running = new AbortController()
      this.run(this.running.signal)
    } else if (this.running && !seen) {
      this.unseen = setTimeout(
        () => {
          this.stop()
          this.go('paused', '')
        },
        this.tabs.size ? UNSEEN : 0,
      )
    }
  }

  stop() {
    this.running?.abort()
    this.running = null
  }

  /** @param {AbortSignal} over */
  async run(over) {
    let wait = FIRST,
      unanswered = 0
    this.go('connecting', '')
    while (!over.aborted) {
      const begun = performance.now(),
        one = new AbortController()
      const end = () => one.abort()
      over.addEventListener('abort', end)
      let course = /** @type {Course} */ ('broken'),
        message = 'the stream ended',
        answered = false
      try {
        const got = await fetch('/v1/page/stream', { headers: headersOf(this.pass), signal: one.signal })
        answered = true
        if (got.ok && got.body) await this.follow(got.body, one)
        else {
          message = (await got.json().catch(() => ({}))).message || `the answer was ${got.status}`
          if (got.status === 401 || got.status === 403 || got.status === 404) course = 'refused'
        }
      } catch (e) {
        message = answered ? String(e instanceof Error ? e.message : e) : 'the server of this page does not answer'
      }
      over.removeEventListener('abort', end)
      one.abort()
      if (over.aborted) return
      unanswered = answered ? 0 : unanswered + 1
      if (unanswered === 2 && !this.pass?.session) return this.go('ended', 'outspan ui has ended')
      this.go(course, message)
      wait = performance.now() - begun > LASTED ? FIRST : Math.min(2 * wait, LAST)
      await pause(course === 'refused' ? REFUSED : wait * (0.75 + Math.random() / 2), over)
    }
  }

  /** @param {ReadableStream<Uint8Array>} body @param {AbortController} one */
  async follow(body, one) {
    const reader = body.getReader(),
      cutter = new Cutter()
    for (;;) {
      const late = setTimeout(() => one.abort(new Error('no frame came for 10 s')), SILENT)
      const { value, done } = await reader.read().finally(() => clearTimeout(late))
      if (done || one.signal.aborted) return
      for (const raw of cutter.push(value)) this.take(raw)
    }
  }

  /** @param {ArrayBuffer} raw */
  take(raw) {
    const { shown, replaced, dirty } = this.reader.apply(raw)
    if (!shown) return
    if (!replaced && !dirty) {
      // a snapshot arrives: what is shown is of an unknown age
      for (const tab of this.tabs) if (tab.shown) tab.port.postMessage({ head: shown.head })
      return
    }
    if (this.course !== 'live') this.go('live', '')
    const wanted = new Set([...this.tabs].flatMap(t => (t.shown ? [...t.topics] : [])))
    const touched = dirty ? topicsOf(shown, dirty, wanted) : new Set()
    for (const tab of this.tabs) {
      if (!tab.shown) tab.missed = true
      else if (replaced || tab.missed) {
        tab.missed = true
        this.catchUp(tab)
      } else {
        tab.port.postMessage({
          head: shown.head,
          banner: shown.banner,
          counts: shown.counts,
          touched: [...touched].filter(t => tab.topics.has(t)),
          nodes: dirty && dirty.nodes.length > 0,
          instances: dirty && dirty.instances.length > 0,
          frame: tab.rows ? raw.slice(0) : undefined,
        })
      }
    }
  }

  /**
   * Gives a tab all that it lacks.
   * @param {Tab} tab
   */
  catchUp(tab) {
    const p = this.reader.shown
    if (!p || !tab.known || !tab.shown || !tab.missed || this.reader.next) return
    const [copy, handOver] = tab.rows ? copyOf(p) : []
    tab.missed = false
    tab.port.postMessage({ head: p.head, banner: p.banner, counts: p.counts, all: true, copy }, handOver || [])
  }

  /** @param {Course} course @param {string} message */
  go(course, message) {
    this.course = course
    this.message = message
    for (const tab of this.tabs) this.tellCourse(tab)
  }

  /** @param {Tab} tab */
  tellCourse(tab) {
    tab.port.postMessage({ course: this.course, message: this.message })
  }
}

/**
 * Which of some topics a frame touches.
 * @param {import('./frames.js').Picture} p @param {import('./frames.js').Dirty} dirty @param {Set<string>} wanted
 */
function topicsOf(p, dirty, wanted) {
  const found = new Set()
  if (wanted.size === 0) return found
  const nodes = /** @type {string[]} */ (p.nodes.names),
    groups = /** @type {string[]} */ (p.groups.names)
  const add = (/** @type {number} */ node, /** @type {number} */ group) => {
    if (node !== NONE && wanted.has('node/' + nodes[node])) found.add('node/' + nodes[node])
    const job = group !== NONE ? 'job/' + (groups[group] || '').split('/')[0] : ''
    if (wanted.has(job)) found.add(job)
  }
  for (const h of dirty.nodes) add(h, NONE)
  dirty.instances.forEach((h, i) => {
    if (p.instances.columns[STATE][h])
      add(p.instances.columns[INSTANCE.node][h], p.instances.columns[INSTANCE.group][h])
    add(dirty.left[2 * i], dirty.left[2 * i + 1])
  })
  return found
}
