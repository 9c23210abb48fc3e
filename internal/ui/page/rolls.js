// Rolls: the maintenance of many nodes, one after the other, as a board.
import { html, useMemo, useState } from './lib.js'
import { may, now, useResource } from './store.js'
import { write } from './session.js'
import { count, linkTo, quoted, span, stamp } from './format.js'
import { Advice, Bar, Command, Facts, Failure, Heading, Late, Loaded, Mark, Since, Table } from './parts.js'
import { Confirmed, Undoable } from './confirm.js'
import { optionsOf, turnDrain } from './drains.js'
import { Progress } from './progress.js'
import { drive, driven, rollsIn, stepsOf, stop } from './roll.js'

/** @param {import('./roll.js').Step[]} steps */
function stateOf(steps) {
  const failed = steps.filter(s => s.column === 'failed')
  if (steps.every(s => s.column === 'back' && s.used)) return 'drained'
  if (failed.some(s => !s.row || s.drain.phase !== 'canceled')) return 'failed'
  if (failed.length > 0) return 'canceled'
  return steps.some(s => s.drain?.paused && s.column === 'draining') ? 'paused' : 'draining'
}
const called = /** @type {Record<string, string>} */ ({
  drained: 'done',
  failed: 'stopped by a failure',
  canceled: 'canceled',
  paused: 'paused',
  draining: 'under way',
})
const done = (/** @type {import('./roll.js').Step[]} */ steps) =>
  steps.filter(s => s.column === 'back' && s.used).length
/** Whether the caller may roll nodes. */
export const mayRoll = () => may('node.drain') && may('node.cordon')

export function Rolls() {
  const drains = useResource('/v1/drains'),
    nodes = useResource('/v1/nodes')
  const rolls = useMemo(() => rollsIn(drains.data?.items || []), [drains.data])
  const rows = rolls.map(r => ({ ...r, steps: stepsOf(r, nodes.data?.items || []) }))
  return html`<${Heading} actions=${mayRoll() && html`<a class="button" href="#/rolls/new">New roll …</a>`}>Rolls<//>
    <p class="dim">
      A roll is the maintenance of many nodes: each in turn is drained, rebooted and taken back into use.
    </p>
    <${Loaded} state=${drains.data && !nodes.data ? nodes : drains}
      >${rows.length === 0
        ? html`<p class="empty">No roll has begun yet, or it is long ago.</p>`
        : html`<${Table}
            caption="Rolls"
            rows=${rows}
            id=${(/** @type {any} */ r) => r.id}
            columns=${[
              {
                head: 'nodes',
                cell: (/** @type {any} */ r) =>
                  html`<a href="#/rolls/${encodeURIComponent(r.id)}"
                    >${r.plan.nodes.slice(0, 4).join(', ')}${r.plan.nodes.length > 4
                      ? ` and ${r.plan.nodes.length - 4} more`
                      : ''}</a
                  >`,
              },
              {
                head: 'state',
                cell: (/** @type {any} */ r) =>
                  html`<${Mark} kind="drain" state=${stateOf(r.steps)} bare /> ${called[stateOf(r.steps)]}`,
              },
              {
                head: 'progress',
                cell: (/** @type {any} */ r) =>
                  html`<${Bar}
                    part=${done(r.steps)}
                    whole=${r.steps.length}
                    text=${`${done(r.steps)} of ${r.steps.length} back`}
                  />`,
              },
              {
                head: 'begun',
                rank: 2,
                num: true,
                cell: (/** @type {any} */ r) => html`<${Since} time=${r.begun} /> ago`,
              },
              { head: 'by', rank: 3, cell: (/** @type {any} */ r) => r.by },
              {
                head: 'message',
                rank: 3,
                maybe: true,
                cell: (/** @type {any} */ r) => (r.message.startsWith('node roll ') ? '' : r.message),
              },
            ]}
          />`}<//
    >
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan node roll --help" /></p>
    </section>`
}

/** @type {[column: import('./roll.js').Step['column'], title: string, mark: string][]} */
const columns = [
  ['waiting', 'Waiting', 'canceled'],
  ['draining', 'Draining', 'draining'],
  ['away', 'Away', 'paused'],
  ['back', 'Back', 'drained'],
  ['failed', 'Failed', 'failed'],
]

