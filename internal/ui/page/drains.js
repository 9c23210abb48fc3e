// Drains: first what blocks them, then each instance on a shared time axis.
import { html, useState } from './lib.js'
import { asOf, now, status, useMay, useResource } from './store.js'
import { write } from './session.js'
import { count, duration, linkTo, quoted, span, stamp, words } from './format.js'
import { Blockers, Command, Facts, Heading, Late, Loaded, Mark, Since, Table } from './parts.js'
import { Grid } from './grid.js'
import { Confirmed, Undoable } from './confirm.js'
import { Progress, tally, tallyOf, waitsOf } from './progress.js'
import { After } from './takeback.js'
import { forecasts, goneBy, Lanes, Legend } from './lanes.js'

/** @param {any} d how many things it waits for */
const blocked = d => d.nodes.reduce((/** @type {number} */ s, /** @type {any} */ n) => s + waitsOf(d, n).length, 0)
export const phase = (/** @type {any} */ d) => (d.phase === 'draining' && d.paused ? 'paused' : d.phase)
const nodesOf = (/** @type {any} */ d) =>
  d.nodes.length > 4
    ? `${d.nodes
        .slice(0, 3)
        .map((/** @type {any} */ n) => n.node)
        .join(', ')} and ${d.nodes.length - 3} more`
    : d.nodes.map((/** @type {any} */ n) => n.node).join(', ')

export function Drains() {
  const state = useResource('/v1/drains')
  const rows = [.../** @type {any[]} */ (state.data?.items || [])].sort(
    (a, b) =>
      Number(b.phase === 'draining') - Number(a.phase === 'draining') || b.created_at.localeCompare(a.created_at),
  )
  const running = rows.filter(d => d.phase === 'draining'),
    blocking = running.filter(d => blocked(d) > 0)
  return html`<${Heading} actions=${html`<a class="button" href="#/rolls">Rolls</a>`}>Drains<//>
    <${Loaded} state=${state} empty="Nobody has drained a node yet, or it is long ago. A node's page starts a drain.">
      <p class="dim small">
        ${count(running.length, 'drain')} ${running.length === 1 ? 'runs' : 'run'},${' '}
        ${count(rows.length - running.length, 'drain')} ended.
      </p>
      ${blocking.map(
        d =>
          html`<section class="card" key=${d.id}>
            <h2><a href=${linkTo('drain/' + d.id)}>Drain of ${nodesOf(d)}</a> <span class="dim">waits</span></h2>
            ${d.nodes.map((/** @type {any} */ n) => html`<${Blockers} of=${waitsOf(d, n).slice(0, 3)} />`)}
            ${blocked(d) > 3 && html`<p class="dim">${blocked(d)} in all.</p>`}
          </section>`,
      )}
      <${Grid} caption="Drains" rows=${rows} id=${(/** @type {any} */ d) => d.id} columns=${columns}
    /><//>`
}

/** @param {any} d */
function share(d) {
  const { gone, here } = tallyOf(d, d.nodes)
  return gone / Math.max(1, gone + here)
}

/** @type {import('./grid.js').Column<any>[]} */
const columns = [
  {
    head: 'nodes',
    size: 260,
    by: d => d.nodes[0]?.node ?? '',
    cell: d => html`<a href=${linkTo('drain/' + d.id)}>${nodesOf(d)}</a>`,
  },
  { head: 'state', size: 130, by: phase, cell: d => html`<${Mark} kind="drain" state=${phase(d)} />` },
  {
    head: 'progress',
    size: 210,
    by: d => share(d),
    cell: d => html`<${Progress} of=${d} />`,
  },
  { head: 'blockers', size: 96, num: true, maybe: true, by: blocked, cell: d => blocked(d) || '' },
  {
    head: 'begun',
    size: 150,
    rank: 2,
    num: true,
    by: d => d.created_at,
    cell: d => html`<${Since} time=${d.created_at} /> ago`,
  },
  { head: 'by', size: 160, rank: 3, by: d => d.actor, cell: d => d.actor },
  { head: 'message', size: 260, rank: 3, maybe: true, cell: d => d.message },
]

