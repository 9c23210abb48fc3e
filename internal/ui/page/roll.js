// What a roll is and how it goes on: the rolling maintenance of many nodes, of which the drains are the only record.
// The steps, and the ids of the drains, are those of `outspan node roll`, so that either can go on with the other's.
import { signal } from './lib.js'
import { call, CallError, passOf, write } from './session.js'
import { quoted, span } from './format.js'

const STEP = 1500 // ms between two looks of a roll that this page carries out
const WITHIN = 30 * 60000 // ms in which a node that is back must take instances, and its groups must be whole again
const KEY = 'outspan-rolls' // the rolls that this tab carries out, so that loading the page again goes on with them

/** @typedef {{ id: string, nodes: string[], exec?: string, max_parallel_nodes?: number, no_reboot?: boolean }} Plan */
/**
 * drains: the newest first; others: with its id but other nodes, so no steps of it
 * @typedef {object} Roll
 * @property {string} id
 * @property {Plan} plan
 * @property {any[]} drains
 * @property {any[]} others
 * @property {string} message
 * @property {string} deadline of each drain
 * @property {string} by
 * @property {string} begun
 */
/**
 * @typedef {object} Step
 * @property {string} node
 * @property {'waiting' | 'draining' | 'away' | 'back' | 'failed'} column
 * @property {string} text what it waits for
 * @property {any} drain its last drain in the roll; null: none
 * @property {any} row the node; undefined: there is none of this name
 * @property {boolean} used it takes instances again: only the groups may have to become whole
 * @property {boolean} returned it is back, and has to be taken back into use
 */

/** @param {any[]} drains @returns {Roll[]} the newest first */
export function rollsIn(drains) {
  /** @type {Map<string, any[]>} */
  const by = new Map()
  for (const d of drains) if (d.options.roll) by.set(d.options.roll.id, [...(by.get(d.options.roll.id) || []), d])
  return [...by]
    .map(([id, all]) => {
      all.sort((a, b) => b.index - a.index)
      const first = all[all.length - 1]
      const is = (/** @type {any} */ d) => String(d.options.roll.nodes) === String(first.options.roll.nodes)
      const { actor, message, options } = all.find(d => is(d) && d.actor === first.actor)
      return {
        id,
        plan: options.roll,
        drains: all.filter(is),
        others: all.filter(d => !is(d)),
        message,
        deadline: options.deadline,
        by: actor,
        begun: first.created_at,
      }
    })
    .sort((a, b) => b.begun.localeCompare(a.begun))
}

/** @param {Pick<Roll, 'plan' | 'drains'>} roll @param {any[]} nodes @returns {Step[]} in the order of the roll */
export function stepsOf(roll, nodes) {
  const known = new Map(nodes.map(n => [n.name, n]))
  return roll.plan.nodes.map(node => {
    const row = known.get(node),
      drain = roll.drains.find(d => d.nodes.some((/** @type {any} */ n) => n.node === node)) || null
    const part = drain?.nodes.find((/** @type {any} */ n) => n.node === node)
    const step = (
      /** @type {Step['column']} */ column,
      /** @type {string} */ text,
      used = false,
      returned = false,
    ) => ({ node, column, text, drain, row, used, returned })
    if (!row) return step('failed', 'there is no such node any more')
    if (!part) return step('waiting', 'its turn comes')
    if (part.phase === 'draining')
      return step(
        'draining',
        drain.paused
          ? 'paused'
          : part.blockers.length
            ? `waits: ${part.blockers[0].message}`
            : `${part.remaining.length} still there`,
      )
    if (part.phase === 'failed') return step('failed', part.last_error || 'its drain failed')
    if (part.phase === 'canceled') return step('failed', 'its drain was canceled')
    const rebooted = row.boot_id !== part.boot_id,
      online = row.health === 'online'
    const others = row.intent === 'draining' && row.drain_id !== drain.id // that is not for the roll to end
    if (others || row.intent !== 'draining') {
      if (roll.plan.no_reboot || rebooted)
        return step(
          'back',
          others ? 'is in another drain' : row.eligible ? '' : row.reason || 'takes no instances yet',
          true,
        )
      if (others) return step('failed', 'is in another drain')
      return step('waiting', 'was taken back before it was rebooted: it is drained again')
    }
    if (rebooted && online && !roll.plan.no_reboot)
      return step('back', 'is rebooted; next it is taken back into use', false, true)
    if (!online) return step('away', row.health === 'offline' ? 'is off' : 'reboots, or is not heard')
    return step('away', roll.plan.exec ? 'empty: the command runs' : 'empty: reboot it now')
  })
}

/** The rolls that this tab carries out or did, by id: what it does, or why it has stopped.
 * @type {import('./vendor/signals.js').Signal<Record<string, { runs: boolean, text: string, error?: any }>>} */
export const driven = signal(/** @type {any} */ ({}))
/** @type {Map<string, AbortController>} */
const running = new Map()

