// The list of nodes.
import { html } from './lib.js'
import { bytes, count, linkTo, nodeStates, number } from './format.js'
import { Bar, Mark } from './parts.js'
import { Grid } from './grid.js'

/** @param {any} n where a node stands: its label rack, otherwise zone */
export const rackOf = n => n.labels.rack || n.labels.zone || ''

/** @param {any} n @param {'cpu' | 'memory_bytes'} what what instances may have of it */
const room = (n, what) => n.capacity[what] - n.reserved[what]

/** @param {any} n @param {'cpu' | 'memory_bytes'} what */
const share = (n, what) => (room(n, what) > 0 ? n.allocated[what] / room(n, what) : 0)

/** @param {{ rows: any[] }} p */
export const NodeList = ({ rows }) =>
  html`<${Grid} caption="Nodes" rows=${rows} id=${(/** @type {any} */ n) => n.id} columns=${columns} />`

/** @type {import('./grid.js').Column<any>[]} */
const columns = [
  { head: 'node', size: 180, by: n => n.name, cell: n => html`<a href=${linkTo('node/' + n.name)}>${n.name}</a>` },
  {
    head: 'state',
    size: 170,
    by: n => nodeStates.indexOf(n.state),
    cell: n =>
      html`<${Mark} kind="node" state=${n.state} />${n.drain_phase === 'drained'
          ? html` <span class="dim">empty</span>`
          : ''}${n.warnings.length > 0 ? html` <span class="dim">${count(n.warnings.length, 'warning')}</span>` : ''}`,
  },
  { head: 'instances', size: 132, num: true, by: n => n.instances, cell: n => n.instances },
  {
    head: 'memory allocated',
    size: 260,
    rank: 2,
    by: n => share(n, 'memory_bytes'),
    cell: n =>
      html`<${Bar}
        load
        part=${n.allocated.memory_bytes}
        whole=${room(n, 'memory_bytes')}
        text=${`${bytes(n.allocated.memory_bytes)} of ${bytes(room(n, 'memory_bytes'))}`}
      />`,
  },
  {
    head: 'CPU shares',
    size: 210,
    rank: 3,
    by: n => share(n, 'cpu'),
    cell: n =>
      html`<${Bar}
        load
        part=${n.allocated.cpu}
        whole=${room(n, 'cpu')}
        text=${`${number(n.allocated.cpu)} of ${number(room(n, 'cpu'))}`}
      />`,
  },
  { head: 'rack', size: 110, rank: 2, by: rackOf, cell: n => rackOf(n) || html`<span class="dim">none</span>` },
  { head: 'address', size: 190, rank: 3, by: n => n.address, cell: n => html`<span class="mono">${n.address}</span>` },
]
