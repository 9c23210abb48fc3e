// Starting a drain: options, then the forecast for exactly these options, then the start.
import { html, useState } from './lib.js'
import { now, useResource } from './store.js'
import { write } from './session.js'
import { count, duration, linkTo, words } from './format.js'
import { Advice, Command, Failure, Heading, Late, Loaded, Mark, Table } from './parts.js'

const GOOD = 60000 // ms for which a forecast counts

/** @typedef {{ message: string, deadline: string, ignore_system: boolean, force_at_deadline: boolean, force: boolean }} Options */

/** @param {string} node @param {Options} o */
function bodyOf(node, o) {
  /** @type {Record<string, any>} */
  const body = { nodes: [node] }
  if (o.message) body.message = o.message
  if (o.deadline.trim()) body.deadline = o.deadline.trim()
  for (const flag of /** @type {const} */ (['ignore_system', 'force_at_deadline', 'force'])) if (o[flag]) body[flag] = true
  return body
}

/** @param {string} text */
const quoted = text => /^[\w.\/:-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`

/** @param {string} node @param {Options} o */
const commandOf = (node, o) => ['outspan node drain', quoted(node), o.message && '-m ' + quoted(o.message), o.deadline.trim() && '--deadline ' + quoted(o.deadline.trim()),
  o.ignore_system && '--ignore-system', o.force_at_deadline && '--force-at-deadline', o.force && '--force'].filter(Boolean).join(' ')

/** @param {{ node: string }} p */
export function NewDrain({ node }) {
  const [o, setOptions] = useState(/** @type {Options} */ ({ message: '', deadline: '', ignore_system: false, force_at_deadline: false, force: false }))
  const [forecast, setForecast] = useState(/** @type {{ of: any, body: any, at: number, state: string } | null} */ (null)), [error, setError] = useState(/** @type {any} */ (null)), [busy, setBusy] = useState(false)
  const [typed, setTyped] = useState('')
  const set = (/** @type {Partial<Options>} */ some) => { setOptions({ ...o, ...some }); setForecast(null); setTyped('') }
  const state = useResource('/v1/nodes/' + encodeURIComponent(node))
  /** @param {any} body @param {boolean} dry */
  const send = async (body, dry) => {
    setBusy(true)
    setError(null)
    try {
      const got = await write('POST', '/v1/drains', { query: dry ? { dry_run: 'true' } : {}, body })
      if (!dry && got.value.drain) location.hash = linkTo('drain/' + got.value.drain)
      else setForecast({ of: got.value, body, at: Date.now(), state: state.data.state })
    } catch (e) { setError(e) }
    setBusy(false)
  }
  const allowed = useResource('/v1/auth/can-i', { verb: 'node.drain', object: 'node/' + node }, { slow: true }).data
  if (!state.data) return html`<${Heading}>Drain ${node}<//><${Loaded} state=${state} />`
  if (!allowed) return html`<${Heading}>Drain ${node}<//><p class="dim">Asking the servers …</p>`
  if (!allowed.allowed) return html`<${Heading}>Drain ${node}<//><p>You may not drain nodes. <${Command} text="outspan auth can-i node.drain ${node}" /></p>`
  const body = bodyOf(node, o)
  // A forecast counts for the body that it was made for, while the node is as it was, and for a while.
  const good = forecast && JSON.stringify(forecast.body) === JSON.stringify(body) && forecast.state === state.data.state && now.value - forecast.at < GOOD
  const risky = o.force || o.force_at_deadline
  const box = (/** @type {keyof Options} */ key, /** @type {string} */ text) => html`<label class="check"><input type="checkbox" checked=${o[key]}
    onChange=${(/** @type {any} */ e) => set({ [key]: e.target.checked })} /><span>${text}</span></label>`
  return html`<${Heading}>Drain ${node} <${Mark} kind="node" state=${state.data.state} /><//>
    <${Late} state=${state} />
    <p class="dim">Takes no new instances on the node, starts replacements elsewhere, and stops what runs there when they are ready.</p>
    <form onSubmit=${(/** @type {Event} */ e) => { e.preventDefault(); send(body, true) }}>
      <label>Why, for people<input value=${o.message} maxlength="256" onInput=${(/** @type {any} */ e) => set({ message: e.target.value })} /></label>
      <label>Deadline <span class="dim">1h, none, or empty for the cluster's setting</span><input class="short" value=${o.deadline} onInput=${(/** @type {any} */ e) => set({ deadline: e.target.value })} /></label>
      ${box('ignore_system', 'Leave instances of system groups alone')}
      ${box('force_at_deadline', 'Kill what is left at the deadline')}
      ${box('force', 'Also stop what its role says never to stop')}
      <p><button type="submit" disabled=${busy}>Show the forecast</button></p>
    </form>
    ${error && html`<${Failure} error=${error} />`}
    ${forecast && !good && html`<p class="note warn" role="status">The forecast was for other options, for another state of the node, or is a minute old. Show it again.</p>`}
    ${forecast && good && html`<${Forecast} of=${forecast.of} />
      ${forecast.of.started.length > 0 && html`<div class="start">${risky && html`<label>This can lose work. Type ${node} to go on
        <input class="short" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} /></label>`}
        <button type="button" class="primary" disabled=${busy || risky && typed !== node} onClick=${() => send(forecast.body, false)}>Start the drain</button></div>`}`}
    <section><h2>By command</h2><p><${Command} text=${commandOf(node, o)} /></p></section>`
}

/** @param {{ of: any }} p what a drain would do */
function Forecast({ of }) {
  const rows = /** @type {any[]} */ (of.forecast)
  const stuck = rows.filter(f => f.never || f.blocker.startsWith('unschedulable'))
  const order = [...rows].sort((a, b) => Number(!!b.blocker) - Number(!!a.blocker))
  return html`<section aria-live="polite"><h2>Forecast</h2>
    ${of.rejected.map((/** @type {any} */ r) => html`<p class="note bad">${r.node}: ${r.message} <span class="dim mono">${r.code}</span></p>`)}
    ${rows.length === 0 ? of.started.length > 0 && html`<p>Nothing has to move.</p>` : html`
      <p class=${stuck.length ? 'note warn' : ''}>${stuck.length ? `This drain can't end by itself: ${count(stuck.length, 'instance')} would stay.`
        : `${count(rows.length, 'instance')} would leave. This is what would happen if the drain began now.`}</p>
      <${Table} caption="Forecast" rows=${order} id=${(/** @type {any} */ f) => f.instance} columns=${[
        { head: 'group', cell: (/** @type {any} */ f) => f.group },
        { head: 'action', cell: (/** @type {any} */ f) => words(f.action) },
        { head: 'to', maybe: true, cell: (/** @type {any} */ f) => f.target || '' },
        { head: 'blocked by', maybe: true, cell: (/** @type {any} */ f) => f.blocker ? html`<p>${f.message || words(f.blocker)}</p>${f.unblock && html`<p><${Advice} text=${f.unblock} /></p>`}` : f.note },
        { head: 'gone after about', rank: 2, maybe: true, num: true, cell: (/** @type {any} */ f) => duration(f.after) },
        { head: 'instance', rank: 3, cell: (/** @type {any} */ f) => html`<a class="mono" href=${linkTo('instance/' + f.instance)}>${f.instance}</a>` },
      ]} />`}</section>`
}