/** @param {{ id: string }} p */
export function Roll({ id }) {
  const drains = useResource('/v1/drains'),
    nodes = useResource('/v1/nodes')
  const mine = driven.value[id]
  const roll = useMemo(() => rollsIn(drains.data?.items || []).find(r => r.id === id), [drains.data, id])
  if (!drains.data || !nodes.data) return html`<${Heading}>Roll<//><${Loaded} state=${drains.data ? nodes : drains} />`
  if (!roll)
    return html`<${Heading}>Roll<//><${Late} state=${drains} />${mine?.error
        ? html`<${Failure} error=${mine.error} />`
        : mine?.runs
          ? html`<p class="dim">Begins …</p>`
          : html`<p class="empty">No drain is a step of a roll ${id}. <a href="#/rolls">All rolls</a></p>`}`
  const steps = stepsOf(roll, nodes.data.items),
    state = stateOf(steps),
    ended = state === 'drained' && !mine?.runs
  const running = roll.drains.filter(d => d.phase === 'draining'),
    paused = running.some(d => d.paused),
    acts = mayRoll() && !ended
  const each = (/** @type {string} */ verb) => () => Promise.all(running.map(d => turnDrain(d.id, verb)))
  const order = { plan: roll.plan, message: roll.message, deadline: roll.deadline }
  const here = acts && !mine?.runs && !roll.plan.exec && !roll.plan.no_reboot
  return html`<${Heading}
      actions=${acts &&
      running.length > 0 &&
      (paused
        ? html`<${Undoable} text="Resume" done="It goes on." write=${each('resume')} undo=${each('pause')} />`
        : html`<${Undoable}
            text="Pause"
            done="Paused. The deadlines go on."
            write=${each('pause')}
            undo=${each('resume')}
          />`)}
    >
      Roll of ${count(roll.plan.nodes.length, 'node')} <${Mark} kind="drain" state=${state} bare />${' '}
      <span class="dim">${called[state]}</span><//
    >
    <${Late} state=${drains.error || drains.old ? drains : nodes} />
    ${roll.others.map(
      d => html`<p class="note warn">Drain ${d.id} of ${d.actor} has this id, but other nodes: it is ignored.</p>`,
    )}
    ${mine?.runs &&
    html`<p class="note" role="status">This page carries the roll out, while it is open: ${mine.text}.</p>`}
    ${mine?.error && html`<${Failure} error=${mine.error} />`}
    ${here &&
    html`<p class="note warn">
        ${mine && !mine.error ? mine.text + ' ' : ''}${running.length
          ? 'The drains below go on by themselves, but the next node is only begun while somebody carries the roll ' +
            'out: a command, or an open page.'
          : 'Nothing goes on by itself: a command, or an open page, has to carry the roll out.'}${' '}
        If nobody does any more, do it here.
      </p>
      <p><button type="button" onClick=${() => drive(order)}>Carry on in this page</button></p>`}
    <${Facts}
      of=${[
        [
          'progress',
          html`<${Bar} part=${done(steps)} whole=${steps.length} text=${`${done(steps)} of ${steps.length} back`} />`,
        ],
        ['at once', roll.plan.max_parallel_nodes || 1],
        ['reboot by', roll.plan.exec ? html`<code>${roll.plan.exec}</code>` : 'a person'],
        ['options', optionsOf(roll.drains[0].options)],
        ['message', roll.message.startsWith('node roll ') ? '' : roll.message],
        ['begun', stamp(roll.begun)],
        ['by', roll.by],
        ['id', html`<span class="mono">${roll.id}</span>`],
      ]}
    />
    <div class="board">
      ${columns.map(([column, title, mark]) => {
        const found = steps.filter(s => s.column === column)
        return html`<section key=${column} class=${found.length ? '' : 'none'} aria-label=${title}>
          <h2><${Mark} kind="drain" state=${mark} bare />${title} <span class="dim">${found.length}</span></h2>
          <ul>
            ${found.map(s => html`<${Card} key=${s.node} step=${s} />`)}
          </ul>
        </section>`
      })}
    </div>
    ${acts &&
    html`<section>
      <h2>Stop</h2>
      ${mine?.runs &&
      html`<p>
        <button type="button" onClick=${() => stop(id)}>Stop carrying it out here</button>
        <span class="dim">What drains goes on; no further node is begun.</span>
      </p>`}${running.length > 0 && html`<${CancelRoll} id=${id} running=${running} />`}
    </section>`}
    <section>
      <h2>By command</h2>
      ${ended
        ? ''
        : html`<p>
            <${Command} text="outspan node roll --resume ${quoted(id)}" />${' '}
            <span class="dim">carries on from here, on any machine</span>
          </p>`}
      ${running.map(
        d =>
          html`<p key=${d.id}><${Command} text="outspan drain ${d.paused ? 'resume' : 'pause'} ${quoted(d.id)}" /></p>`,
      )}
      <p><${Command} text="outspan drain ls -o wide" /></p>
    </section>`
}

/** @param {{ step: import('./roll.js').Step }} p */
function Card({ step: s }) {
  const part = s.drain?.nodes.find((/** @type {any} */ n) => n.node === s.node)
  const since = s.column === 'draining' ? part?.started_at : part?.ended_at
  return html`<li>
    <p>
      <a href=${linkTo('node/' + s.node)}>${s.node}</a>${since &&
      html` <span class="dim small">for ${span(now.value - Date.parse(since))}</span>`}
    </p>
    ${s.text && html`<p class=${s.column === 'failed' ? '' : 'dim'}>${s.text}</p>`}
    ${s.drain &&
    html`<p class="small">
      <a href=${linkTo('drain/' + s.drain.id)}
        >${s.column === 'draining' ? html`<${Progress} of=${s.drain} />` : 'its drain'}</a
      >
    </p>`}
    ${s.column === 'failed' && s.drain && html`<p class="small"><${Advice} text="outspan why ${quoted(s.node)}" /></p>`}
  </li>`
}

/** @param {{ id: string, running: any[] }} p */
function CancelRoll({ id, running }) {
  const [back, setBack] = useState(false)
  const names = running.flatMap(d => d.nodes.map((/** @type {any} */ n) => n.node))
  const cancel = () => {
    stop(id)
    return Promise.all(
      running.map(d =>
        write('POST', `/v1/drains/${encodeURIComponent(d.id)}/cancel`, { body: back ? { uncordon: true } : {} }),
      ),
    )
  }
  return html`<${Confirmed}
    text="Cancel the roll …"
    title="Cancel the roll"
    act="Cancel the roll"
    typed=${names[0]}
    write=${cancel}
  >
    <p>
      Cancels the drain of ${names.join(', ')}, and with that the roll stops. Nodes that are back stay in use, and those
      that wait are not touched. The roll can be carried on later: it then drains ${names.join(', ')} anew.
    </p>
    <label class="check"
      ><input type="checkbox" checked=${back} onChange=${(/** @type {any} */ e) => setBack(e.target.checked)} /><span
        >Take new instances there again</span
      ></label
    >
    ${running.map(
      d => html`<p><${Command} text="outspan drain cancel ${quoted(d.id)}${back ? ' --uncordon' : ''}" /></p>`,
    )}<//
  >`
}
