// What the page knows of the cluster. Each resource has one loop of short reads, which all its views share and which
// runs while somebody looks at it. The page's stream says when to read again. A view only sees Resource.state.
import { computed, signal, useEffect, useMemo } from './lib.js'
import { call, CallError, signIn } from './session.js'
import { listen, live, stream, streamTime } from './stream.js'
import { visible } from './wait.js'

const PAUSE = 500 // ms between two reads at least
const SHARE = 5 // the pause is at least this many times as long as the read took
const AGAIN = 1000 // ms before a read is tried again after an error
const LATER = 60000 // ms before it is tried again after a refusal that stays: each one is a line of the audit log
const KEPT = 60000 // ms for which a resource that nobody looks at is kept
const LOST = 3 // times in a row that the servers must not know the caller until the page ends
const FIRST = 1000 // ms between two reads while the cluster changes, and with it the resource
const LAST = 8000 // ms between them once the resource has not changed several times
const SHORT = 2000 // ms between two reads while there is no stream
const SLOW = 10000 // ms between two reads of what hardly ever changes, or if the stream tells of no change

/**
 * @typedef {object} State
 * @property {any} data what was read last; null: nothing yet
 * @property {number} at when that was read, in ms since 1970; 0: never
 * @property {number} staleFor for how many ms the answering server had not heard from the leader; 0 unless old
 * @property {number} index the log entry up to which it is known; 0: unknown
 * @property {CallError | null} old why this is one server's knowledge, read without the leader; null: it is not
 * @property {CallError | null} error why the last read failed; data is then what was known before
 */

/**
 * @typedef {{ lines?: boolean, slow?: boolean, grows?: number }} How lines: an object on each line; slow: it hardly
 * ever changes; grows: of lines with ids, read only what is new and keep so many
 */

/** The present time, to the second. */
export const now = signal(Date.now())
setInterval(() => {
  if (!document.hidden) now.value = Date.now()
}, 1000)
document.addEventListener('visibilitychange', () => {
  now.value = Date.now()
})

/** Why the page can't go on at all: the page has no access, or its server has ended. */
export const ended = signal(/** @type {CallError | null} */ (null))

/** @type {State} */
const nothing = { data: null, at: 0, staleFor: 0, index: 0, old: null, error: null }

/** Reads all that is shown, also what was refused: somebody has changed it here, or the caller's rights are others. */
function readAll() {
  for (const r of shown.value) {
    if (r === identity) continue
    r.next.again = true
    r.look()
  }
}

addEventListener('outspan-wrote', readAll)

/** The resources that are looked at. */
export const shown = signal(/** @type {Resource[]} */ ([]))

class Resource {
  /**
   * @param {string} path
   * @param {Record<string, string>} query
   * @param {How} how
   */
  constructor(path, query, how) {
    this.path = path
    this.query = query
    this.key = keyOf(path, query)
    this.how = how
    this.state = signal(nothing)
    this.users = 0
    this.lost = 0 // times in a row that the servers did not know the caller
    this.drop = 0 // the timer that drops it
    this.next = { begun: 0, took: 0, pause: FIRST, told: false, again: false } // when it is read again: see due
    this.look = () => {} // looks whether it is time to read
    this.text = '' // of the last answer
    /** @type {AbortController | null} */
    this.running = null
  }

  /** @returns {() => void} what ends this use */
  use() {
    if (this.users++ === 0) {
      clearTimeout(this.drop)
      shown.value = [...shown.value, this]
      this.running = new AbortController()
      this.loop(this.running.signal)
    }
    return () => {
      if (--this.users > 0 || !this.running) return
      this.running.abort()
      shown.value = shown.value.filter(r => r !== this)
      this.drop = setTimeout(() => {
        known.delete(this.key)
        this.state.value = nothing
      }, KEPT)
    }
  }

