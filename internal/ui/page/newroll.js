// Starting a roll: which nodes, a dry run of each, and the start.
import { html, useState } from './lib.js'
import { now, useResource } from './store.js'
import { write } from './session.js'
import { bytes, count, linkTo, quoted, span, words } from './format.js'
import { Command, Failure, Heading, Late, Loaded, Refused, Table } from './parts.js'
import { msOf } from './lanes.js'
import { useWrite } from './confirm.js'
import { stuckIn } from './newdrain.js'
import { drive, newID } from './roll.js'
import { mayRoll } from './rolls.js'

const GOOD = 60000 // ms for which a dry run counts

/**
 * @param {string} text labels such as rack=r1,os=debian12, or names
 * @param {any[]} nodes
 * @returns {{ names: string[], unknown: string[] }}
 */
function chosen(text, nodes) {
  const given = text.split(/[\s,]+/).filter(Boolean)
  if (given.length > 0 && given.every(g => g.includes('='))) {
    const labels = given.map(g => [g.slice(0, g.indexOf('=')), g.slice(g.indexOf('=') + 1)])
    return {
      names: nodes
        .filter(n => n.intent !== 'disabled' && labels.every(([k, v]) => n.labels[k] === v))
        .map(n => n.name)
        .sort(),
      unknown: [],
    }
  }
  const known = new Set(nodes.map(n => n.name)),
    unique = [...new Set(given)]
  return { names: unique.filter(g => known.has(g)), unknown: unique.filter(g => !known.has(g)) }
}

/**
 * @param {any[]} nodes
 * @param {string} name
 * @returns {number} bytes that the other nodes have left if they take all over
 */
const roomWithout = (nodes, name) =>
  nodes.reduce(
    (sum, n) =>
      n.name === name
        ? sum - n.allocated.memory_bytes
        : n.eligible
          ? sum + n.capacity.memory_bytes - n.reserved.memory_bytes - n.allocated.memory_bytes
          : sum,
    0,
  )

