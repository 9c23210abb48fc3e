// How far a drain is, each instance counted once: it has left its node, or it is still there.
import { html } from './lib.js'
import { goesOn } from './format.js'
import { Bar } from './parts.js'

/**
 * What became of the instances of one node: those that are gone, those that stop, those that stay as acknowledged, and
 * all that are still there, which includes the two before. Nothing tells what stayed once another drain has begun or
 * the node was taken back, except the lanes: known is false without them.
 * @param {any} d @param {any} n one of its nodes
 * @returns {{ gone: number, stops: number, acked: number, here: number, known: boolean }}
 */
export function tally(d, n) {
  const lanes = /** @type {any[]} */ (d.lanes || []).filter(l => l.node_id === n.node_id)
  const told = n.phase === 'draining' || n.phase === 'drained' || n.remaining.length > 0
  if (!told && lanes.length > 0) {
    const left = lanes.filter(
      l => l.stopped_at && !(Date.parse(l.stopping_at || l.stopped_at) > Date.parse(n.ended_at)),
    )
    return { gone: left.length, stops: 0, acked: n.acked, here: lanes.length - left.length, known: true }
  }
  const begun = new Set(lanes.filter(l => l.stopping_at).map(l => l.instance))
  const left = /** @type {any[]} */ (n.remaining)
  return {
    gone: Math.max(0, n.moved - left.filter(r => r.in_moved).length),
    stops: left.filter(r => r.state === 'draining' || r.blocker === 'stopping' || begun.has(r.instance)).length,
    acked: n.acked,
    here: Math.max(n.remaining.length, n.acked),
    known: told,
  }
}

/** The sum of the tallies of some nodes of a drain. @param {any} d @param {any[]} nodes */
export function tallyOf(d, nodes) {
  const sum = { gone: 0, here: 0, acked: 0, known: true }
  for (const n of nodes) {
    const t = tally(d, n)
    sum.gone += t.gone
    sum.here += t.here
    sum.acked += t.acked
    sum.known &&= t.known
  }
  return sum
}

/** @param {{ of: any, nodes?: any[] }} p of: a drain; nodes: those of its nodes that count, otherwise all */
export function Progress({ of, nodes = of.nodes }) {
  const { gone, here, acked, known } = tallyOf(of, nodes),
    all = gone + here
  const stay = acked > 0 ? `, ${acked} ${acked === 1 ? 'stays' : 'stay'}` : ''
  return html`<${Bar}
    part=${gone}
    whole=${all}
    text=${known ? (all ? `${gone} of ${all} gone${stay}` : 'nothing to move') : `${gone} gone`}
  />`
}

/**
 * What a node of a drain waits for: blockers that are no step of what goes on. That the drain is paused is said once.
 * @param {any} d @param {any} n
 * @returns {any[]}
 */
export function waitsOf(d, n) {
  const all = /** @type {any[]} */ (n.blockers).filter(b => !goesOn(b))
  const held = all.filter(b => d.paused && b.code === 'actuation_paused') // as when the whole cluster is paused
  return held.length ? [{ ...held[0], code: '', instance: '' }, ...all.filter(b => !held.includes(b))] : all
}
