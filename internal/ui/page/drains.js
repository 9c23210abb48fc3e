// Drains: progress, and first what blocks them.
import { html, useState } from './lib.js'
import { now, useMay, useResource } from './store.js'
import { write } from './session.js'
import { count, duration, linkTo, span, stamp, words } from './format.js'
import { Bar, Blockers, Command, Facts, Failure, Heading, Late, Loaded, Mark, Since, Table } from './parts.js'

/** @param {any} d @param {(n: any) => number} of */
const sum = (d, of) => d.nodes.reduce((/** @type {number} */ s, /** @type {any} */ n) => s + of(n), 0)
const gone = (/** @type {any} */ d) => sum(d, n => n.moved)
const left = (/** @type {any} */ d) => sum(d, n => n.remaining.length)
const blocked = (/** @type {any} */ d) => sum(d, n => n.blockers.length)
const phase = (/** @type {any} */ d) => d.phase === 'draining' && d.paused ? 'paused' : d.phase

/** @param {{ of: any }} p */
const Progress = ({ of }) => html`<${Bar} part=${gone(of)} whole=${gone(of) + left(of)} text=${`${gone(of)} of ${gone(of) + left(of)} gone`} />`

export function Drains() {
  const state = useResource('/v1/drains')
  const rows = [.../** @type {any[]} */ (state.data?.items || [])].sort((a, b) =>
    Number(b.phase === 'draining') - Number(a.phase === 'draining') || b.created_at.localeCompare(a.created_at))
  const running = rows.filter(d => d.phase === 'draining'), blocking = running.filter(d => blocked(d) > 0)
  return html`<${Heading}>Drains<//>
    <${Loaded} state=${state} empty="Nobody has drained a node yet, or it is long ago. A node's page starts a drain.">
      <p class="dim small">${count(running.length, 'drain')} ${running.length === 1 ? 'runs' : 'run'}, ${count(rows.length - running.length, 'drain')} ended.</p>
      ${blocking.map(d => html`<section class="card" key=${d.id}><h2><a href=${linkTo('drain/' + d.id)}>Drain of ${d.nodes.map((/** @type {any} */ n) => n.node).join(', ')}</a>
        <span class="dim">waits</span></h2>${d.nodes.map((/** @type {any} */ n) => html`<${Blockers} of=${n.blockers.slice(0, 3)} />`)}
        ${blocked(d) > 3 && html`<p class="dim">${blocked(d)} in all.</p>`}</section>`)}
      <${Table} caption="Drains" rows=${rows} id=${(/** @type {any} */ d) => d.id} columns=${columns} /><//>`
}

