// How the page gets in, and how it calls the API.
import { headersOf } from './pass.js'

const KEY = 'outspan-page-secret'

/** @type {string | null} */
let secret = null // of a page of outspan ui

/** Whether people sign in to this page at a server. Otherwise it is that of outspan ui, which is entered by a link. */
export const signIn = document.querySelector('meta[name=way]')?.getAttribute('content') === 'sign-in'

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

/** @typedef {{ value: any, text: string, index: number, staleFor: number, leader: string }} Answer */

// Tabs of this page share the secret: a new tab asks the others for it. Only pages of this very address hear each
// other.
const tabs = new BroadcastChannel('outspan-page')
tabs.onmessage = e => {
  if (e.data === 'ask' && secret) tabs.postMessage({ secret })
}

/** @returns {Promise<string | null>} */
function askTabs() {
  return new Promise(done => {
    const ear = new BroadcastChannel('outspan-page')
    const end = (/** @type {string | null} */ s) => {
      ear.close()
      done(s)
    }
    const timer = setTimeout(() => end(null), 500)
    ear.onmessage = e => {
      if (e.data && typeof e.data.secret === 'string') {
        clearTimeout(timer)
        end(e.data.secret)
      }
    }
    ear.postMessage('ask')
  })
}

let session = '' // at a server: which sign-in this is

/**
 * What this tab shows to the worker that reads the stream for all tabs: the secret, or which sign-in this is. The
 * browser's cookie goes with each request by itself.
 */
export const passOf = () => (signIn ? { session } : { secret: secret || '' })

/** Where a tab keeps the job files that were changed and not run. */
export const DRAFTS = 'outspan-drafts'
const RETURN = 'outspan-return' // where somebody was before the trip to the provider
const CALLBACK = '/ui/callback'

/** Who signs people in besides access tokens, or "". */
export let provider = ''

/**
 * Asks the server of the page something about signing in.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 */
async function door(method, path, body) {
  let got, answer
  try {
    got = await fetch('/ui/' + path, {
      method,
      headers: body ? { 'Content-Type': 'application/json' } : {},
      body: body && JSON.stringify(body),
    })
    answer = await got.json()
  } catch {
    throw gone()
  }
  if (!got.ok) throw new CallError({ ...answer, status: got.status })
  return answer
}

/**
 * Signs in with an access token. Throws a CallError.
 * @param {string} token
 */
export const enterWith = token => door('POST', 'session', { token })

/** Leaves for the provider. The screen that is shown now is shown again afterwards. Throws a CallError. */
export async function leaveForProvider() {
  const { address } = await door('POST', 'sign-in')
  sessionStorage.setItem(RETURN, location.hash)
  location.assign(address)
}

/** Signs out, and shows the way in again. Throws a CallError. */
export async function signOut() {
  await door('DELETE', 'session')
  sessionStorage.clear()
  location.reload()
}

/** @returns {Promise<CallError | null>} null when somebody is signed in */
async function knock() {
  let failed = null
  if (location.pathname === CALLBACK) {
    const back = new URLSearchParams(location.search),
      hash = sessionStorage.getItem(RETURN) || ''
    sessionStorage.removeItem(RETURN)
    // the code must not stay in the history
    history.replaceState(null, '', '/' + (hash.startsWith('#/') ? hash : '#/fleet'))
    try {
      await door('POST', 'sign-in/finish', {
        code: back.get('code') || '',
        state: back.get('state') || '',
        error: back.get('error') || '',
      })
    } catch (e) {
      failed = /** @type {CallError} */ (e)
    }
  }
  try {
    const told = await door('GET', 'session')
    provider = told.provider || ''
    session = told.id || ''
    return told.subject ? null : failed || new CallError({ code: 'page_not_entered' })
  } catch (e) {
    return /** @type {CallError} */ (e)
  }
}

/**
 * Gets in. At a server: by the cookie, or back from the provider. Otherwise it gets the secret: by the code in the
 * address, from this tab's memory, or from another tab.
 * @returns {Promise<CallError | null>} null when the page is in
 */
