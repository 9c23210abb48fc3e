// Starting a drain: options, then the forecast for exactly these options, then the start.
import { html, useState } from './lib.js'
import { now, useResource } from './store.js'
import { write } from './session.js'
import { count, linkTo, number, quoted, words } from './format.js'
import { Advice, Command, Failure, Heading, Late, Loaded, Mark, Refused, goTo } from './parts.js'
import { forecasts, Lanes, planned, plannedWords } from './lanes.js'

const GOOD = 60000 // ms for which a forecast counts

/**
 * @typedef {{ message: string, deadline: string, ignore_system: boolean, force_at_deadline: boolean, force: boolean,
 *   accept_downtime: boolean, policy: string, more: string, parallel: string }} Options more: names of further nodes
 */
/** @type {Options} */
const none = {
  message: '',
  deadline: '',
  ignore_system: false,
  force_at_deadline: false,
  force: false,
  accept_downtime: false,
  policy: '',
  more: '',
  parallel: '',
}

const policies = [
  'always-allow',
  'allow-if-replica-is-stopped',
  'block-if-contains-last-replica',
  'block-for-eviction-if-contains-last-replica',
  'block-for-eviction',
]

/** @param {string} node @param {Options} o the names of all nodes to drain, in their order */
const nodesOf = (node, o) => [...new Set([node, ...o.more.split(/[\s,]+/).filter(Boolean)])]

/** @param {string} node @param {Options} o */
function bodyOf(node, o) {
  /** @type {Record<string, any>} */
  const body = { nodes: nodesOf(node, o) }
  if (o.message) body.message = o.message
  if (o.deadline.trim()) body.deadline = o.deadline.trim()
  for (const flag of /** @type {const} */ (['ignore_system', 'force_at_deadline', 'force']))
    if (o[flag]) body[flag] = true
  if (o.accept_downtime) body.accept_downtime = ['*']
  if (o.policy) body.policy = o.policy
  if (body.nodes.length > 1 && Number(o.parallel) > 0) body.max_parallel_nodes = Number(o.parallel)
  return body
}

/** @param {any} b the body of the request */
const commandOf = b =>
  [
    'outspan node drain',
    ...b.nodes.map(quoted),
    b.message && '-m ' + quoted(b.message),
    b.deadline && '--deadline ' + quoted(b.deadline),
    b.ignore_system && '--ignore-system',
    b.force_at_deadline && '--force-at-deadline',
    b.force && '--force',
    b.accept_downtime && '--accept-downtime',
    b.policy && '--policy ' + b.policy,
    b.max_parallel_nodes && '--max-parallel-nodes ' + b.max_parallel_nodes,
  ]
    .filter(Boolean)
    .join(' ')

