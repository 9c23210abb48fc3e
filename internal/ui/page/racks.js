// Where the racks of the map stand.

const GAP = 12,
  LABEL = 18 // between racks, and above each, in CSS pixels

/**
 * In CSS pixels.
 * @typedef {{ name: string, handles: number[], x: number, y: number, wide: number, rows: number }} Rack
 */

/**
 * @param {[string, number[]][]} racks @param {number} cell @param {number} width
 * @returns {{ racks: Rack[], height: number }}
 */
export function place(racks, cell, width) {
  const most = Math.max(1, ...racks.map(([, handles]) => handles.length))
  const room = Math.max(1, Math.floor(width / cell))
  const wide =
    racks.length === 1 ? room : Math.min(room, Math.max(Math.ceil(Math.sqrt(1.6 * most)), Math.ceil(64 / cell)))
  const each = Math.max(1, Math.floor((width + GAP) / (wide * cell + GAP)))
  /** @type {Rack[]} */
  const placed = []
  let top = 0
  for (let r = 0; r < racks.length; r += each) {
    let rows = 0
    racks.slice(r, r + each).forEach(([name, handles], i) => {
      const own = Math.ceil(handles.length / wide)
      rows = Math.max(rows, own)
      placed.push({ name, handles, x: i * (wide * cell + GAP), y: top + LABEL, wide, rows: own })
    })
    top += LABEL + rows * cell + GAP / 2
  }
  return { racks: placed, height: Math.ceil(top) }
}