/** @param {{ id: string }} p */
export function Drain({ id }) {
  const path = '/v1/drains/' + encodeURIComponent(id)
  const state = useResource(path, { lanes: 'true' })
  const mayDrain = useMay('node.drain', 'drain/' + id)
  const d = state.data
  if (!d) return html`<${Heading}>Drain ${id}<//><${Loaded} state=${state} />`
  const runs = d.phase === 'draining',
    acts = runs && mayDrain
  const axis = axisOf(d, state)
  const roll = d.options.roll
  return html`<${Heading} actions=${acts && html`<${Pause} of=${d} />`}>
      Drain of ${nodesOf(d)} <${Mark} kind="drain" state=${phase(d)}
    /><//>
    <${Late} state=${state} />
    ${runs &&
    leaderless(state) &&
    html`<p class="note warn" role="status">
      The drain is not lost: it is part of the replicated state. The next leader goes on with it, from where it was; its
      deadline goes on meanwhile.
    </p>`}
    ${d.message && html`<p>${d.message}</p>`}
    ${d.nodes.map(
      (/** @type {any} */ n) => waitsOf(d, n).length > 0 && html`<${Waits} key=${n.node_id} drain=${d} node=${n} />`,
    )}
    ${d.rejected.map(
      (/** @type {any} */ r) => html`<p class="note warn">${r.node} was not taken into the drain: ${r.message}</p>`,
    )}
    <${Facts}
      of=${[
        ['progress', html`<${Progress} of=${d} />`],
        ['options', optionsOf(d.options)],
        ['begun', stamp(d.created_at)],
        ['by', d.actor],
        [
          'step of',
          roll &&
            html`<a href="#/rolls/${encodeURIComponent(roll.id)}">a roll of ${count(roll.nodes.length, 'node')}</a>`,
        ],
        ['id', html`<span class="mono">${d.id}</span>`],
      ]}
    />
    ${!runs && html`<${After} of=${d} />`} ${d.nodes.length > 1 && html`<${Turns} of=${d} />`}
    ${(d.lanes || []).length > 0 && html`<${Legend} planned=${runs && forecasts.has(d.id)} />`}
    ${d.nodes.map((/** @type {any} */ n) => html`<${Part} key=${n.node_id} drain=${d} node=${n} axis=${axis} />`)}
    ${acts &&
    html`<section>
      <h2>Cancel</h2>
      <${Cancel} of=${d} />
    </section>`}
    <section>
      <h2>By command</h2>
      ${runs
        ? html`<p><${Command} text="outspan drain watch ${quoted(d.id)}" /></p>
            ${acts &&
            html`<p><${Command} text="outspan drain ${d.paused ? 'resume' : 'pause'} ${quoted(d.id)}" /></p>
              <p><${Command} text="outspan drain cancel ${quoted(d.id)}" /></p>`}`
        : html`<p><${Command} text="outspan drain status ${quoted(d.id)}" /></p>`}
    </section>`
}

/** @param {import('./store.js').State} s */
const leaderless = s => [s.error, s.old].some(e => e && ['no_leader', 'timeout', 'not_caught_up'].includes(e.code))

/**
 * The time axis of a drain. It ends now, by the servers' clock, or when the last thing happened. What is old stands
 * still.
 * @param {any} d
 * @param {import('./store.js').State} state
 * @returns {import('./lanes.js').Axis}
 */
function axisOf(d, state) {
  const from = Date.parse(d.created_at),
    s = status.state.value
  const ahead = s.data?.time && !s.old ? Date.parse(s.data.time) - s.at : 0 // of the servers' clocks, in ms
  const times = (d.lanes || [])
    .flatMap((/** @type {any} */ l) => [l.reserved_at, l.started_at, l.ready_at, l.stopping_at, l.stopped_at])
    .concat(d.nodes.map((/** @type {any} */ n) => n.ended_at))
    .filter(Boolean)
    .map((/** @type {string} */ t) => Date.parse(t))
  const last = Math.max(from, ...times),
    runs = d.phase === 'draining'
  const at = state.error || state.old ? asOf(state) : Math.max(state.at, now.value)
  const plan = runs ? [...(goneBy(d.id)?.values() || [])] : []
  return {
    from,
    to: Math.max(
      from + 1000,
      runs ? Math.max(last, at + ahead, from + Math.max(0, ...plan)) : last + (last - from) * 0.04,
    ),
    begun: true,
    over: !runs,
  }
}