/** @param {{ node: string }} p */
export function NewDrain({ node }) {
  const [o, setOptions] = useState(none),
    [error, setError] = useState(/** @type {any} */ (null)),
    [busy, setBusy] = useState(false)
  const [forecast, setForecast] = useState(
    /** @type {{ of: any, body: any, at: number, state: string } | null} */ (null),
  )
  const [typed, setTyped] = useState('')
  const set = (/** @type {Partial<Options>} */ some) => {
    setOptions({ ...o, ...some })
    setForecast(null)
    setTyped('')
  }
  const state = useResource('/v1/nodes/' + encodeURIComponent(node))
  /** @param {any} body @param {boolean} dry */
  const send = async (body, dry) => {
    setBusy(true)
    setError(null)
    try {
      const got = await write('POST', '/v1/drains', { query: dry ? { dry_run: 'true' } : {}, body })
      if (!dry && got.value.drain) {
        forecasts.set(got.value.drain, got.value.forecast)
        goTo(linkTo('drain/' + got.value.drain))
      } else setForecast({ of: got.value, body, at: Date.now(), state: state.data.state })
    } catch (e) {
      setError(e)
    }
    setBusy(false)
  }
  const allowed = useResource('/v1/auth/can-i', { verb: 'node.drain', object: 'node/' + node }, { slow: true }).data
  if (!state.data) return html`<${Heading}>Drain ${node}<//><${Loaded} state=${state} />`
  if (!allowed)
    return html`<${Heading}>Drain ${node}<//>
      <p class="dim">Asking the servers …</p>`
  if (!allowed.allowed)
    return html`<${Heading}>Drain ${node}<//> <${Refused} what="drain nodes" verb="node.drain" object=${node} />`
  const body = bodyOf(node, o),
    nodes = body.nodes
  // A forecast counts for the body that it was made for, while the node is as it was, and for a while.
  const good =
    forecast &&
    JSON.stringify(forecast.body) === JSON.stringify(body) &&
    forecast.state === state.data.state &&
    now.value - forecast.at < GOOD
  const risky = o.force || o.force_at_deadline
  const box = (/** @type {keyof Options} */ key, /** @type {string} */ text) =>
    html`<label class="check"
      ><input
        type="checkbox"
        checked=${o[key]}
        onChange=${(/** @type {any} */ e) => set({ [key]: e.target.checked })}
      /><span>${text}</span></label
    >`
  const text = (/** @type {keyof Options} */ key) => (/** @type {any} */ e) => set({ [key]: e.target.value })
  return html`<${Heading}
      >Drain ${nodes.length > 1 ? count(nodes.length, 'node') : node} <${Mark} kind="node" state=${state.data.state}
    /><//>
    <${Late} state=${state} />
    <p class="dim">
      Takes no new instances on the node, starts replacements elsewhere, and stops what runs there when they are ready.
    </p>
    <form
      onSubmit=${(/** @type {Event} */ e) => {
        e.preventDefault()
        send(body, true)
      }}
    >
      <label>Why, for people<input value=${o.message} maxlength="256" onInput=${text('message')} /></label>
      <label
        >Deadline <span class="dim">1h, none, or empty for the cluster's setting</span
        ><input class="short" value=${o.deadline} onInput=${text('deadline')}
      /></label>
      ${box('ignore_system', 'Leave instances of system groups alone')}
      ${box('force_at_deadline', 'Kill what is left at the deadline')}
      ${box('force', 'Also stop what its role says never to stop')}
      <details open=${!!(o.more || o.policy || o.accept_downtime)}>
        <summary>More nodes and options</summary>
        <div class="fields">
          <label
            >More nodes <span class="dim">names, in the order of their turns</span
            ><input value=${o.more} spellcheck=${false} onInput=${text('more')}
          /></label>
          ${nodes.length > 1 &&
          html`<label
            >At once <span class="dim">empty: all</span
            ><input class="short" inputmode="numeric" pattern="[0-9]*" value=${o.parallel} onInput=${text('parallel')}
          /></label>`}
          <label
            >Policy for copies of data<select value=${o.policy} onChange=${text('policy')}>
              <option value="">the cluster's setting</option>
              ${policies.map(p => html`<option value=${p}>${p}</option>`)}
            </select></label
          >
          ${box('accept_downtime', 'Stop instances even where no replacement fits; that is recorded')}
        </div>
      </details>
      <p><button type="submit" disabled=${busy}>Show the forecast</button></p>
    </form>
    <p class="unseen" role="status">${good ? `Forecast: ${sentenceOf(forecast.of)}` : ''}</p>
    ${error && html`<${Failure} error=${error} />`}
    ${forecast &&
    !good &&
    html`<p class="note warn" role="status">
      The forecast was for other options, for another state of the node, or is a minute old. Show it again.
    </p>`}
    ${forecast &&
    good &&
    html`<${Forecast} of=${forecast.of} at=${forecast.at} /> ${forecast.of.started.length > 0 &&
      html`<div class="start">
        ${risky &&
        html`<label
          >This can lose work. Type ${node} to go on
          <input class="short" value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)}
        /></label>`}
        <button
          type="button"
          class="primary"
          disabled=${busy || (risky && typed !== node)}
          onClick=${() => send(forecast.body, false)}
        >
          Start the drain
        </button>
      </div>`}`}
    <section>
      <h2>By command</h2>
      <p><${Command} text=${commandOf(body)} /></p>
    </section>`
}

