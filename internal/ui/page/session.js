// How the page gets in, and how it calls the API.

const KEY = 'outspan-page-secret'
const HEADER = 'Outspan-Page-Secret'

/** @type {string | null} */
let secret = null

/** An error of a call: what went wrong, and what to do about it. */
export class CallError extends Error {
  /** @param {{ code?: string, message?: string, hint?: string, retryable?: boolean, status?: number }} p */
  constructor(p) {
    super(p.message || 'the call failed')
    this.code = p.code || 'internal'
    this.hint = p.hint || ''
    this.retryable = p.retryable || false
    this.status = p.status || 0
  }
}

/** @typedef {{ value: any, index: number, staleFor: number, leader: string }} Answer */

// Tabs of this page share the secret: a new tab asks the others for it. Only pages of this very address hear each other.
const tabs = new BroadcastChannel('outspan-page')
tabs.onmessage = e => {
  if (e.data === 'ask' && secret) tabs.postMessage({ secret })
}

/** @returns {Promise<string | null>} */
function askTabs() {
  return new Promise(done => {
    const ear = new BroadcastChannel('outspan-page')
    const end = (/** @type {string | null} */ s) => { ear.close(); done(s) }
    const timer = setTimeout(() => end(null), 500)
    ear.onmessage = e => {
      if (e.data && typeof e.data.secret === 'string') { clearTimeout(timer); end(e.data.secret) }
    }
    ear.postMessage('ask')
  })
}

/**
 * Gets the secret: by the code in the address, from this tab's memory, or from another tab.
 * @returns {Promise<CallError | null>} null when the page is in
 */
export async function enter() {
  const code = /^#([0-9a-f]{64})$/.exec(location.hash)
  if (code) {
    history.replaceState(null, '', location.pathname + '#/fleet') // the code must not stay in the history
    try {
      const got = await fetch('/ui/session', {
        method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code: code[1] }),
      })
      const body = await got.json()
      if (!got.ok) return new CallError(body)
      secret = body.secret
    } catch {
      return gone()
    }
  } else {
    secret = sessionStorage.getItem(KEY) || await askTabs()
  }
  if (!secret) return new CallError({ code: 'page_not_entered', message: 'this page was opened without its link' })
  sessionStorage.setItem(KEY, secret)
  return null
}

let lastFailed = 0 // when a call failed last, by performance.now(); 0: a call was answered since
let over = false // two calls in a row got no answer: nothing is asked any more, since another program may get the port

/** @returns {CallError} an error that is worth a retry until outspan ui counts as ended */
function gone() {
  return new CallError({ code: 'page_gone', message: 'outspan ui does not answer' + (over ? ': it has ended' : ''), retryable: !over })
}

/** @param {boolean} changes whether the call changes something */
function cutOff(changes) {
  return new CallError({ code: 'cut_off', retryable: true, message: 'the answer was cut off' + (changes ? ': the change may have been made' : '') })
}

/**
 * Calls an operation of the API.
 * @param {string} method
 * @param {string} path beginning with /v1/, its parts escaped
 * @param {{ query?: Record<string, string>, body?: any, signal?: AbortSignal, lines?: boolean }} [o] lines: the answer
 * has a JSON object on each line
 * @returns {Promise<Answer>} throws a CallError; an AbortError if signal ends it
 */
export async function call(method, path, o = {}) {
  const query = new URLSearchParams(o.query).toString()
  /** @type {Record<string, string>} */
  const headers = { [HEADER]: secret || '' }
  if (o.lines) headers.Accept = 'application/x-ndjson'
  if (o.body !== undefined) headers['Content-Type'] = 'application/json'
  if (over) throw gone()
  const begun = performance.now(), changes = method !== 'GET' && !o.query?.dry_run
  let got, text
  try {
    got = await fetch(path + (query && '?' + query), {
      method, headers, body: o.body === undefined ? undefined : JSON.stringify(o.body), signal: o.signal,
    })
  } catch (e) {
    if (o.signal && o.signal.aborted) throw e
    over ||= lastFailed > 0 && begun > lastFailed // calls that fail together count once
    lastFailed = performance.now()
    throw gone()
  }
  lastFailed = 0
  try {
    text = await got.text()
  } catch (e) {
    if (o.signal && o.signal.aborted) throw e
    throw cutOff(changes)
  }
  if (!got.ok) {
    let problem = { message: 'the answer can\'t be read' }
    try { problem = JSON.parse(text) } catch { /* keep the message */ }
    throw new CallError({ ...problem, status: got.status })
  }
  let value
  try {
    value = o.lines ? text.split('\n').filter(Boolean).map(line => JSON.parse(line)) : text ? JSON.parse(text) : null
  } catch {
    throw cutOff(changes)
  }
  return {
    value,
    index: Number(got.headers.get('Outspan-Index')) || 0,
    staleFor: Number(got.headers.get('Outspan-Stale-Ms')) || 0,
    leader: got.headers.get('Outspan-Leader') || '',
  }
}

/**
 * Writes, and repeats the same request while its outcome is open: the servers carry it out once.
 * @param {string} method
 * @param {string} path
 * @param {{ query?: Record<string, string>, body?: any }} [o]
 * @returns {Promise<Answer>}
 */
export async function write(method, path, o = {}) {
  const query = { request_id: crypto.randomUUID(), ...o.query }
  for (let tries = 1; ; tries++) {
    try {
      return await call(method, path, { ...o, query })
    } catch (e) {
      if (!(e instanceof CallError) || !e.retryable || tries === 5) throw e
      await new Promise(done => setTimeout(done, 500 * tries))
    }
  }
}