export function NewRoll() {
  const state = useResource('/v1/nodes')
  const [which, setWhich] = useState(''),
    [parallel, setParallel] = useState('1'),
    [deadline, setDeadline] = useState(''),
    [message, setMessage] = useState('')
  const [dry, setDry] = useState(/** @type {{ rows: any[], of: string, at: number } | null} */ (null))
  const { busy, error, run } = useWrite()
  if (!state.data) return html`<${Heading}>New roll<//><${Loaded} state=${state} />`
  if (!mayRoll())
    return html`<${Heading}>New roll<//>
      <${Refused} what="roll nodes: that takes node.drain and node.cordon" verb="node.drain" />`
  const nodes = /** @type {any[]} */ (state.data.items),
    { names, unknown } = chosen(which, nodes),
    n = Math.max(1, Math.floor(Number(parallel)) || 1)
  const key = JSON.stringify([names, deadline.trim()]),
    good = dry && dry.of === key && now.value - dry.at < GOOD
  const forecast = async () => {
    const rows = []
    for (const node of names) {
      const got = await write('POST', '/v1/drains', {
        query: { dry_run: 'true' },
        body: { nodes: [node], ...(deadline.trim() ? { deadline: deadline.trim() } : {}) },
      })
      rows.push({
        node,
        forecast: got.value.forecast,
        rejected: got.value.rejected,
        room: roomWithout(nodes, node),
        stuck: stuckIn(got.value.forecast).length > 0 || got.value.rejected.length > 0,
      })
    }
    setDry({ rows, of: key, at: Date.now() })
  }
  const start = () => {
    const plan = { id: newID(), nodes: names, max_parallel_nodes: n }
    drive({ plan, message, deadline: deadline.trim() })
    location.hash = '#/rolls/' + plan.id
  }
  const labels = which.includes('=')
  const command = [
    'outspan node roll --wait-reboot',
    labels
      ? '--selector ' +
        quoted(
          which
            .trim()
            .split(/[\s,]+/)
            .join(','),
        )
      : names.map(quoted).join(' ') || 'NODE...',
    n > 1 && `--max-parallel-nodes ${n}`,
    deadline.trim() && '--deadline ' + quoted(deadline.trim()),
    message && '-m ' + quoted(message),
  ]
    .filter(Boolean)
    .join(' ')
  return html`<${Heading}>New roll<//><${Late} state=${state} />
    <p class="dim">
      Drains each node in turn, waits until a person has rebooted it, takes it back into use, and waits until the groups
      that moved are whole again. Then comes the next. The first failure stops it.
    </p>
    <form
      onSubmit=${(/** @type {Event} */ e) => {
        e.preventDefault()
        run(forecast)
      }}
    >
      <label
        >Nodes <span class="dim">labels such as rack=r1, or names in their order</span
        ><input value=${which} spellcheck=${false} onInput=${(/** @type {any} */ e) => setWhich(e.target.value)}
      /></label>
      <p class=${unknown.length ? 'note warn' : 'dim small'} role="status">
        ${unknown.length
          ? `There is no node ${unknown.join(', ')}.`
          : names.length
            ? `${count(names.length, 'node')}: ${names.slice(0, 12).join(', ')}${names.length > 12 ? ' …' : ''}`
            : which.trim()
              ? 'No node has these labels.'
              : 'No node is chosen yet.'}
      </p>
      <label
        >At once<input
          class="short"
          inputmode="numeric"
          value=${parallel}
          onInput=${(/** @type {any} */ e) => setParallel(e.target.value)}
      /></label>
      <label
        >Deadline of each drain <span class="dim">1h, none, or empty for the cluster's setting</span
        ><input class="short" value=${deadline} onInput=${(/** @type {any} */ e) => setDeadline(e.target.value)}
      /></label>
      <label
        >Why, for people<input
          value=${message}
          maxlength="256"
          onInput=${(/** @type {any} */ e) => setMessage(e.target.value)}
      /></label>
      <p><button type="submit" disabled=${busy || names.length === 0 || unknown.length > 0}>Dry run</button></p>
    </form>
    ${error && html`<${Failure} error=${error} />`}
    ${dry &&
    !good &&
    html`<p class="note warn" role="status">The dry run was for other options, or is a minute old. Run it again.</p>`}
    ${dry &&
    good &&
    html`<section aria-live="polite">
      <h2>Dry run</h2>
      <p class=${dry.rows.some(r => r.stuck) ? 'note warn' : ''}>
        ${dry.rows.some(r => r.stuck)
          ? count(dry.rows.filter(r => r.stuck).length, 'node') +
            ' could not be drained now. The roll would stand there until that is mended.'
          : `Each of ${count(dry.rows.length, 'node')} could be drained now.`}${' '}
        Nothing was changed.
      </p>
      <${Table} caption="Dry run" rows=${dry.rows} id=${(/** @type {any} */ r) => r.node} columns=${dryColumns} />
      <div class="start">
        <button type="button" class="primary" disabled=${busy} onClick=${start}>Start the roll</button>
        <p class="dim">
          This page carries it out while it is open. If you close it, what drains goes on, and any machine can carry on
          with the rest.
        </p>
      </div>
    </section>`}
    <section>
      <h2>By command</h2>
      <p><${Command} text=${command + ' --dry-run'} /></p>
      <p><${Command} text=${command} /></p>
      <p class="dim">
        The command can also reboot the machines itself: --exec 'ssh {node} reboot || true'. The page can't.
      </p>
    </section>`
}

/** @param {any} r @param {string[]} actions */
const counted = (r, ...actions) => r.forecast.filter((/** @type {any} */ f) => actions.includes(f.action)).length
/** @type {{ head: string, cell: (r: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const dryColumns = [
  { head: 'node', cell: r => html`<a href=${linkTo('node/' + r.node)}>${r.node}</a>` },
  { head: 'moves', num: true, cell: r => counted(r, 'move', 'stop_first') },
  { head: 'stops', num: true, rank: 2, cell: r => counted(r, 'stop') },
  { head: 'stays', num: true, rank: 2, cell: r => counted(r, 'leave') },
  {
    head: 'blocked',
    cell: r =>
      r.rejected
        .map((/** @type {any} */ x) => x.message)
        .concat([
          ...new Set(
            r.forecast
              .filter((/** @type {any} */ f) => f.blocker)
              .map((/** @type {any} */ f) => `${f.group}: ${f.message || words(f.blocker)}`),
          ),
        ])
        .slice(0, 3)
        .map((/** @type {string} */ t) => html`<p>${t}</p>`),
  },
  {
    head: 'empty after about',
    num: true,
    rank: 3,
    cell: r => {
      const t = Math.max(0, ...r.forecast.map((/** @type {any} */ f) => msOf(f.after)))
      return t ? span(t) : ''
    },
  },
  {
    head: 'room left meanwhile',
    num: true,
    rank: 2,
    cell: r => (r.room < 0 ? `${bytes(-r.room)} too little` : bytes(r.room)),
  },
  { head: 'can finish', cell: r => (r.stuck ? 'no' : 'yes') },
]
