// Draws the map of the fleet: a layout by rack, and pixels for each node. Only cells that changed are drawn.
import { INSTANCE, NODE, NONE, STATE } from './frames.js'
import { mix, pixel, Pixels } from './pixels.js'
import { place } from './racks.js'

const SIZES = [64, 48, 40, 32, 28, 24, 20, 18, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4] // of a cell, in CSS pixels
const INSIDE = 12 // from this size on a cell shows the instances of its node
const GOOD = 8 // CSS pixels: no cell is smaller, unless the map is then several times as high as its place
const MOST = 4e6 // pixels of the canvas
const TRAIL = 600,
  STEPS = 6 // ms for which a change stays marked, and the steps in which the mark fades

/** The colours of the page that the map is made of. Of class and load there are five each. */
const NAMES = [
  'surface',
  'line',
  'accent',
  'move',
  'warn',
  'bad',
  'idle',
  'c0',
  'c1',
  'c2',
  'c3',
  'c4',
  'l0',
  'l1',
  'l2',
  'l3',
  'l4',
]
const SURFACE = 0,
  LINE = 1,
  ACCENT = 2,
  MOVE = 3,
  WARN = 4,
  BAD = 5,
  IDLE = 6,
  CLASS = 7,
  LOAD = 12

/** @typedef {import('./racks.js').Rack} Rack */

