// Decodes the page's stream: docs/page-stream.md describes its format. The rows are in typed arrays, by handle.

/** The position of the columns. The first one is the state; 0 means that there is no row. */
export const STATE = 0
export const NODE = { cpu: 1, memory: 2, cpuPlaced: 3, memoryPlaced: 4, instances: 5 }
export const INSTANCE = { node: 1, group: 2, slot: 3 }

/** The handle of no row. */
export const NONE = 0xffffffff

/** The names of the states, by their number. */
export const nodeStates = [
  '',
  'active',
  'cordoned',
  'draining',
  'disabled',
  'degraded',
  'unreachable',
  'offline',
  'named',
]
export const observedStates = ['', 'pending', 'booting', 'ready', 'unready', 'draining', 'stopped', 'failed', 'lost']

const RESET = 1,
  WHOLE = 2,
  ALONE = 4
const MOST_BYTES = 1 << 20,
  MOST_HANDLES = 1 << 20
const BANNER = 1,
  COUNTS = 2,
  NODES = 3,
  GROUPS = 4,
  INSTANCES = 5
const TEXT = 0,
  RANGE = 1,
  LIST = 2
const NAMES = 255 // the width of a column of names

const padded = (/** @type {number} */ n) => (n + 7) & ~7
const words = new TextDecoder()

/** @returns {never} */
const fail = (/** @type {string} */ what) => {
  throw new Error('read a frame: ' + what)
}

/** Cuts a stream of bytes into frames. */
export class Cutter {
  constructor() {
    this.head = new Uint8Array(4)
    /** @type {Uint8Array | null} */
    this.frame = null
    this.filled = 0
  }

  /**
   * @param {Uint8Array} bytes the next bytes of the stream
   * @returns {ArrayBuffer[]} the frames that they complete
   */
  push(bytes) {
    const done = []
    for (let at = 0; at < bytes.length; ) {
      const to = this.frame || this.head
      const n = Math.min(to.length - this.filled, bytes.length - at)
      to.set(bytes.subarray(at, at + n), this.filled)
      this.filled += n
      at += n
      if (this.filled < to.length) break
      if (this.frame) {
        done.push(/** @type {ArrayBuffer} */ (this.frame.buffer))
        this.frame = null
        this.filled = 0
      } else {
        const length = new DataView(this.head.buffer).getUint32(0, true)
        if (length < 24 || length > MOST_BYTES || length % 8) fail(`it can't have ${length} bytes`)
        this.frame = new Uint8Array(length)
        this.frame.set(this.head)
      }
    }
    return done
  }
}

/** A table in columns. All columns have room for the same number of handles; length says how many are used. */
export class Table {
  /** @param {number} columns @param {boolean} named */
  constructor(columns, named) {
    this.columns = Array.from({ length: columns }, () => new Uint32Array(0))
    this.names = named ? /** @type {string[]} */ ([]) : null
    this.length = 0
  }

  /** @param {number} n how many handles there must be */
  grow(n) {
    if (n <= this.length) return
    if (n > this.columns[0].length) {
      const room = Math.max(n, Math.ceil(this.length * 1.25), 64)
      this.columns = this.columns.map(old => {
        const grown = new Uint32Array(room)
        grown.set(old)
        return grown
      })
    }
    for (let h = this.length; this.names && h < n; h++) this.names.push('')
    this.length = n
  }
}

/** @typedef {{ index: number, age: number, alone: boolean, server: string }} Head age in ms; -1: unknown */

/**
 * @typedef {object} Picture what a stream has shown
 * @property {Head} head
 * @property {boolean} whole whether it is exactly the state of the index
 * @property {any} banner
 * @property {any} counts
 * @property {Table} nodes
 * @property {Table} groups
 * @property {Table} instances
 */

/** @returns {Picture} */
const emptyPicture = () => ({
  head: { index: 0, age: -1, alone: false, server: '' },
  whole: false,
  banner: null,
  counts: null,
  nodes: new Table(6, true),
  groups: new Table(1, true),
  instances: new Table(4, false),
})

/**
 * The handles whose rows a frame had. For instances, left has the node and the group that each had before: two numbers
 * for each handle, NONE if it had no row.
 * @typedef {{ nodes: number[], groups: number[], instances: number[], left: number[] }} Dirty
 */

/** Follows one stream. */
export class Reader {
  /** @param {Picture | null} shown what is shown first, such as a copy of another reader's picture */
  constructor(shown = null) {
    this.shown = shown
    /** @type {Picture | null} */
    this.next = null // the snapshot that arrives
  }

  /**
   * Takes one frame. A snapshot replaces what was shown once it is whole. After an error, open a new stream.
   * @param {ArrayBuffer} raw
   * @returns {{ shown: Picture | null, replaced: boolean, dirty: Dirty | null }} shown: null until the first snapshot
   * is whole; replaced: all of it is new; dirty: what has changed in it, null while a snapshot arrives
   */
  apply(raw) {
    const view = new DataView(raw)
    if (raw.byteLength < 24 || view.getUint32(0, true) !== raw.byteLength) fail('its length is wrong')
    if (view.getUint8(4) !== 1) fail(`it has version ${view.getUint8(4)} of the format, and this page knows version 1`)
    const flags = view.getUint8(5),
      age = view.getUint32(16, true),
      name = view.getUint8(20)
    let at = 24 + padded(name)
    if (at > raw.byteLength) fail('the name of the server is cut off')
    if (flags & RESET) {
      this.next = emptyPicture()
      if (this.shown) this.shown.head = { ...this.shown.head, age: -1 }
    }
    const p = this.next || this.shown || fail('the stream begins without a snapshot')
    p.head = {
      index: view.getUint32(8, true) + view.getUint32(12, true) * 2 ** 32,
      age: age === NONE ? -1 : age,
      alone: (flags & ALONE) !== 0,
      server: words.decode(new Uint8Array(raw, 24, name)),
    }
    p.whole = (flags & WHOLE) !== 0
    const dirty = { nodes: [], groups: [], instances: [], left: [] }
    for (let left = view.getUint16(6, true); left > 0; left--) at = section(p, raw, view, at, dirty)
    if (at !== raw.byteLength) fail('bytes follow its sections')
    if (!this.next) return { shown: this.shown, replaced: false, dirty }
    if (!p.whole) return { shown: this.shown, replaced: false, dirty: null }
    this.shown = this.next
    this.next = null
    return { shown: this.shown, replaced: true, dirty: null }
  }
}

