// One instance: its state, why on top.
import { html } from './lib.js'
import { may, useResource } from './store.js'
import { bytes, linkTo, stamp, words } from './format.js'
import { Command, Facts, Heading, Late, Loaded, Mark, Since } from './parts.js'
import { WhyOf } from './node.js'

/** @type {{ head: string, cell: (i: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
export const instanceColumns = [
  { head: 'instance', cell: i => html`<a class="mono" href=${linkTo('instance/' + i.id)}>${i.id}</a>` },
  { head: 'state', cell: i => html`<${Mark} kind="instance" state=${i.observed} />${i.desired !== 'running' && i.desired !== i.observed ? html` <span class="dim">to be ${i.desired}</span>` : ''}` },
  { head: 'job', cell: i => html`<a href=${linkTo('job/' + i.job)}>${i.job}</a><span class="dim">/${i.group}</span>` },
  { head: 'node', cell: i => html`<a href=${linkTo('node/' + i.node)}>${i.node}</a>` },
  { head: 'slot', rank: 3, num: true, cell: i => i.slot },
  { head: 'version', rank: 3, num: true, cell: i => i.version },
  { head: 'memory', rank: 3, num: true, cell: i => bytes(i.resources.memory_bytes) },
  { head: 'restarts', rank: 2, num: true, cell: i => i.restarts },
  { head: 'age', rank: 2, num: true, cell: i => html`<${Since} time=${i.created_at} />` },
]

/** @param {{ id: string }} p */
export function Instance({ id }) {
  const state = useResource('/v1/instances/' + encodeURIComponent(id))
  const i = state.data
  if (!i) return html`<${Heading}>Instance ${id}<//><${Loaded} state=${state} />`
  return html`<${Heading}>${i.job}/${i.group} <span class="dim">slot ${i.slot}</span> <${Mark} kind="instance" state=${i.observed} /><//>
    <${Late} state=${state} />
    ${i.reason && html`<p class="note warn">${i.reason}</p>`}
    ${i.eviction.requested && html`<p class="note warn">It is to leave its node: ${words(i.eviction.cause)}, asked by ${i.eviction.by}${
      i.eviction.waiting_for?.length > 0 ? `; it waits for ${i.eviction.waiting_for.map(words).join(', ')}` : ''}.</p>`}
    <${WhyOf} subject=${'instance/' + i.id} />
    <${Facts} of=${[
      ['node', html`<a href=${linkTo('node/' + i.node)}>${i.node}</a>`], ['job', html`<a href=${linkTo('job/' + i.job)}>${i.job}</a>, version ${i.version}`],
      ['member', i.member], ['data', i.class], ['created', stamp(i.created_at)], ['started', stamp(i.started_at)], ['restarts', String(i.restarts)],
      ['exit code', i.exit_code === null ? '' : String(i.exit_code)], ['memory', bytes(i.resources.memory_bytes)], ['CPU shares', String(i.resources.cpu)],
      ['ports', Object.entries(i.ports).map(([k, v]) => html`<span class="label">${k} ${v}</span>`)], ['volumes', i.volume],
      ['replaces', i.replaces && html`<a class="mono" href=${linkTo('instance/' + i.replaces)}>${i.replaces}</a>`],
      ['replaced by', i.replaced_by && html`<a class="mono" href=${linkTo('instance/' + i.replaced_by)}>${i.replaced_by}</a>`],
      ['id', html`<span class="mono">${i.id}</span>`]]} />
    <section><h2>By command</h2>${may('instance.logs') && html`<p><${Command} text="outspan logs ${i.id}" /></p>`}<p><${Command} text="outspan instance status ${i.id}" /></p></section>`
}