/** What blocks one node of a drain, each with a way out. @param {{ drain: any, node: any }} p */
function Waits({ drain, node }) {
  const mayAck = useMay('node.ack', 'node/' + node.node)
  const all = waitsOf(drain, node)
  const stays = all.filter(
    (/** @type {any} */ b) => b.instance && b.instance !== 'hidden' && /\back-blockers\b/.test(b.unblock),
  )
  const present = [...new Set(stays.map((/** @type {any} */ b) => b.instance))]
  const [ids, setIds] = useState(/** @type {string[]} */ ([])) // since the form was opened: just what was read is sent
  return html`<section class="card">
    <h2>
      <a href=${linkTo('node/' + node.node)}>${node.node}</a>${' '}
      <span class="dim">waits, for ${count(all.length, 'reason')}</span>
    </h2>
    <${Blockers} of=${all.slice(0, 20)} />${all.length > 20 && html`<p class="dim">${all.length} in all.</p>`}
    ${drain.phase === 'draining' &&
    all.some(b => b.code && !stays.includes(b)) &&
    html`<p class="dim">
      ${present.length > 0 ? 'The others' : 'This'} can't be acknowledged: that is only for what never leaves by itself.
      If no other way out will do, cancel the drain.
    </p>`}
    ${mayAck &&
    drain.phase === 'draining' &&
    present.length > 0 &&
    html`<div class="act">
      <${Confirmed}
        text="Acknowledge …"
        title=${`Let ${count(ids.length, 'instance')} stay on ${node.node}`}
        act=${`Acknowledge: ${ids.length === 1 ? 'it stays' : 'they stay'}`}
        typed=${node.node}
        opens=${() => setIds(present)}
        write=${() =>
          write('POST', `/v1/nodes/${encodeURIComponent(node.node)}/ack-blockers`, { body: { instances: ids } })}
      >
        <ul class="plain">
          ${ids.map(i => html`<li class="mono">${i}</li>`)}
        </ul>
        <p>
          ${ids.length === 1 ? 'It keeps' : 'They keep'} running, and the drain ends without${' '}
          ${ids.length === 1 ? 'it' : 'them'}: ${node.node} then counts as drained although something runs there.
          Whoever switches the machine off stops that too, and what it serves is away until the machine is back. Nothing
          is moved and nothing is deleted.
        </p>
        <p>It counts until ${node.node} is taken back or drained again.</p>
        <p>
          <${Command} text=${`outspan node ack-blockers ${quoted(node.node)} ${ids.map(quoted).join(' ')}`} /></p
      ><//>
    </div>`}
  </section>`
}

/** The turns of a drain of several nodes. @param {{ of: any }} p */
function Turns({ of: d }) {
  const next = d.nodes.filter((/** @type {any} */ n) => n.phase === 'draining' && !n.turn)
  /** @param {any} n */
  const turn = n =>
    n.phase !== 'draining' ? 'over' : n.turn ? 'now' : next.indexOf(n) === 0 ? 'next' : `${next.indexOf(n)} before it`
  return html`<section>
    <h2>
      Turns${' '}
      <span class="dim"
        >${d.options.max_parallel_nodes > 0
          ? `${count(d.options.max_parallel_nodes, 'node')} at once`
          : 'all at once'}</span
      >
    </h2>
    <${Table}
      caption="Turns"
      rows=${d.nodes}
      id=${(/** @type {any} */ n) => n.node_id}
      columns=${[
        { head: 'node', cell: (/** @type {any} */ n) => html`<a href=${linkTo('node/' + n.node)}>${n.node}</a>` },
        { head: 'turn', cell: turn },
        {
          head: 'state',
          cell: (/** @type {any} */ n) =>
            html`<${Mark}
              kind="drain"
              state=${n.phase === 'draining' && d.paused
                ? 'paused'
                : n.phase === 'draining' && !n.turn
                  ? 'waiting'
                  : n.phase}
            />`,
        },
        {
          head: 'progress',
          rank: 2,
          cell: (/** @type {any} */ n) => html`<${Progress} of=${d} nodes=${[n]} />`,
        },
        {
          head: 'began',
          rank: 3,
          num: true,
          cell: (/** @type {any} */ n) => (n.started_at ? stamp(n.started_at) : ''),
        },
        {
          head: 'ended',
          rank: 3,
          num: true,
          maybe: true,
          cell: (/** @type {any} */ n) => (n.ended_at ? stamp(n.ended_at) : ''),
        },
      ]}
    />
  </section>`
}

/** @param {ReturnType<typeof tally>} t what became of the instances of a node, in words */
function said({ gone, stops, acked, here }) {
  const rest = here - stops - acked
  return [
    `${gone} gone`,
    stops > 0 && `${stops} stopping`,
    acked > 0 && `${acked} ${acked === 1 ? 'stays' : 'stay'} as acknowledged`,
    rest > 0 && `${rest} still here`,
  ]
    .filter(Boolean)
    .join(', ')
}