/**
 * Takes one section.
 * @param {Picture} p @param {ArrayBuffer} raw @param {DataView} view @param {number} at @param {Dirty} dirty
 * @returns {number} where the next one begins
 */
function section(p, raw, view, at, dirty) {
  if (at + 16 > raw.byteLength) fail('a section is cut off')
  const kind = view.getUint8(at),
    form = view.getUint8(at + 1),
    length = view.getUint32(at + 4, true)
  const rows = view.getUint32(at + 8, true),
    end = at + length
  if (length < 16 || length % 8 || end > raw.byteLength) fail(`a section can't have ${length} bytes`)
  if (form === TEXT) {
    if (16 + rows > length) fail('a text is cut off')
    if (kind === BANNER || kind === COUNTS) {
      p[kind === BANNER ? 'banner' : 'counts'] = JSON.parse(words.decode(new Uint8Array(raw, at + 16, rows)))
    }
    return end
  }
  const table = kind === NODES ? p.nodes : kind === GROUPS ? p.groups : kind === INSTANCES ? p.instances : null
  if (!table) return end // of a newer server
  const extra = view.getUint8(at + 2) - table.columns.length - (table.names ? 1 : 0)
  const first = view.getUint32(at + 12, true)
  let from = at + 16
  const take = (/** @type {number} */ n) => {
    const begin = from
    if (begin + n > end) fail('a column is cut off')
    from += padded(n)
    return begin
  }
  if (extra < 0 || rows === 0 || rows > MOST_HANDLES || (form !== RANGE && form !== LIST)) fail('its handles are wrong')
  const list = form === LIST ? new Uint32Array(raw, take(4 * rows), rows) : null
  const last = list ? list[rows - 1] : first + rows - 1
  if (last >= MOST_HANDLES) fail(`a table can't have a row ${last}`)
  const handles = list || Uint32Array.from({ length: rows }, (_, i) => first + i)
  table.grow(last + 1)
  note(table, kind, handles, dirty)
  const typed = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array }
  for (let c = 0; c < table.columns.length + extra; c++) {
    const header = take(8),
      width = view.getUint8(header),
      value = view.getUint32(header + 4, true)
    const to = table.columns[c] // undefined: a column of a newer server
    if (width === 0) {
      if (to) for (const h of handles) to[h] = value
      continue
    }
    const begin = take(value),
      Values = typed[/** @type {1 | 2 | 4} */ (width)]
    if (!to) continue
    if (!Values || value !== width * rows) fail('a column is cut off')
    const values = new Values(raw, begin, rows)
    if (!list && to.length >= last + 1) to.set(values, first)
    else for (let i = 0; i < rows; i++) to[handles[i]] = values[i]
  }
  if (table.names) {
    const header = take(8),
      total = view.getUint32(header + 4, true)
    if (view.getUint8(header) !== NAMES) fail('the names are cut off')
    const ends = new Uint32Array(raw, take(4 * rows), rows),
      text = take(total)
    for (let i = 0, begin = 0; i < rows; begin = ends[i++]) {
      if (ends[i] < begin || ends[i] > total) fail('a name ends where none can')
      table.names[handles[i]] = words.decode(new Uint8Array(raw, text + begin, ends[i] - begin))
    }
  }
  return end
}

/**
 * Notes which rows are about to change.
 * @param {Table} table @param {number} kind @param {Uint32Array} handles @param {Dirty} dirty
 */
function note(table, kind, handles, dirty) {
  const to = kind === NODES ? dirty.nodes : kind === GROUPS ? dirty.groups : dirty.instances
  for (const h of handles) {
    to.push(h)
    if (kind !== INSTANCES) continue
    const had = table.columns[STATE][h] !== 0
    dirty.left.push(had ? table.columns[INSTANCE.node][h] : NONE, had ? table.columns[INSTANCE.group][h] : NONE)
  }
}

/**
 * A copy of a picture for another tab, and what of it can be handed over without copying it again.
 * @param {Picture} p
 * @returns {[copy: Picture, handOver: ArrayBuffer[]]}
 */
export function copyOf(p) {
  /** @type {ArrayBuffer[]} */
  const handOver = []
  const copy = (/** @type {Table} */ t) => {
    const columns = t.columns.map(c => c.slice(0, t.length))
    handOver.push(...columns.map(c => c.buffer))
    return { columns, names: t.names, length: t.length }
  }
  return [
    /** @type {any} */ ({ ...p, nodes: copy(p.nodes), groups: copy(p.groups), instances: copy(p.instances) }),
    handOver,
  ]
}

/**
 * Makes a picture of a copy that came from another thread.
 * @param {any} copy
 * @returns {Picture}
 */
export function pictureOf(copy) {
  const table = (/** @type {any} */ t) => Object.assign(new Table(0, false), t)
  return { ...copy, nodes: table(copy.nodes), groups: table(copy.groups), instances: table(copy.instances) }
}