/** @type {{ head: string, cell: (d: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const columns = [
  { head: 'nodes', cell: d => html`<a href=${linkTo('drain/' + d.id)}>${d.nodes.map((/** @type {any} */ n) => n.node).join(', ')}</a>` },
  { head: 'state', cell: d => html`<${Mark} kind="drain" state=${phase(d)} />` },
  { head: 'progress', cell: d => html`<${Progress} of=${d} />` },
  { head: 'blockers', num: true, maybe: true, cell: d => blocked(d) || '' },
  { head: 'begun', rank: 2, num: true, cell: d => html`<${Since} time=${d.created_at} /> ago` },
  { head: 'by', rank: 3, cell: d => d.actor },
  { head: 'message', rank: 3, maybe: true, cell: d => d.message },
]

/** @param {{ id: string }} p */
export function Drain({ id }) {
  const state = useResource('/v1/drains/' + encodeURIComponent(id))
  const mayDrain = useMay('node.drain', 'drain/' + id)
  const d = state.data
  if (!d) return html`<${Heading}>Drain ${id}<//><${Loaded} state=${state} />`
  const acts = d.phase === 'draining' && mayDrain
  const risky = d.options.force || d.options.force_at_deadline
  return html`<${Heading} actions=${acts && html`<${Act} key=${d.paused} id=${d.id} verb=${d.paused ? 'resume' : 'pause'} typed=${d.paused && risky ? d.nodes[0].node : ''} />`}>
    Drain of ${d.nodes.map((/** @type {any} */ n) => n.node).join(', ')} <${Mark} kind="drain" state=${phase(d)} /><//>
    <${Late} state=${state} />
    ${d.message && html`<p>${d.message}</p>`}
    <${Facts} of=${[['progress', html`<${Progress} of=${d} />`], ['options', optionsOf(d.options)], ['begun', stamp(d.created_at)], ['by', d.actor], ['id', html`<span class="mono">${d.id}</span>`]]} />
    ${d.rejected.map((/** @type {any} */ r) => html`<p class="note warn">${r.node} was not taken into the drain: ${r.message}</p>`)}
    ${d.nodes.map((/** @type {any} */ n) => html`<section key=${n.node_id}><h2><a href=${linkTo('node/' + n.node)}>${n.node}</a> <${Mark} kind="drain" state=${n.phase} />
      <span class="dim">${n.phase === 'draining' && !n.turn ? 'waits for its turn' : ''}${n.deadline && n.phase === 'draining'
        ? `deadline in ${span(Date.parse(n.deadline) - now.value)}` : ''}</span></h2>
      ${n.last_error && html`<p class="note bad">${n.last_error}</p>`}
      ${n.blockers.length > 0 && html`<${Blockers} of=${n.blockers} />`}
      <p class="dim">${n.moved - n.stopped} moved${n.stopped > 0 ? `, ${n.stopped} stopped without a replacement` : ''}${
        n.acked > 0 ? `, ${n.acked} stay as acknowledged` : ''}, ${n.remaining.length} still here.</p>
      ${n.remaining.length > 0 && html`<${Table} caption="Still on ${n.node}" rows=${n.remaining} id=${(/** @type {any} */ r) => r.instance} columns=${[
        { head: 'instance', cell: (/** @type {any} */ r) => html`<a class="mono" href=${linkTo('instance/' + r.instance)}>${r.instance}</a>` },
        { head: 'state', cell: (/** @type {any} */ r) => html`<${Mark} kind="instance" state=${r.state} />` },
        { head: 'data', rank: 2, cell: (/** @type {any} */ r) => r.class }, { head: 'blocked by', rank: 2, maybe: true, cell: (/** @type {any} */ r) => words(r.blocker) },
      ]} />`}</section>`)}
    ${acts && html`<section><h2>By command</h2><p><${Command} text="outspan drain watch ${d.id}" /></p><p><${Command} text="outspan drain cancel ${d.id}" /></p></section>`}`
}

/** @param {any} o the options of a drain */
const optionsOf = o => [o.deadline === 'forever' ? 'no deadline' : 'deadline ' + (duration(o.deadline) || o.deadline), o.force && 'stops what its role says never to stop',
  o.force_at_deadline && 'kills what is left at the deadline', o.ignore_system && 'leaves system groups alone', o.max_parallel_nodes > 0 && `${o.max_parallel_nodes} nodes at once`,
  o.accept_downtime?.length > 0 && 'accepts downtime of ' + o.accept_downtime.join(', '), o.policy && 'policy ' + o.policy].filter(Boolean).join(', ')

/**
 * A button that pauses or resumes a drain.
 * @param {{ id: string, verb: string, typed: string }} p typed: what has to be typed before; empty: nothing
 */
function Act({ id, verb, typed }) {
  const [error, setError] = useState(/** @type {any} */ (null)), [busy, setBusy] = useState(false), [text, setText] = useState('')
  const act = () => {
    setBusy(true)
    setError(null)
    write('POST', `/v1/drains/${encodeURIComponent(id)}/${verb}`).catch(setError).finally(() => setBusy(false))
  }
  return html`${typed && html`<label>This can lose work. Type ${typed} to go on
    <input class="short" value=${text} onInput=${(/** @type {any} */ e) => setText(e.target.value)} /></label>`}
    <button type="button" disabled=${busy || typed !== '' && text !== typed} onClick=${act}>${verb === 'pause' ? 'Pause' : 'Resume'}</button>${error && html`<${Failure} error=${error} />`}`
}