/** @param {string} id @param {{ runs: boolean, text: string, error?: any }} how */
const say = (id, how) => {
  driven.value = { ...driven.value, [id]: how }
}

/** @typedef {{ plan: Plan, message: string, deadline: string }} Order what a roll's drains are started with */

/** @returns {Record<string, Order>} what this tab carries out for this sign-in */
const remembered = () => {
  try {
    const { of, all } = JSON.parse(sessionStorage.getItem(KEY) || '')
    return of === passOf().session ? all : {}
  } catch {
    return {}
  }
}

/** Goes on with what this tab carried out before it was loaded again. Somebody must be in. */
export const driveOn = () => Object.values(remembered()).forEach(drive)

/** @param {string} id @param {Order | null} order null: forget it */
function remember(id, order) {
  const all = remembered()
  if (order) all[id] = order
  else delete all[id]
  sessionStorage.setItem(KEY, JSON.stringify({ of: passOf().session, all }))
}

addEventListener('beforeunload', e => {
  if (running.size > 0) e.preventDefault()
})

/** Stops what this tab does for a roll. Drains that run go on. @param {string} id */
export function stop(id) {
  running.get(id)?.abort()
  remember(id, null)
  say(id, { runs: false, text: 'It was stopped in this page.' })
}

/**
 * Carries out a roll in this tab, until it is done, a step fails, or stop. Only one tab does so for a roll.
 * @param {Order} order
 * @returns {Promise<void>} ends when the roll does; what went wrong stands in driven
 */
export async function drive(order) {
  const id = order.plan.id
  if (running.has(id)) return
  const over = new AbortController()
  running.set(id, over)
  remember(id, order)
  say(id, { runs: true, text: 'begins' })
  try {
    await navigator.locks.request('outspan-roll-' + id, { ifAvailable: true }, async lock => {
      if (!lock) throw new CallError({ code: 'conflict', message: 'another tab of this page carries the roll out' })
      await steps(order, over.signal)
    })
    if (!over.signal.aborted) say(id, { runs: false, text: 'done' })
    remember(id, null)
  } catch (e) {
    if (!over.signal.aborted) say(id, { runs: false, text: 'It has stopped.', error: e })
    remember(id, null)
  } finally {
    running.delete(id)
  }
}

/** @param {Order} order @param {AbortSignal} over */
async function steps(order, over) {
  const { plan } = order,
    returns = new Returns()
  /** @type {Set<string> | null} */
  let past = null // drains that had failed before this tab began: their nodes are drained once more
  while (!over.aborted) {
    try {
      const drains = await all('/v1/drains', over),
        nodes = await all('/v1/nodes', over)
      const roll = { plan, drains: rollsIn(drains).find(r => r.id === plan.id)?.drains || [] }
      const list = stepsOf(roll, nodes)
      past ||= new Set(list.filter(s => s.column === 'failed').map(s => s.drain?.id || ''))
      const failed = list.find(s => s.column === 'failed' && !past?.has(s.drain?.id || ''))
      const again = list.filter(s => s.column === 'failed' && s.row && past?.has(s.drain?.id || ''))
      if (list.some(s => !s.row))
        throw new CallError({ code: 'not_found', message: `there is no node ${list.find(s => !s.row)?.node}` })
      for (const s of list.filter(s => s.returned && !returns.whole.has(s.node))) {
        await write('POST', `/v1/nodes/${encodeURIComponent(s.node)}/uncordon`, {
          body: { reason: 'node roll ' + plan.id },
        })
      }
      await returns.look(list, over)
      if (list.every(s => returns.whole.has(s.node))) return
      const work = list.filter(
        s => ['draining', 'away', 'back'].includes(s.column) && !returns.whole.has(s.node) && !returns.late.has(s.node),
      )
      const failure = failed
        ? new CallError({ code: 'roll_failed', message: `node ${failed.node}: ${failed.text}` })
        : [...returns.late.values()][0]
      if (failure && work.length === 0) throw failure
      const paused = roll.drains.some(d => d.phase === 'draining' && d.paused)
      const next = [...list.filter(s => s.column === 'waiting'), ...again].sort(
        (a, b) => plan.nodes.indexOf(a.node) - plan.nodes.indexOf(b.node),
      )[0]
      if (next && !failure && !paused && work.length < (plan.max_parallel_nodes || 1))
        await begin(order, roll, next, over)
      else if (work.length)
        say(plan.id, {
          runs: true,
          text: work.map(s => `${s.node}: ${s.text || `${returns.lacks.get(s.node)} is not whole yet`}`).join('; '),
        })
    } catch (e) {
      if (over.aborted) return
      if (!(e instanceof CallError) || (!e.retryable && !['no_leader', 'timeout', 'not_caught_up'].includes(e.code)))
        throw e
      say(plan.id, { runs: true, text: `tries again: ${e.message}` }) // it goes on with the next leader
    }
    await new Promise(done => setTimeout(done, STEP))
  }
}

