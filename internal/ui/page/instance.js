// One instance: its state, why on top, its life, what it uses and prints.
import { html } from './lib.js'
import { may, useMay, useResource } from './store.js'
import { bytes, instanceStates, linkTo, quoted, stamp, words } from './format.js'
import { Acts } from './acts.js'
import { Command, Facts, Heading, Late, Loaded, Mark, Since } from './parts.js'
import { Logs } from './logs.js'
import { WhyOf } from './node.js'
import { setQuery } from './fleet.js'
import { Story, Use } from './story.js'

/** @type {import('./grid.js').Column<any>[]} */
export const instanceColumns = [
  {
    head: 'instance',
    size: 260,
    by: i => i.id,
    cell: i => html`<a class="mono" href=${linkTo('instance/' + i.id)}>${i.id}</a>`,
  },
  {
    head: 'state',
    size: 190,
    by: i => instanceStates.indexOf(i.observed),
    cell: i =>
      html`<${Mark} kind="instance" state=${i.observed} />${i.desired !== 'running' && i.desired !== i.observed
          ? html` <span class="dim">to be ${i.desired}</span>`
          : ''}`,
  },
  {
    head: 'job',
    size: 170,
    by: i => `${i.job}/${i.group}`,
    cell: i => html`<a href=${linkTo('job/' + i.job)}>${i.job}</a><span class="dim">/${i.group}</span>`,
  },
  { head: 'node', size: 140, by: i => i.node, cell: i => html`<a href=${linkTo('node/' + i.node)}>${i.node}</a>` },
  { head: 'slot', size: 96, rank: 3, num: true, by: i => i.slot, cell: i => i.slot },
  { head: 'version', size: 96, rank: 3, num: true, by: i => i.version, cell: i => i.version },
  {
    head: 'memory',
    size: 96,
    rank: 3,
    num: true,
    by: i => i.resources.memory_bytes,
    cell: i => bytes(i.resources.memory_bytes),
  },
  { head: 'restarts', size: 96, rank: 2, num: true, by: i => i.restarts, cell: i => i.restarts },
  {
    head: 'age',
    size: 110,
    rank: 2,
    num: true,
    by: i => -Date.parse(i.created_at),
    cell: i => html`<${Since} time=${i.created_at} />`,
  },
]

/** @param {{ id: string, query: URLSearchParams }} p */
export function Instance({ id, query }) {
  const state = useResource('/v1/instances/' + encodeURIComponent(id))
  const i = state.data
  if (!i) return html`<${Heading}>Instance ${id}<//><${Loaded} state=${state} />`
  const lives = !['stopped', 'failed', 'lost'].includes(i.observed),
    logs = query.get('logs') !== null
  return html`<${Heading}
      >${i.job}/${i.group} <span class="dim">slot ${i.slot}</span> <${Mark} kind="instance" state=${i.observed}
    /><//>
    <${Late} state=${state} />
    ${i.reason && html`<p class="note warn">${i.reason}</p>`}
    ${i.eviction.requested &&
    html`<p class="note warn">
      It is to leave its node: ${words(i.eviction.cause)}, asked by${' '}
      ${i.eviction.by}${i.eviction.waiting_for?.length > 0
        ? `; it waits for ${i.eviction.waiting_for.map(words).join(', ')}`
        : ''}.
    </p>`}
    ${lives && html`<${InstanceActs} i=${i} />`}
    <${WhyOf} subject=${'instance/' + i.id} />
    <${Facts}
      of=${[
        ['node', html`<a href=${linkTo('node/' + i.node)}>${i.node}</a>`],
        ['job', html`<a href=${linkTo('job/' + i.job)}>${i.job}</a>, version ${i.version}`],
        ['member', i.member],
        ['data', i.class],
        ['created', stamp(i.created_at)],
        ['started', stamp(i.started_at)],
        ['restarts', String(i.restarts)],
        ['exit code', i.exit_code === null ? '' : String(i.exit_code)],
        ['memory allocated, with overhead', bytes(i.resources.memory_bytes)],
        ['CPU shares allocated', String(i.resources.cpu)],
        [
          'ports',
          Object.keys(i.ports).length > 0 &&
            Object.entries(i.ports).map(([k, v]) => html`<span class="label">${k} ${v}</span>`),
        ],
        ['volumes', i.volume],
        ['replaces', i.replaces && html`<a class="mono" href=${linkTo('instance/' + i.replaces)}>${i.replaces}</a>`],
        [
          'replaced by',
          i.replaced_by && html`<a class="mono" href=${linkTo('instance/' + i.replaced_by)}>${i.replaced_by}</a>`,
        ],
        ['id', html`<span class="mono">${i.id}</span>`],
      ]}
    />
    ${lives && i.started_at && html`<${Use} id=${i.id} allocated=${i.resources} />`}
    ${may('event.read') && html`<${Story} id=${i.id} i=${i} />`}
    ${may('instance.logs') &&
    html`<section>
      <h2>Logs</h2>
      ${logs
        ? html`<${Logs} instance=${i.id} />`
        : html`<p><button type="button" onClick=${() => setQuery('logs', '*', query)}>Follow the logs</button></p>`}
    </section>`}
    <section>
      <h2>By command</h2>
      ${may('instance.exec') && lives && html`<p><${Command} text="outspan exec -it ${quoted(i.id)} -- sh" /></p>`}
      ${may('instance.logs') && html`<p><${Command} text="outspan logs ${quoted(i.id)}" /></p>`}
      <p><${Command} text="outspan instance status ${quoted(i.id)}" /></p>
    </section>`
}

/** @param {{ i: any }} p the acts on an instance that its viewer may do */
function InstanceActs({ i }) {
  const on = 'instance/' + i.id,
    path = '/v1/instances/' + encodeURIComponent(i.id)
  const mayRestart = useMay('instance.restart', on),
    mayStop = useMay('instance.stop', on)
  const all = /** @type {import('./acts.js').Action[]} */ ([])
  if (mayRestart) {
    all.push({
      key: 'restart',
      name: 'Restart',
      post: [path + '/restart'],
      command: `outspan instance restart ${quoted(i.id)}`,
      text: 'Ends its program and starts it again on the same node. It is not ready meanwhile.',
    })
  }
  if (mayStop) {
    all.push({
      key: 'stop',
      name: 'Stop',
      post: [path + '/stop'],
      command: `outspan instance stop ${quoted(i.id)}`,
      text: 'Stops it if its budget allows it. Another instance takes its place.',
    })
  }
  return all.length > 0 && html`<${Acts} of=${all} />`
}
