// HOLD: nothing is evicted, because too many nodes failed at once.
import { html } from './lib.js'
import { may, now, status } from './store.js'
import { write } from './session.js'
import { count, linkTo, span, stamp } from './format.js'
import { Command, Mark, Since, Table } from './parts.js'
import { Confirmed } from './confirm.js'

const CALM = 60000 // ms for which few enough nodes must have been out

/** @param {any} hold the nodes that are out, by name; unheard ones may be well @returns {string[]} */
const names = hold =>
  (hold.nodes || []).filter((/** @type {any} */ n) => n.why !== 'unheard').map((/** @type {any} */ n) => n.node)

/** @param {string[]} all @returns {string} the first of many names */
const some = all => all.slice(0, 4).join(', ') + (all.length > 4 ? ` and ${all.length - 4} more` : '')

/** @param {any} d a status @returns {string} HOLD in one sentence */
export function holdSentence(d) {
  const all = names(d.hold),
    since = d.hold.since ? ` since ${span(now.value - Date.parse(d.hold.since))}` : ''
  const who = all.length === 0 ? 'too many nodes were out at once' : `${count(all.length, 'node')} out (${some(all)})`
  return `HOLD${since}: ${who}, so nothing is evicted from them.`
}

const reasons = /** @type {Record<string, string>} */ ({
  offline: 'written offline',
  silent: 'no heartbeats',
  sick: 'its own agent reports troubles',
  unheard: 'no server has heard it yet: it counts as out until then',
})

/** @param {number} n */
const areOut = n => `${count(n, 'node')} ${n === 1 ? 'is' : 'are'} out`

/** @param {number | undefined} n how many nodes may be out when a HOLD ends; older servers don't tell it */
const calmly = n =>
  n ? `at most ${count(n, 'node')} ${n === 1 ? 'has' : 'have'} been` : n === 0 ? 'no node has been' : 'few have been'

/** @param {any} hold which is not calm @returns {string} how it ends */
function ending(hold) {
  const out = names(hold).length,
    unheard = (hold.nodes || []).length - out
  return [
    `by itself, when for 60 s ${calmly(hold.calm_nodes)} out`,
    hold.domain && ', and no whole failure domain beside others',
    `; ${areOut(out)} now`,
    hold.domain && `, among them all of ${hold.domain}`,
    unheard > 0 && `, and ${count(unheard, 'node')} ${unheard === 1 ? 'is' : 'are'} not heard yet`,
    '.',
  ]
    .filter(Boolean)
    .join('')
}

/** What is known of the HOLD, and how it ends. */
export function Hold() {
  const d = status.state.value.data,
    hold = d.hold,
    all = hold.nodes || []
  const calm = hold.calm_since && Math.max(0, Date.parse(hold.calm_since) + CALM - now.value)
  return html`<li class="hold">
    <h2>
      <${Mark} kind="node" state="offline" bare />HOLD${' '}
      <span class="dim">since ${stamp(hold.since)}, ${html`<${Since} time=${hold.since} />`}</span>
    </h2>
    <p>
      It began with: ${hold.reason}. So many nodes seldom fail by themselves: most likely they share a cause, such as
      the network, and what runs on them still runs.
    </p>
    ${all.length > 0
      ? html`<${Table}
          caption="Nodes out or not heard yet"
          rows=${all}
          id=${(/** @type {any} */ n) => n.node_id}
          columns=${[
            { head: 'node', cell: (/** @type {any} */ n) => html`<a href=${linkTo('node/' + n.node)}>${n.node}</a>` },
            {
              head: 'why it counts',
              cell: (/** @type {any} */ n) =>
                html`${reasons[n.why] || n.why},${' '}
                  <span class="dim"
                    >${n.last_seen
                      ? html`heard <${Since} time=${n.last_seen} /> ago`
                      : 'not heard by this server'}</span
                  >`,
            },
          ]}
        />`
      : html`<p>No node is known to be out.</p>`}
    <dl class="holds">
      <div>
        <dt>Does not happen</dt>
        <dd>
          No node is written offline, no instance is replaced because its node is silent or sick, and nothing is
          preempted or rebalanced.
        </dd>
      </div>
      <div>
        <dt>Goes on</dt>
        <dd>Drains, rollouts, scaling and what people order. New instances are placed on nodes that are heard.</dd>
      </div>
      <div>
        <dt>It ends</dt>
        <dd>
          ${calm !== null && calm !== undefined
            ? `by itself in about ${span(calm)}, if no more nodes go out: few enough are out now.`
            : ending(hold)}
        </dd>
      </div>
    </dl>
    <p class="way">
      <span class="dim">Look at the network first. To end it by hand</span>${' '}
      <${Command} text="outspan settings resume hold" />
    </p>
    ${may('cluster.pause') &&
    html`<${Confirmed}
      text="End the HOLD …"
      title="End the HOLD"
      act="End the HOLD"
      typed=${d.cluster || 'hold'}
      write=${() => write('POST', '/v1/settings/resume', { body: { what: 'hold' } })}
    >
      <p>
        The servers then write the silent nodes offline, one after another, and start replacements of${' '}
        ${names(hold).length ? `what runs on ${some(names(hold))}` : 'what runs there'}. If the network alone has
        failed, these run twice until it is back, except where only one may run.
      </p>
      <p>No new HOLD begins for 10 minutes.</p><//
    >`}
  </li>`
}