/** @param {Order} order @param {Pick<Roll, 'drains'>} roll @param {Step} s @param {AbortSignal} over */
async function begin(order, roll, s, over) {
  if (over.aborted) return
  const { plan } = order,
    tries = roll.drains.filter(d => d.nodes.some((/** @type {any} */ n) => n.node === s.node)).length
  const id = `${plan.id}.${plan.nodes.indexOf(s.node) + 1}.${tries + 1}`
  const body = {
    nodes: [s.node],
    id,
    message: order.message || 'node roll ' + plan.id,
    roll: plan,
    ...(order.deadline ? { deadline: order.deadline } : {}),
  }
  // Each attempt is a request of its own, because the servers keep a refusal under its id. The drain's id is enough to
  // start the drain only once.
  const got = await write('POST', '/v1/drains', { body })
  const no = got.value.rejected?.[0]
  if (no) throw new CallError({ code: no.code, message: `node ${s.node} can't be drained: ${no.message}` })
  say(plan.id, { runs: true, text: `drains ${s.node}` })
}

/** @param {string} path @param {AbortSignal} signal @returns {Promise<any[]>} all items of a list */
async function all(path, signal) {
  const items = []
  for (let next = ''; ; ) {
    const got = await call('GET', path, { query: next ? { next } : {}, signal })
    items.push(...got.value.items)
    if (!(next = got.value.next)) return items
  }
}

/** Watches the nodes that are back: each must take instances, and the groups that its drain moved must be whole. */
class Returns {
  constructor() {
    /** @type {Set<string>} */
    this.whole = new Set() // nodes for which all of that is so
    /** @type {Map<string, string>} */
    this.lacks = new Map() // by node: a group that is not whole yet
    /** @type {Map<string, CallError>} */
    this.late = new Map() // by node: what did not happen in time
    /** @type {Map<string, Set<string>>} */
    this.moved = new Map() // by drain: the groups that it moved
    /** @type {Map<string, number>} */
    this.since = new Map() // by node: when it was first seen back, in ms since 1970
  }

  /** @param {Step[]} steps @param {AbortSignal} over */
  async look(steps, over) {
    const back = steps.filter(s => s.used && !this.whole.has(s.node)),
      eligible = back.filter(s => s.row.eligible),
      unknown = eligible.filter(s => !this.moved.has(s.drain.id))
    if (unknown.length > 0) {
      const instances = await all('/v1/instances', over)
      for (const s of unknown) this.moved.set(s.drain.id, movedBy(s.drain, instances))
    }
    const jobs = eligible.some(s => this.moved.get(s.drain.id)?.size) ? await all('/v1/jobs', over) : []
    for (const s of back) {
      const lacks = s.row.eligible ? lacking(jobs, this.moved.get(s.drain.id)) : ''
      this.lacks.set(s.node, lacks)
      if (s.row.eligible && !lacks) this.whole.add(s.node)
      else this.count(s.node, lacks)
    }
  }

  /**
   * Counts how long a node has been back, and gives it up in the end.
   * @param {string} node
   * @param {string} lacks a group that is not whole; '': the node takes no instances
   */
  count(node, lacks) {
    const since = this.since.get(node) || Date.now()
    this.since.set(node, since)
    if (Date.now() - since < WITHIN) return
    const [message, hint] = lacks
      ? [
          `group ${lacks} is not whole again ${span(WITHIN)} after node ${node} came back`,
          `see why: outspan why ${quoted(lacks)}`,
        ]
      : [
          `node ${node}: it does not take instances again after ${span(WITHIN)}`,
          `look at the machine; see: outspan node status ${quoted(node)}`,
        ]
    this.late.set(node, new CallError({ code: 'node_not_returned', message, hint }))
  }
}

/** @param {any} drain @param {any[]} instances @returns {Set<string>} the groups that moved since it began */
const movedBy = (drain, instances) =>
  new Set(
    instances
      .filter(i => i.cause === 'node_draining' && Date.parse(i.created_at) >= Date.parse(drain.created_at))
      .map(i => `${i.job}/${i.group}`),
  )

/** @param {any[]} jobs @param {Set<string> | undefined} groups @returns {string} one of them that is not whole; '': none */
function lacking(jobs, groups) {
  for (const j of jobs)
    for (const g of j.groups) if (groups?.has(`${j.name}/${g.name}`) && g.ready < g.count) return `${j.name}/${g.name}`
  return ''
}

/** @returns {string} a new id: a ULID */
export function newID() {
  const digits = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
  let time = Date.now(),
    text = ''
  for (let i = 0; i < 10; i++) {
    text = digits[time % 32] + text
    time = Math.floor(time / 32)
  }
  return text + [...crypto.getRandomValues(new Uint8Array(16))].map(b => digits[b % 32]).join('')
}