/** @param {any[]} rows of a forecast: whether the drain can't end by itself, by those that would stay */
export const stuckIn = rows =>
  rows.filter(
    f => f.never || f.blocker.startsWith('unschedulable') || f.blocker.startsWith('replacement_unschedulable'),
  )

/** @param {any[]} rows of a forecast: how many of them can't leave yet, in words */
function waiting(rows) {
  const n = rows.filter(f => f.blocker).length
  return n ? ` ${number(n)} of them would wait until what blocks ${n > 1 ? 'them' : 'it'} is gone.` : ''
}

/** @param {any} of a forecast */
const sentenceOf = of =>
  of.forecast.length === 0
    ? 'Nothing has to move.'
    : stuckIn(of.forecast).length
      ? `This drain can't end by itself: ${count(stuckIn(of.forecast).length, 'instance')} would stay.`
      : `${count(of.forecast.length, 'instance')} would leave. This is what would happen if the drain began now.` +
        waiting(of.forecast)

/** @param {{ of: any, at: number }} p what a drain would do; at: when it was asked */
function Forecast({ of, at }) {
  const rows = /** @type {any[]} */ (of.forecast),
    stuck = stuckIn(rows)
  const held = /** @type {any[]} */ ([]) // what blocks: the same of a group on a node once
  for (const f of rows.filter(f => f.blocker)) {
    const same = held.find(h => h.group === f.group && h.node === f.node && h.message === f.message)
    if (same) same.n++
    else held.push({ ...f, n: 1 })
  }
  const said = new Map(rows.map(f => [f.instance, plannedWords(f)]))
  const { lanes, axis } = planned(rows, at)
  const nodes = /** @type {string[]} */ ([...new Set(rows.map(f => f.node))])
  return html`<section>
    <h2>Forecast</h2>
    ${of.rejected.map(
      (/** @type {any} */ r) =>
        html`<p class="note bad">${r.node}: ${r.message} <span class="dim mono">${r.code}</span></p>`,
    )}
    ${rows.length === 0
      ? of.started.length > 0 && html`<p>${sentenceOf(of)}</p>`
      : html` <p class=${stuck.length ? 'note warn' : ''}>${sentenceOf(of)}</p>
          ${held.length > 0 &&
          html`<ul class="blockers">
              ${held.slice(0, 20).map(
                f =>
                  html`<li key=${f.instance}>
                    <div>
                      <p>
                        <strong>${f.group}</strong>${' '}
                        <span class="dim">${f.n > 1 ? `${count(f.n, 'instance')} ` : ''}on ${f.node}</span>:${' '}
                        ${f.message || words(f.blocker)}
                        <span class="dim mono"> ${f.blocker}</span>
                      </p>
                      ${f.unblock && html`<p><span class="dim">Way out: </span><${Advice} text=${f.unblock} /></p>`}
                    </div>
                  </li>`,
              )}
            </ul>
            ${held.length > 20 && html`<p class="dim">${held.length} in all.</p>`}`}
          ${nodes.map(
            name =>
              html`${nodes.length > 1 && html`<h3>${name}</h3>`}<${Lanes}
                  key=${name}
                  caption="Forecast for ${name}"
                  lanes=${lanes.filter(l => l.node === name)}
                  axis=${axis}
                  blockers=${new Map(rows.map(f => [f.instance, f.blocker]))}
                  say=${(/** @type {any} */ l) => said.get(l.instance)}
                />`,
          )}
          ${[...new Set(rows.map(f => f.note).filter(Boolean))].map(n => html`<p class="dim">${n}</p>`)}`}
  </section>`
}
