// The page's stream as this tab sees it. The worker of all tabs reads it (hub.js); a browser without shared workers
// reads it in each tab.
import { signal } from './lib.js'
import { Hub } from './hub.js'
import { Reader, pictureOf } from './frames.js'
import { passOf, signIn } from './session.js'

const PATIENCE = 20000 // ms in which the worker must have answered
const LATE = 3500 // ms without a frame after which the stream no longer counts as live: one comes each second

/**
 * @typedef {object} Stream
 * @property {import('./hub.js').Course} course
 * @property {string} message why it is not live
 * @property {number} at when the last frame came, in ms since 1970; 0: never
 * @property {number} age how old the state was then, in ms; -1: unknown
 * @property {number} index of the log entry that it shows
 * @property {boolean} alone the server knows no leader
 * @property {string} server
 */

/** @type {Stream} */
const nothing = { course: 'connecting', message: '', at: 0, age: -1, index: 0, alone: false, server: '' }

/** What the stream does. It changes with each frame, four times a second at most. */
export const stream = signal(nothing)

/** What the newest frames say: see docs/page-stream.md. null: not known. */
export const banner = signal(/** @type {any} */ (null))
export const counts = signal(/** @type {any} */ (null))

/** Whether the stream tells of each change now. */
export const live = () => stream.value.course === 'live' && Date.now() - stream.value.at < LATE

/** When the server had what the stream shows, in ms since 1970; 0: unknown. */
export const streamTime = () => (stream.value.age < 0 ? 0 : stream.value.at - stream.value.age)

/**
 * @typedef {object} News what a frame, or a change of the stream's course, has brought
 * @property {Set<string>} touched the topics that changed; see listen
 * @property {boolean} nodes whether a node changed
 * @property {boolean} instances whether an instance changed
 * @property {boolean} all anything may have changed
 */

/** @type {Map<(news: News) => void, string>} */
const listeners = new Map()

/**
 * Calls a function whenever there is news.
 * @param {string} topic node/NAME or job/NAME, to hear of it in News.touched; '' for none
 * @param {(news: News) => void} hear
 * @returns {() => void} what ends it
 */
export function listen(topic, hear) {
  listeners.set(hear, topic)
  if (topic) ask()
  return () => {
    listeners.delete(hear)
    if (topic) ask()
  }
}

/**
 * @typedef {object} Rows who draws the rows of the fleet
 * @property {(p: import('./frames.js').Picture) => void} replaced all rows are new
 * @property {(p: import('./frames.js').Picture, dirty: import('./frames.js').Dirty) => void} changed
 */

/** @type {Set<Rows>} */
const drawers = new Set()
let reader = new Reader() // of the rows, while somebody draws them

/**
 * Gives somebody the rows of the fleet, until the returned function is called.
 * @param {Rows} one
 */
export function draw(one) {
  drawers.add(one)
  if (reader.shown) one.replaced(reader.shown)
  ask()
  return () => {
    drawers.delete(one)
    ask()
  }
}

/** @type {MessagePort | null} */
let port = null

let asked = false

/** Tells the worker what this tab wants, once for all that asks in the same moment. */
function ask() {
  if (asked) return
  asked = true
  queueMicrotask(() => {
    asked = false
    port?.postMessage(wants())
  })
}

const wants = () => ({
  shown: !document.hidden,
  rows: drawers.size > 0,
  topics: [...new Set(listeners.values())].filter(Boolean),
})

/** @param {any} m a message of the hub */
function hear(m) {
  // Somebody else has signed in in this browser, which sends that cookie for this tab too.
  if (m.course === 'ended' && signIn) return location.reload()
  const before = stream.value
  if (m.course) stream.value = { ...before, course: m.course, message: m.message }
  if (m.head) stream.value = { ...stream.value, ...m.head, at: Date.now() }
  if (m.counts) {
    banner.value = m.banner
    counts.value = m.counts
  }
  if (drawers.size === 0) reader = new Reader()
  else if (m.copy) {
    reader = new Reader(pictureOf(m.copy))
    for (const one of drawers) one.replaced(/** @type {any} */ (reader.shown))
  } else if (m.frame && reader.shown) {
    const { shown, dirty } = reader.apply(m.frame)
    if (shown && dirty) for (const one of drawers) one.changed(shown, dirty)
  }
  const news = {
    touched: new Set(m.touched),
    nodes: !!m.nodes,
    instances: !!m.instances,
    all: !!m.all || stream.value.alone !== before.alone,
  }
  for (const tell of [...listeners.keys()]) tell(news)
}

/** The worker's address is a constant of this page, which the browser wants to be told. */
const trusted = () => {
  const url = new URL('worker.js', import.meta.url).href
  const types = /** @type {any} */ (globalThis).trustedTypes
  return types ? types.createPolicy('outspan-worker', { createScriptURL: () => url }).createScriptURL('') : url
}

/** Reads the stream in this tab. */
function alone() {
  const { port1, port2 } = new MessageChannel()
  new Hub().connect(port2)
  return port1
}

/** Begins to follow the stream. Somebody must be in. */
export async function follow() {
  const name = 'outspan-tab-' + crypto.randomUUID()
  await new Promise(held => {
    // until the tab ends, which tells the worker so
    navigator.locks.request(name, () => {
      held(undefined)
      return new Promise(() => {})
    })
  })
  const begin = (/** @type {MessagePort} */ one, /** @type {string} */ lock) => {
    port = one
    one.onmessage = e => {
      if (one === port) hear(e.data)
    }
    one.postMessage({ pass: passOf(), lock, ...wants() })
  }
  document.addEventListener('visibilitychange', ask)
  if (!globalThis.SharedWorker) return begin(alone(), '')
  try {
    const worker = new SharedWorker(trusted(), { type: 'module', name: 'outspan' })
    const local = () => {
      if (!stream.value.at && worker.port === port) {
        worker.port.postMessage({ bye: true })
        begin(alone(), '')
      }
    }
    worker.onerror = local
    begin(worker.port, name)
    const heard = worker.port.onmessage
    const timer = setTimeout(local, PATIENCE)
    worker.port.onmessage = e => {
      clearTimeout(timer)
      heard?.call(worker.port, e)
    }
  } catch {
    begin(alone(), '')
  }
}