  /** @param {AbortSignal} over */
  async loop(over) {
    const topic = topicOf(this)
    const deaf = listen(topic, n => {
      this.next.told ||=
        !this.how.slow &&
        (n.all || n.touched.has(topic) || (topic === 'nodes' && n.nodes) || (topic === 'instances' && n.instances))
      this.look()
    })
    over.addEventListener('abort', deaf)
    while (!over.aborted) {
      await visible(over)
      this.next.begun = Date.now()
      this.next.told = this.next.again = false
      try {
        const got = await this.latest(over)
        this.next.pause = got.text === this.text ? Math.min(2 * this.next.pause, LAST) : FIRST
        this.text = got.text
        this.set(got, null)
        this.next.took = Date.now() - this.next.begun
        await this.news(() => this.due(), over)
      } catch (e) {
        if (over.aborted) return
        const error = e instanceof CallError ? e : new CallError({ message: String(e) })
        await this.failed(error, over)
        const until = Date.now() + (stays(error) ? LATER : AGAIN)
        if (!over.aborted)
          await this.news(() => (this.next.again || (error.status === 404 && this.next.told) ? 0 : until), over)
      }
    }
  }

  /** @returns {number} when it is to be read again, by what is known now, in ms since 1970 */
  due() {
    const { begun, took, pause, told, again } = this.next
    const least = begun + took + Math.max(PAUSE, SHARE * took)
    if (told || again) return least
    const moved = stream.value.index > this.state.value.index
    const wait = this.how.slow ? (live() && !moved ? 3 * SLOW : SLOW) : !live() ? SHORT : moved ? pause : SLOW
    return Math.max(least, begun + wait)
  }

  /**
   * Waits until it is time to read.
   * @param {() => number} due when that is, which may change with each frame of the stream
   * @param {AbortSignal} over
   */
  news(due, over) {
    return new Promise(done => {
      let timer = 0
      this.look = () => {
        clearTimeout(timer)
        const left = due() - Date.now()
        if (!over.aborted && left > 0) timer = setTimeout(this.look, left)
        else done(undefined)
      }
      over.addEventListener('abort', this.look)
      this.look()
    }).finally(() => {
      over.removeEventListener('abort', this.look)
      this.look = () => {}
    })
  }

  /**
   * Reads it, or of lines that grow only those that are new.
   * @param {AbortSignal} over
   */
  async latest(over) {
    const before = this.how.grows && this.state.value.data
    const last = before && before.at(-1)?.id
    if (!last) return this.whole({}, over)
    const got = await this.whole({ after: last }, over)
    got.text = got.value.at(-1)?.id || last // is the same as long as nothing is new
    got.value = [...before, ...got.value].slice(-(this.how.grows || 0))
    return got
  }

  /**
   * Reads all pages of a list, or the one object.
   * @param {Record<string, string>} extra
   * @param {AbortSignal} over
   */
  async whole(extra, over) {
    const got = await call('GET', this.path, {
      query: { ...this.query, ...extra },
      signal: over,
      lines: this.how.lines,
    })
    for (let next = got.value.items && got.value.next; next; ) {
      const more = await call('GET', this.path, { query: { ...this.query, next }, signal: over })
      got.value.items.push(...more.value.items)
      got.text += more.text
      next = more.value.next
    }
    return got
  }

  /**
   * After an error the page shows what one server knows, and says so. If no server tells, what was known stays. A
   * server that has had no leader for long does not tell: then that is the error, however long the first call took to
   * fail.
   * @param {CallError} error
   * @param {AbortSignal} over
   */
  async failed(error, over) {
    this.lost = error.status === 401 ? this.lost + 1 : 0
    if (error.status === 410) this.state.value = nothing // what follows the last event is no longer kept
    const out = error.code === 'page_not_entered' || (error.status === 401 && signIn)
    if (out || (this === identity && this.lost >= LOST)) ended.value ||= error
    if (!this.how.lines && (error.code === 'no_leader' || error.code === 'not_caught_up' || error.code === 'timeout')) {
      try {
        this.set(await this.whole({ consistency: 'stale' }, over), error)
        return
      } catch (e) {
        if (e instanceof CallError && e.code === 'no_leader') error = e // otherwise the first error says more
      }
    }
    if (!over.aborted) this.state.value = { ...this.state.value, error }
  }

  /**
   * @param {{ value: any, index: number, staleFor: number }} got
   * @param {CallError | null} old
   */
  set(got, old) {
    this.lost = 0
    now.value = Date.now()
    const before = this.state.value.data
    this.state.value = { data: got.value, at: Date.now(), staleFor: got.staleFor, index: got.index, old, error: null }
    if (this === identity && before && JSON.stringify(before.grants) !== JSON.stringify(got.value.grants)) readAll()
  }
}