/** One node of a drain with its lanes. @param {{ drain: any, node: any, axis: any }} p */
function Part({ drain, node: n, axis }) {
  const lanes = (drain.lanes || []).filter((/** @type {any} */ l) => l.node_id === n.node_id)
  const blockers = new Map(
    n.remaining
      .filter((/** @type {any} */ r) => r.blocker)
      .map((/** @type {any} */ r) => [
        r.instance,
        drain.paused && r.blocker === 'actuation_paused' ? 'the drain is paused' : r.blocker,
      ]),
  )
  const plan = goneBy(drain.id),
    runs = n.phase === 'draining'
  return html`<section>
    <h2>
      <a href=${linkTo('node/' + n.node)}>${n.node}</a>${' '}
      <${Mark} kind="drain" state=${runs && drain.paused ? 'paused' : runs && !n.turn ? 'waiting' : n.phase} />
      <span class="dim"
        >${runs && !n.turn ? 'for its turn' : ''}${n.deadline && runs
          ? `deadline in ${span(Date.parse(n.deadline) - now.value)}`
          : ''}</span
      >
    </h2>
    ${n.last_error && html`<p class="note bad">${n.last_error}</p>`}
    ${(n.turn || !runs) &&
    html`<p class="dim">
      ${said(tally(drain, n))}.${n.stopped > 0 ? ` ${n.stopped} of those that it stopped have no replacement.` : ''}
    </p>`}
    ${lanes.length > 0
      ? html`<${Lanes}
          caption="Instances of ${n.node}"
          lanes=${lanes}
          axis=${{ ...axis, begun: n.turn, over: !runs }}
          blockers=${blockers}
          plan=${runs ? plan : undefined}
        />`
      : html`<p class=${drain.nodes.length > 1 ? 'dim' : 'empty'}>
          ${runs
            ? n.remaining.length > 0
              ? 'How far each instance is, is not known.'
              : 'Nothing runs here: there is nothing to move.'
            : 'Nothing had to be moved, or its events are no longer kept.'}
        </p>`}
  </section>`
}

/** @param {any} o the options of a drain */
export const optionsOf = o =>
  [
    o.deadline === 'forever' ? 'no deadline' : 'deadline ' + (duration(o.deadline) || o.deadline),
    o.force && 'stops what its role says never to stop',
    o.force_at_deadline && 'kills what is left at the deadline',
    o.ignore_system && 'leaves system groups alone',
    o.max_parallel_nodes > 0 && `${count(o.max_parallel_nodes, 'node')} at once`,
    o.accept_downtime?.length > 0 &&
      'accepts downtime of ' +
        o.accept_downtime.map((/** @type {string} */ g) => (g === '*' ? 'every group' : g)).join(', '),
    o.policy && 'policy ' + words(o.policy),
  ]
    .filter(Boolean)
    .join(', ')

/** @param {string} id @param {string} verb */
export const turnDrain = (id, verb) => write('POST', `/v1/drains/${encodeURIComponent(id)}/${verb}`)

/** @param {{ of: any }} p a button that pauses or resumes a drain */
const Pause = ({ of: d }) =>
  d.paused
    ? html`<${Undoable}
        text="Resume"
        typed=${d.options.force || d.options.force_at_deadline ? d.nodes[0].node : ''}
        done="It goes on."
        write=${() => turnDrain(d.id, 'resume')}
        undo=${() => turnDrain(d.id, 'pause')}
      />`
    : html`<${Undoable}
        text="Pause"
        done="Paused. The deadline goes on."
        write=${() => turnDrain(d.id, 'pause')}
        undo=${() => turnDrain(d.id, 'resume')}
      />`

/** @param {{ of: any }} p */
function Cancel({ of: d }) {
  const [back, setBack] = useState(false)
  const one = d.nodes.length === 1 ? d.nodes[0].node : 'its nodes'
  return html`<${Confirmed}
    text="Cancel the drain …"
    title="Cancel the drain of ${nodesOf(d)}"
    act="Cancel the drain"
    typed=${d.nodes[0].node}
    write=${() =>
      write('POST', `/v1/drains/${encodeURIComponent(d.id)}/cancel`, { body: back ? { uncordon: true } : {} })}
  >
    <p>
      What has not begun is left alone. Stops that have begun go on, and what has moved does not come back. A canceled
      drain can't be resumed.
    </p>
    <label class="check"
      ><input type="checkbox" checked=${back} onChange=${(/** @type {any} */ e) => setBack(e.target.checked)} /><span
        >Take new instances on ${one} again</span
      ></label
    >
    <p><${Command} text="outspan drain cancel ${quoted(d.id)}${back ? ' --uncordon' : ''}" /></p
  ><//>`
}