export async function enter() {
  if (signIn) return knock()
  const code = /^#([0-9a-f]{64})$/.exec(location.hash)
  if (code) {
    history.replaceState(null, '', location.pathname + '#/fleet') // the code must not stay in the history
    try {
      const got = await fetch('/ui/session', {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ code: code[1] }),
      })
      const body = await got.json()
      if (!got.ok) return new CallError(body)
      secret = body.secret
    } catch {
      return gone()
    }
  } else {
    secret = sessionStorage.getItem(KEY) || (await askTabs())
  }
  if (!secret) return new CallError({ code: 'page_not_entered', message: 'this page was opened without its link' })
  sessionStorage.setItem(KEY, secret)
  return null
}

let lastFailed = 0 // when a call failed last, by performance.now(); 0: a call was answered since
let over = false // two calls in a row got no answer: nothing is asked any more, since another program may get the port

/** @returns {CallError} an error that is worth a retry until outspan ui counts as ended */
function gone() {
  if (signIn)
    return new CallError({ code: 'page_gone', message: 'the server of this page does not answer', retryable: true })
  return new CallError({
    code: 'page_gone',
    message: 'outspan ui does not answer' + (over ? ': it has ended' : ''),
    retryable: !over,
  })
}

/** @param {boolean} changes whether the call changes something */
function cutOff(changes) {
  return new CallError({
    code: 'cut_off',
    retryable: true,
    message: 'the answer was cut off' + (changes ? ': the change may have been made' : ''),
  })
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
  const headers = headersOf(passOf())
  if (o.lines) headers.Accept = 'application/x-ndjson'
  if (o.body !== undefined) headers['Content-Type'] = 'application/json'
  if (over) throw gone()
  const begun = performance.now(),
    changes = method !== 'GET' && !o.query?.dry_run
  let got, text
  try {
    got = await fetch(path + (query && '?' + query), {
      method,
      headers,
      body: o.body === undefined ? undefined : JSON.stringify(o.body),
      signal: o.signal,
    })
  } catch (e) {
    if (o.signal && o.signal.aborted) throw e
    over ||= !signIn && lastFailed > 0 && begun > lastFailed // calls that fail together count once
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
    let problem = { message: "the answer can't be read" }
    try {
      problem = JSON.parse(text)
    } catch {
      /* keep the message */
    }
    throw new CallError({ ...problem, status: got.status })
  }
  let value
  try {
    value = o.lines
      ? text
          .split('\n')
          .filter(Boolean)
          .map(line => JSON.parse(line))
      : text
        ? JSON.parse(text)
        : null
  } catch {
    throw cutOff(changes)
  }
  return {
    value,
    text,
    index: Number(got.headers.get('Outspan-Index')) || 0,
    staleFor: Number(got.headers.get('Outspan-Stale-Ms')) || 0,
    leader: got.headers.get('Outspan-Leader') || '',
  }
}

/**
 * Opens a stream of bytes, such as logs.
 * @param {string} path
 * @param {Record<string, string>} query
 * @param {AbortSignal} signal
 * @returns {Promise<ReadableStream<Uint8Array>>} throws a CallError; an AbortError if signal ends it
 */
export async function open(path, query, signal) {
  if (over) throw gone()
  let got
  try {
    got = await fetch(`${path}?${new URLSearchParams(query)}`, { headers: headersOf(passOf()), signal })
  } catch (e) {
    if (signal.aborted) throw e
    throw gone()
  }
  if (got.ok && got.body) return got.body
  throw new CallError({
    ...(await got.json().catch(() => ({ message: "the answer can't be read" }))),
    status: got.status,
  })
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
      const got = await call(method, path, { ...o, query })
      if (!o.query?.dry_run) dispatchEvent(new Event('outspan-wrote'))
      return got
    } catch (e) {
      if (!(e instanceof CallError) || !e.retryable || tries === 5) throw e
      await new Promise(done => setTimeout(done, 500 * tries))
    }
  }
}
