// Numbers, times and states in words.

/**
 * @param {number} s
 * @param {number} large
 * @param {string} largeUnit
 * @param {number} small
 * @param {string} smallUnit
 */
function two(s, large, largeUnit, small, smallUnit) {
  const rest = Math.floor((s % large) / small)
  return `${Math.floor(s / large)} ${largeUnit}${rest ? ` ${rest} ${smallUnit}` : ''}`
}

/** @param {number} ms */
export function span(ms) {
  if (isNaN(ms)) return 'unknown'
  const s = Math.max(0, Math.round(ms / 1000))
  if (s < 60) return `${s} s`
  if (s < 3600) return `${Math.floor(s / 60)} min`
  if (s < 86400) return two(s, 3600, 'h', 60, 'min')
  if (s >= 864000) return `${Math.floor(s / 86400)} d`
  return two(s, 86400, 'd', 3600, 'h')
}

/** @param {string} text a duration of the API, such as 2s239ms; 0s means unknown */
export function duration(text) {
  const units = /** @type {Record<string, number>} */ ({ d: 86400000, h: 3600000, m: 60000, s: 1000, ms: 1 })
  let ms = 0
  for (const [, n, unit] of text.matchAll(/([\d.]+)(ms|[dhms])/g)) ms += Number(n) * units[unit]
  return ms ? span(Math.max(1000, ms)) : ''
}

/** @param {number} bytes */
export function bytes(bytes) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
  let i = 0
  while (bytes >= 1023.5 && i < units.length - 1) {
    bytes /= 1024
    i++
  }
  return `${bytes >= 100 || Number.isInteger(bytes) ? Math.round(bytes) : bytes.toFixed(1)} ${units[i]}`
}

/** @param {number} n */
export const number = n => n.toLocaleString('en')

/**
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export const count = (n, one, many = one + 's') => `${number(n)} ${n === 1 ? one : many}`

/** @param {string | null | undefined} time in RFC 3339 */
export function stamp(time) {
  if (!time) return ''
  const d = new Date(time)
  if (isNaN(d.getTime())) return time
  const day = d.toDateString() === new Date().toDateString() ? '' : d.toLocaleDateString('sv') + ' ' // as 2026-11-30
  return day + d.toTimeString().slice(0, 8)
}

const collator = new Intl.Collator('en', { numeric: true })

/**
 * Compares numbers, or texts in the order of people: n2 before n10.
 * @param {string | number} a
 * @param {string | number} b
 */
export const compare = (a, b) =>
  typeof a === 'number' && typeof b === 'number' ? a - b : collator.compare(String(a), String(b))

/** @param {string} text @returns {string} as one word of a shell */
export const quoted = text => (/^[\w.\/:@%+=-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)

const steps = ['stopping', 'replacement_pending', 'image_pulling', 'replica_evicting']

/**
 * Whether a blocker is only a step of what goes on, which nobody has to look at.
 * @param {{ code: string, unblock?: string }} b
 */
export const goesOn = b => steps.includes(b.code) && !b.unblock

/** @param {string} code such as budget_rate */
export const words = code => code.replaceAll('_', ' ').replace(/:(?! )/, ': ')

/**
 * The shapes of states. A shape and a word always stand together; the colour only repeats them.
 * @type {Record<string, Record<string, [shape: string, tone: string]>>}
 */
const shapes = {
  node: {
    active: ['solid', 'ok'],
    cordoned: ['hollow', 'idle'],
    draining: ['hatched', 'move'],
    degraded: ['triangle', 'warn'],
    unreachable: ['dashed', 'warn'],
    offline: ['cross', 'bad'],
    disabled: ['square', 'idle'],
  },
  instance: {
    pending: ['hollow', 'move'],
    booting: ['hollow', 'move'],
    ready: ['solid', 'ok'],
    unready: ['triangle', 'warn'],
    draining: ['hatched', 'move'],
    stopped: ['square', 'idle'],
    failed: ['cross', 'bad'],
    lost: ['cross', 'bad'],
  },
  job: {
    running: ['solid', 'ok'],
    pending: ['hollow', 'warn'],
    starting: ['hollow', 'move'],
    degraded: ['triangle', 'warn'],
    stopping: ['hatched', 'move'],
    stopped: ['square', 'idle'],
  },
  deployment: {
    queued: ['hollow', 'idle'],
    rolling: ['hatched', 'move'],
    succeeded: ['solid', 'ok'],
    failed: ['cross', 'bad'],
    superseded: ['square', 'idle'],
  },
  drain: {
    draining: ['hatched', 'move'],
    paused: ['square', 'warn'],
    drained: ['solid', 'ok'],
    failed: ['cross', 'bad'],
    canceled: ['square', 'idle'],
    waiting: ['hollow', 'idle'],
  },
}

/**
 * @param {string} kind
 * @param {string} state
 * @returns {[shape: string, tone: string]}
 */
export const shapeOf = (kind, state) =>
  shapes[kind] && Object.hasOwn(shapes[kind], state) ? shapes[kind][state] : ['hollow', 'idle']

/** The states of jobs, the worst first. */
export const jobStates = ['degraded', 'pending', 'starting', 'stopping', 'running', 'stopped']

/** The states of instances, the worst first. */
export const instanceStates = ['failed', 'lost', 'unready', 'draining', 'pending', 'booting', 'ready', 'stopped']

/** The states of nodes, the worst first. */
export const nodeStates = ['offline', 'unreachable', 'degraded', 'draining', 'cordoned', 'disabled', 'active']

/**
 * Splits a text into words and commands of outspan.
 * @param {string} text
 * @returns {{ text: string, command: boolean }[]}
 */
export function commandsIn(text) {
  const parts = []
  let at = 0
  for (const m of text.matchAll(
    /\boutspan [a-z][a-z-]*(?: (?!(?:to|and|or|shows|says|after|when|if|on)\b)[^\s;,()`$|&]+)*/g,
  )) {
    const command = m[0].replace(/[.:]$/, '')
    if (m.index > at) parts.push({ text: text.slice(at, m.index), command: false })
    parts.push({ text: command, command: true })
    at = m.index + command.length
  }
  if (at < text.length) parts.push({ text: text.slice(at), command: false })
  return parts
}

/**
 * The address in the page of an object such as node/n1.
 * @param {string} subject
 */
export function linkTo(subject) {
  const [kind, ...rest] = subject.split('/')
  const name = encodeURIComponent(rest.join('/'))
  switch (kind) {
    case 'node':
      return '#/nodes/' + name
    case 'job':
      return '#/jobs/' + name
    case 'group':
      return '#/jobs/' + encodeURIComponent(rest[0])
    case 'instance':
      return '#/instances/' + name
    case 'drain':
      return '#/drains/' + name
    case 'deployment':
      return '#/jobs/' + name.replace(/-\d+$/, '')
    case 'server':
      return '#/servers/' + name
  }
  return ''
}
