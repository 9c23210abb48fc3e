// What the page knows of the cluster. Each resource has one poll loop, which all its views share and which runs while
// somebody looks at it. A view only sees Resource.state, so that another source can fill it.
import { computed, signal, useEffect, useMemo } from './lib.js'
import { call, CallError } from './session.js'

const LOOK = '5s' // how long one read waits for a change
const PAUSE = 500 // ms between two reads of a resource that changes all the time
const AGAIN = 1000 // ms before a read is tried again after an error
const LATER = 60000 // ms before it is tried again after a refusal that stays: each one is a line of the audit log
const KEPT = 60000 // ms for which a resource that nobody looks at is kept
const LOST = 3 // times in a row that the servers must not know the caller until the page ends
const LOOKS = 4 // how many reads wait for changes at once, in all tabs: a browser opens six connections to one server
const SHORT = 2000 // ms between two reads of a resource that gets none of these
const SLOW = 10000 // ms between two reads of what hardly ever changes

/**
 * @typedef {object} State
 * @property {any} data what was read last; null: nothing yet
 * @property {number} at when that was read, in ms since 1970; 0: never
 * @property {number} staleFor for how many ms the answering server had not heard from the leader; 0 unless old
 * @property {CallError | null} old why this is one server's knowledge, read without the leader; null: it is not
 * @property {CallError | null} error why the last read failed; data is then what was known before
 */

/** @typedef {{ lines?: boolean, slow?: boolean }} How lines: an object on each line; slow: it hardly ever changes */

/** The present time, to the second. */
export const now = signal(Date.now())
setInterval(() => { if (!document.hidden) now.value = Date.now() }, 1000)
document.addEventListener('visibilitychange', () => { now.value = Date.now() })

/** Why the page can't go on at all: the page has no access, or its server has ended. */
export const ended = signal(/** @type {CallError | null} */ (null))

/** @type {State} */
const nothing = { data: null, at: 0, staleFor: 0, old: null, error: null }

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
    let index = 0
    while (!over.aborted) {
      await visible(over)
      const begun = Date.now()
      try {
        index = await this.look(index, over)
        await pause(Math.max(0, PAUSE - (Date.now() - begun)), over)
      } catch (e) {
        if (over.aborted) return
        index = 0
        const error = e instanceof CallError ? e : new CallError({ message: String(e) })
        await this.failed(error, over)
        if (!over.aborted) await pause(stays(error) ? LATER : AGAIN, over)
      }
    }
  }

  /**
   * @param {number} index
   * @param {AbortSignal} over
   */
  async look(index, over) {
    if (this.how.lines) {
      const got = await call('GET', this.path, { query: this.query, signal: over, lines: true })
      this.set(got, null)
      await pause(1500, over)
      return 0
    }
    const got = !index ? await this.whole({}, over) : this.how.slow ? await this.later(SLOW, over)
      : await waiting(() => this.whole({ index: String(index), wait: LOOK }, over)) || await this.later(SHORT, over)
    this.set(got, null)
    return got.index
  }

  /**
   * @param {number} ms
   * @param {AbortSignal} over
   */
  async later(ms, over) {
    await pause(ms, over)
    return this.whole({}, over)
  }

  /**
   * Reads all pages of a list, or the one object.
   * @param {Record<string, string>} extra
   * @param {AbortSignal} over
   */
  async whole(extra, over) {
    const got = await call('GET', this.path, { query: { ...this.query, ...extra }, signal: over })
    for (let next = got.value.items && got.value.next; next;) {
      const more = await call('GET', this.path, { query: { ...this.query, next }, signal: over })
      got.value.items.push(...more.value.items)
      next = more.value.next
    }
    return got
  }

  /**
   * After an error the page shows what one server knows, and says so. If no server answers, what was known stays.
   * @param {CallError} error
   * @param {AbortSignal} over
   */
  async failed(error, over) {
    this.lost = error.status === 401 ? this.lost + 1 : 0
    if (error.code === 'page_not_entered' || this === identity && this.lost >= LOST) ended.value = error
    if (!this.how.lines && (error.code === 'no_leader' || error.code === 'not_caught_up' || error.code === 'timeout')) {
      try {
        this.set(await this.whole({ consistency: 'stale' }, over), error)
        return
      } catch { /* the first error says more */ }
    }
    if (!over.aborted) this.state.value = { ...this.state.value, error }
  }

  /**
   * @param {{ value: any, staleFor: number }} got
   * @param {CallError | null} old
   */
  set(got, old) {
    this.lost = 0
    now.value = Date.now()
    this.state.value = { data: got.value, at: Date.now(), staleFor: got.staleFor, old, error: null }
  }
}

/**
 * Whether asking again soon would give the same error.
 * @param {CallError} error
 */
const stays = error => error.status === 403 || error.status === 404 || error.code === 'page_gone' && !error.retryable

/**
 * Runs a read that waits for a change, if few enough of them run in all tabs.
 * @template T
 * @param {() => Promise<T>} run
 * @returns {Promise<T | undefined>} undefined: too many run
 */
async function waiting(run) {
  for (let i = 0; i < LOOKS; i++) {
    const got = await navigator.locks.request(`outspan-look-${i}`, { ifAvailable: true }, lock => lock ? run() : undefined)
    if (got) return got
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} over
 */
function pause(ms, over) {
  return new Promise(done => {
    const end = () => {
      clearTimeout(timer)
      over.removeEventListener('abort', end)
      done(undefined)
    }
    const timer = setTimeout(end, ms)
    over.addEventListener('abort', end)
  })
}

/**
 * Waits until the tab is shown. A hidden tab asks nothing.
 * @param {AbortSignal} over
 */
function visible(over) {
  if (!document.hidden) return
  return new Promise(done => {
    const look = () => {
      if (document.hidden && !over.aborted) return
      document.removeEventListener('visibilitychange', look)
      over.removeEventListener('abort', look)
      done(undefined)
    }
    document.addEventListener('visibilitychange', look)
    over.addEventListener('abort', look)
  })
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
  if (!r) known.set(key, r = new Resource(path, query, how))
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
export const identity = resource('/v1/auth/whoami', {}, { slow: true })

/** What the caller may do on something at least. */
export const verbs = computed(() => new Set(/** @type {string[]} */ (identity.state.value.data?.verbs || [])))

/** @param {string} verb whether the caller may do this on something at least */
export const may = verb => identity.state.value.data?.local || verbs.value.has(verb)

/** Whether the caller may read the status; undefined: that is not known yet. */
export const mayStatus = () => identity.state.value.data ? may('server.read') : identity.state.value.error ? true : undefined

/** When something was read: of one server's knowledge, when that server heard from the leader. @param {State} s */
export const asOf = s => s.old ? s.at - s.staleFor : s.at

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
export const useMay = (verb, object) => useResource('/v1/auth/can-i', { verb, object }, { slow: true }).data?.allowed === true