/**
 * Whether asking again soon would give the same error.
 * @param {CallError} error
 */
const stays = error => error.status === 403 || error.status === 404 || (error.code === 'page_gone' && !error.retryable)

/**
 * What of the stream tells that a resource has changed for certain. It may change without that.
 * @param {Resource} r
 * @returns {'' | 'nodes' | 'instances' | `node/${string}` | `job/${string}`}
 */
function topicOf(r) {
  const [kind, name] = r.path.split('/').slice(2).map(decodeURIComponent)
  if (kind === 'nodes') return name ? `node/${name}` : kind
  if (kind === 'jobs' && name) return `job/${name}`
  if (kind !== 'instances' || name) return ''
  return r.query.node ? `node/${r.query.node}` : r.query.job ? `job/${r.query.job}` : kind
}

/** @type {Map<string, Resource>} */
const known = new Map()

/** @param {string} path @param {Record<string, string>} query */
const keyOf = (path, query) => path + '?' + new URLSearchParams(query)

/**
 * @param {string} path
 * @param {Record<string, string>} [query]
 * @param {How} [how]
 */
export function resource(path, query = {}, how = {}) {
  const key = keyOf(path, query)
  let r = known.get(key)
  if (!r) known.set(key, (r = new Resource(path, query, how)))
  return r
}

/**
 * The state of a resource, which is read as long as the component is shown.
 * @param {string} path
 * @param {Record<string, string>} [query]
 * @param {How} [how]
 * @returns {State}
 */
export function useResource(path, query, how) {
  const r = useMemo(() => resource(path, query, how), [path, JSON.stringify(query)])
  useEffect(() => r.use(), [r])
  return r.state.value
}

export const status = resource('/v1/status')
/** A page that several people use shows a change of rights at once. */
const rights = { slow: !signIn }
export const identity = resource('/v1/auth/whoami', {}, rights)

/** What the caller may do on something at least. */
export const verbs = computed(() => new Set(/** @type {string[]} */ (identity.state.value.data?.verbs || [])))

/** @param {string} verb whether the caller may do this on something at least */
export const may = verb => identity.state.value.data?.local || verbs.value.has(verb)

/** Whether the caller may read the status; undefined: that is not known yet. */
export const mayStatus = () =>
  identity.state.value.data ? may('server.read') : identity.state.value.error ? true : undefined

/**
 * As of when something is known. What one server knows is as old as the leader's last word. What no entry of the log
 * has changed since it was read is as young as the stream.
 * @param {State} s
 */
export const asOf = s =>
  s.old
    ? s.at - s.staleFor
    : live() && !stream.value.alone && s.index >= stream.value.index
      ? Math.max(s.at, streamTime())
      : s.at

/**
 * The names of the nodes, by their ids.
 * @returns {Map<string, string>}
 */
export function useNames() {
  const { data } = useResource('/v1/nodes', { fields: 'id,name' }, { slow: true })
  return useMemo(() => new Map((data?.items || []).map((/** @type {any} */ n) => [n.id, n.name])), [data])
}

/**
 * What a person calls an object such as node/n1: a drain by its nodes.
 * @param {string} subject
 */
export function nameOf(subject) {
  const [kind, id] = subject.split('/')
  const drain = kind === 'drain' && (status.state.value.data?.drains || []).find((/** @type {any} */ d) => d.id === id)
  return drain ? 'drain of ' + drain.nodes.map((/** @type {any} */ n) => n.node).join(', ') : subject.replace('/', ' ')
}

/**
 * Whether the caller may do something to one object, such as node.drain to node/n1. What nobody has answered yet is not
 * allowed.
 * @param {string} verb
 * @param {string} object
 * @returns {boolean}
 */
export const useMay = (verb, object) => useAllowed(verb, object) === true

/**
 * As useMay, but undefined until it is answered.
 * @param {string} verb
 * @param {string} object
 * @returns {boolean | undefined}
 */
export const useAllowed = (verb, object) => useResource('/v1/auth/can-i', { verb, object }, rights).data?.allowed