export class Painter extends Pixels {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    super()
    this.canvas = canvas
    this.context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false }))
    /** @type {Rack[]} */
    this.racks = []
    this.cell = 0 // CSS pixels
    this.height = 0
    this.scale = 1 // pixels for each CSS pixel
    this.step = 2 // pixels for each instance, so that those of three nodes in four have room
    /** @type {import('./frames.js').Picture | null} */
    this.picture = null
    /** @type {Int32Array[]} by handle: of a node the first instance, of an instance the next and the previous one */
    this.lists = []
    /** @type {(group: number) => number} */
    this.classOf = () => 0
    this.dim = /** @type {(node: number) => boolean} */ (() => false)
    this.at = new Int32Array(0) // by node: twice the position of its rack, or -1; then that in the rack
    /** @type {Set<number>} */
    this.dirty = new Set()
    /** @type {Map<number, [begun: number, step: number]>} */
    this.trail = new Map()
    this.still = matchMedia('(prefers-reduced-motion: reduce)')
    this.due = 0
    this.timer = 0
    this.colour()
  }

  /** Reads the colours around the map, which depend on what the person prefers. */
  colour() {
    const rgb = NAMES.map(name => {
      this.canvas.style.color = `var(--${name})`
      const text = getComputedStyle(this.canvas).color // rgb(0, 0, 0), or color(srgb 0 0 0) of a mixed one
      const [r, g, b] = (text.match(/[\d.]+/g) || []).map(n => Math.round(Number(n) * (text[0] === 'c' ? 255 : 1)))
      return (r << 16) | (g << 8) | b
    })
    this.plain = Uint32Array.from(rgb, pixel)
    this.faint = Uint32Array.from(rgb, c => pixel(mix(c, rgb[SURFACE], 0.8)))
    this.fading = Uint32Array.from({ length: STEPS }, (_, i) => pixel(mix(rgb[ACCENT], rgb[SURFACE], i / STEPS)))
  }

  /** @param {import('./frames.js').Picture} p */
  show(p) {
    this.picture = p
    this.trail.clear()
    this.lists = [
      new Int32Array(p.nodes.length).fill(-1),
      new Int32Array(p.instances.length).fill(-1),
      new Int32Array(p.instances.length).fill(-1),
    ]
    for (let h = 0; h < p.instances.length; h++)
      if (p.instances.columns[STATE][h]) this.link(h, p.instances.columns[INSTANCE.node][h])
  }

  /** @param {number} h @param {number} node */
  link(h, node) {
    const [first, next, before] = this.lists
    if (node === NONE || node >= first.length) return
    next[h] = first[node]
    before[h] = -1
    if (next[h] >= 0) before[next[h]] = h
    first[node] = h
  }

  /** @param {number} h @param {number} node */
  unlink(h, node) {
    const [first, next, before] = this.lists
    if (node === NONE || node >= first.length) return
    if (next[h] >= 0) before[next[h]] = before[h]
    if (before[h] >= 0) next[before[h]] = next[h]
    else if (first[node] === h) first[node] = next[h]
  }

  /**
   * Takes over what has changed.
   * @param {import('./frames.js').Dirty} dirty
   */
  change(dirty) {
    const p = /** @type {import('./frames.js').Picture} */ (this.picture)
    this.lists = [
      grown(this.lists[0], p.nodes.length),
      grown(this.lists[1], p.instances.length),
      grown(this.lists[2], p.instances.length),
    ]
    const now = performance.now()
    const mark = (/** @type {number} */ node) => {
      if (node === NONE) return
      this.dirty.add(node)
      if (!this.still.matches) this.trail.set(node, [now, 0])
    }
    for (const h of dirty.nodes) mark(h)
    dirty.instances.forEach((h, i) => {
      const before = dirty.left[2 * i],
        after = p.instances.columns[STATE][h] ? p.instances.columns[INSTANCE.node][h] : NONE
      if (before !== after) {
        this.unlink(h, before)
        this.link(h, after)
      }
      mark(before)
      mark(after)
    })
    this.schedule()
  }

  /** The instances on a node, those of a group together. @param {number} node */
  instancesOn(node) {
    const { columns } = /** @type {import('./frames.js').Picture} */ (this.picture).instances,
      all = []
    for (let h = this.lists[0][node] ?? -1; h >= 0; h = this.lists[1][h]) all.push(h)
    return all.sort(
      (a, b) =>
        columns[INSTANCE.group][a] - columns[INSTANCE.group][b] ||
        columns[INSTANCE.slot][a] - columns[INSTANCE.slot][b] ||
        a - b,
    )
  }

  /** @param {number} node */
  countOn(node) {
    let n = 0
    for (let h = this.lists[0][node] ?? -1; h >= 0; h = this.lists[1][h]) n++
    return n
  }

  /**
   * Gives each node its place, and draws all.
   * @param {[name: string, handles: number[]][]} racks
   * @param {number} width @param {number} height which it takes if the cells need no larger one, in CSS pixels
   * @param {number} zoom how many sizes larger the cells are than what fits
   */
  layOut(racks, width, height, zoom) {
    this.scale = Math.min(2, devicePixelRatio || 1)
    let fits = SIZES.findIndex(cell => place(racks, cell, width).height <= height)
    const good = SIZES.indexOf(GOOD)
    if ((fits < 0 || fits > good) && place(racks, GOOD, width).height < 3 * height) fits = good
    if (fits < 0) fits = SIZES.length - 1
    let i = Math.max(0, fits - zoom)
    const large = () => width * place(racks, SIZES[i], width).height * this.scale ** 2 > MOST
    while (i < fits && large()) i++
    this.cell = SIZES[i]
    const placed = place(racks, this.cell, width)
    this.racks = placed.racks
    this.height = placed.height
    this.at = new Int32Array(2 * (this.picture?.nodes.length || 0)).fill(-1)
    this.racks.forEach((rack, r) =>
      rack.handles.forEach((h, n) => {
        this.at[2 * h] = r
        this.at[2 * h + 1] = n
      }),
    )
    const w = Math.max(1, Math.round(width * this.scale)),
      h = Math.max(1, Math.round(this.height * this.scale))
    if (this.image.width !== w || this.image.height !== h) {
      this.canvas.width = w
      this.canvas.height = h
      this.resize(w, h)
    }
    const size = Math.floor(this.cell * this.scale * 0.8),
      counts = racks.flatMap(([, handles]) => handles.map(node => this.countOn(node))).sort((a, b) => a - b)
    const usual = counts[Math.floor(counts.length * 0.75)] || 1
    this.step = Math.floor(Math.min(12 * this.scale, size / 2))
    while (this.step > 2 && Math.floor(size / this.step) ** 2 < usual) this.step--
    this.drawAll()
    return { cell: this.cell, smallest: i >= fits, largest: i === 0 || (i--, large()) }
  }

  drawAll() {
    this.pixels.fill(this.plain?.[SURFACE] || 0)
    this.dirty.clear()
    for (const rack of this.racks) for (const h of rack.handles) this.drawCell(h)
    this.context.putImageData(this.image, 0, 0)
  }

  /** @param {number} node @returns {[x: number, y: number]} of its cell, in CSS pixels */
  placeOf(node) {
    const rack = this.racks[this.at[2 * node]],
      n = this.at[2 * node + 1]
    return rack ? [rack.x + (n % rack.wide) * this.cell, rack.y + Math.floor(n / rack.wide) * this.cell] : [-99, -99]
  }

  /** @param {number} x @param {number} y @returns {number} the node there; -1: none */
  nodeAt(x, y) {
    for (const r of this.racks) {
      const column = Math.floor((x - r.x) / this.cell),
        row = Math.floor((y - r.y) / this.cell)
      if (column >= 0 && column < r.wide && row >= 0 && row < r.rows) return r.handles[row * r.wide + column] ?? -1
    }
    return -1
  }

  /**
   * The next node in a direction.
   * @param {number} node @param {number} dx @param {number} dy one of the two is 0
   */
  next(node, dx, dy) {
    const [x, y] = this.placeOf(node)
    let best = node,
      least = Infinity
    for (const rack of this.racks) {
      for (const h of rack.handles) {
        const [x2, y2] = this.placeOf(h),
          along = (x2 - x) * dx + (y2 - y) * dy,
          aside = Math.abs((x2 - x) * dy) + Math.abs((y2 - y) * dx)
        if (along > 0 && along + 4 * aside < least) {
          least = along + 4 * aside
          best = h
        }
      }
    }
    return best
  }

  /** Draws what has changed with the next picture of the browser. */
  schedule() {
    this.due ||= requestAnimationFrame(() => {
      this.due = 0
      this.draw()
    })
  }

  end() {
    cancelAnimationFrame(this.due)
    clearTimeout(this.timer)
  }

  draw() {
    const now = performance.now()
    for (const [h, mark] of this.trail) {
      const step = Math.floor(((now - mark[0]) * STEPS) / TRAIL)
      if (step === mark[1]) continue
      mark[1] = step
      if (step >= STEPS) this.trail.delete(h)
      this.dirty.add(h)
    }
    /** @type {Map<number, number[]>} what has to be put on the canvas, by rack */
    const parts = new Map()
    for (const h of this.dirty) {
      const r = this.at[2 * h] ?? -1
      if (r < 0) continue
      const [x, y] = this.drawCell(h),
        part = parts.get(r),
        end = Math.ceil(this.cell * this.scale)
      if (!part) parts.set(r, [x, y, x + end, y + end])
      else {
        part[0] = Math.min(part[0], x)
        part[1] = Math.min(part[1], y)
        part[2] = Math.max(part[2], x + end)
        part[3] = Math.max(part[3], y + end)
      }
    }
    this.dirty.clear()
    for (const [x, y, x2, y2] of parts.values()) this.context.putImageData(this.image, 0, 0, x, y, x2 - x, y2 - y)
    clearTimeout(this.timer)
    if (this.trail.size > 0) this.timer = setTimeout(() => this.schedule(), TRAIL / STEPS / 2)
  }

  /** @param {number} h a node @returns {[x: number, y: number]} in pixels of the image */
  drawCell(h) {
    const { columns } = /** @type {import('./frames.js').Picture} */ (this.picture).nodes,
      state = columns[STATE][h]
    const [cx, cy] = this.placeOf(h),
      x = Math.round(cx * this.scale),
      y = Math.round(cy * this.scale)
    const line = Math.max(1, Math.round(this.scale)),
      size = Math.floor(this.cell * this.scale) - (this.cell < 9 ? line : 2 * line)
    const colours = this.dim(h) ? this.faint : this.plain
    if (!colours || !this.fading) return [x, y]
    const share = (/** @type {number} */ part, /** @type {number} */ whole) =>
      columns[whole][h] ? columns[part][h] / columns[whole][h] : 0
    const load = Math.min(1, Math.max(share(NODE.cpuPlaced, NODE.cpu), share(NODE.memoryPlaced, NODE.memory)))
    const used = colours[LOAD + Math.min(4, Math.floor(load * 5))],
      inside = this.cell >= INSIDE
    const runs = state < 6 // else its bar would say what nobody knows
    this.fill(x, y, size, size, colours[state === 0 ? SURFACE : LINE])
    const high = runs ? Math.max(load > 0 ? line : 0, Math.round(load * size)) : 0,
      wide = inside ? Math.max(2 * line, Math.round(size / 10)) : size
    this.fill(x, y + size - high, wide, high, used)
    this.drawState(x, y, size, line, state, colours)
    if (inside) this.drawInside(h, x + wide + line, y + line, size - wide - 2 * line, size - 2 * line, line, colours)
    if (state === 7) this.lines(x, y, size, size, inside ? 2 * line : line, colours[BAD], true)
    const mark = this.trail.get(h)
    if (mark && mark[1] < STEPS) this.frame(x, y, size, size, line, this.fading[mark[1]])
    return [x, y]
  }

  /**
   * The state of a node, by shape and colour.
   * @param {number} x @param {number} y @param {number} size @param {number} line @param {number} state
   * @param {Uint32Array} colours
   */
  drawState(x, y, size, line, state, colours) {
    switch (state) {
      case 2:
        return this.frame(x, y, size, size, line, colours[IDLE]) // cordoned: hollow
      case 3:
        return this.lines(x, y, size, size, line, colours[MOVE], false) // draining: hatched
      case 4:
        // disabled: a square
        return this.frame(x + 2 * line, y + 2 * line, size - 4 * line, size - 4 * line, line, colours[IDLE])
      case 5: // degraded: a triangle
        for (let i = 0; i < size * 0.6; i++) this.fill(x, y + i, Math.ceil(size * 0.6) - i, 1, colours[WARN])
        return
      case 6: // unreachable: dashed
        this.frame(x, y, size, size, line, colours[WARN])
        for (let i = 2 * line; i < size - line; i += 4 * line) {
          for (const [dx, dy] of [
            [i, 0],
            [i, size - line],
            [0, i],
            [size - line, i],
          ])
            this.fill(x + dx, y + dy, line, line, colours[LINE])
        }
        return
      case 8:
        // only its name is known
        return this.fill(x + (size >> 2), y + (size >> 2), size >> 1, size >> 1, colours[IDLE])
    }
  }

  /**
   * The instances of a node: the class by colour, the state by shape.
   * @param {number} node @param {number} x @param {number} y @param {number} w @param {number} h
   * @param {number} line @param {Uint32Array} colours
   */
  drawInside(node, x, y, w, h, line, colours) {
    const all = this.instancesOn(node),
      { columns } = /** @type {import('./frames.js').Picture} */ (this.picture).instances
    let step = Math.min(this.step, w, h)
    while (step > 2 && Math.floor(w / step) * Math.floor(h / step) < all.length) step--
    const across = Math.floor(w / step),
      down = Math.floor(h / step),
      gap = step > 3 * line ? line : step > 2 ? 1 : 0,
      q = step - gap
    for (let i = 0; i < all.length && i < across * down; i++) {
      const state = columns[STATE][all[i]],
        seen = state & 15,
        px = x + (i % across) * step,
        py = y + Math.floor(i / across) * step
      const colour = colours[CLASS + this.classOf(columns[INSTANCE.group][all[i]])]
      if (seen > 6) this.lines(px, py, q, q, Math.max(1, q >> 2), colours[BAD], true)
      else if (seen === 6) this.frame(px, py, q, q, 1, colours[IDLE])
      else if (state & 0x30 || seen === 5) this.lines(px, py, q, q, 1, colour, false)
      else if (seen < 3) this.frame(px, py, q, q, line, colour)
      else if (seen === 4) for (let n = 0; n < q; n++) this.fill(px, py + n, n + 1, 1, colours[WARN])
      else this.fill(px, py, q, q, colour)
    }
  }
}

/** @param {Int32Array} list @param {number} n */
function grown(list, n) {
  if (n <= list.length) return list
  const longer = new Int32Array(Math.max(n, Math.ceil(list.length * 1.25))).fill(-1)
  longer.set(list)
  return longer
}
