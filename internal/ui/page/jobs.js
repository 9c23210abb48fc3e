// Jobs, and one job.
import { html } from './lib.js'
import { useResource } from './store.js'
import { count, linkTo } from './format.js'
import { Bar, Command, Facts, Filter, Heading, Late, Loaded, Mark, Table } from './parts.js'
import { Instances, WhyOf } from './node.js'
import { setQuery } from './fleet.js'

/** @param {any} j @param {'count' | 'ready'} what */
const sum = (j, what) => j.groups.reduce((/** @type {number} */ n, /** @type {any} */ g) => n + g[what], 0)

/** @param {{ query: URLSearchParams }} p */
export function Jobs({ query }) {
  const state = useResource('/v1/jobs')
  const text = query.get('q') || ''
  const all = /** @type {any[]} */ (state.data?.items || [])
  const found = all.filter(j => text.toLowerCase().split(/\s+/).every(w => `${j.name} ${j.status} ${j.class}`.toLowerCase().includes(w)))
  return html`<${Heading}>Jobs<//>
    <${Loaded} state=${state} empty=${html`No job runs. Start with <${Command} text="outspan job init" /> and <${Command} text="outspan job run FILE" />`}>
      <div class="tools"><${Filter} value=${text} hint="name or state" onChange=${(/** @type {string} */ v) => setQuery('q', v, query)} /></div>
      <p class="dim small">${found.length === all.length ? count(all.length, 'job') : `${found.length} of ${count(all.length, 'job')}`}.</p>
      ${found.length === 0 ? html`<p class="empty">No job matches.</p>` : html`<${Table} caption="Jobs" rows=${found} id=${(/** @type {any} */ j) => j.name} columns=${columns} />`}
    <//>`
}

/** @type {{ head: string, cell: (j: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const columns = [
  { head: 'job', cell: j => html`<a href=${linkTo('job/' + j.name)}>${j.name}</a>` },
  { head: 'state', cell: j => html`<${Mark} kind="job" state=${j.status} />` },
  { head: 'ready', cell: j => html`<${Bar} part=${sum(j, 'ready')} whole=${sum(j, 'count')} text=${`${sum(j, 'ready')} of ${sum(j, 'count')}`} />` },
  { head: 'version', rank: 2, num: true, cell: j => j.version },
  { head: 'class', rank: 3, cell: j => j.class },
  { head: 'waits for', rank: 2, maybe: true, cell: j => j.groups.map((/** @type {any} */ g) => g.message).filter(Boolean).join('; ') },
]

/** @param {{ name: string }} p */
export function Job({ name }) {
  const state = useResource('/v1/jobs/' + encodeURIComponent(name))
  const j = state.data
  if (!j) return html`<${Heading}>Job ${name}<//><${Loaded} state=${state} />`
  return html`<${Heading}>Job ${j.name} <${Mark} kind="job" state=${j.status} /><//>
    <${Late} state=${state} />
    <${Facts} of=${[['version', String(j.version)], ['last stable version', j.stable_version ? String(j.stable_version) : 'none'], ['class', j.class], ['deployment', j.deployment_id]]} />
    <section><h2>Groups</h2><${Table} caption="Groups" rows=${j.groups} id=${(/** @type {any} */ g) => g.name} columns=${[
      { head: 'group', cell: (/** @type {any} */ g) => g.name }, { head: 'role', rank: 2, cell: (/** @type {any} */ g) => g.role },
      { head: 'ready', cell: (/** @type {any} */ g) => html`<${Bar} part=${g.ready} whole=${g.count} text=${`${g.ready} of ${g.count}`} />` },
      { head: 'placed', rank: 3, num: true, cell: (/** @type {any} */ g) => g.placed }, { head: 'pending', num: true, cell: (/** @type {any} */ g) => g.pending },
      { head: 'waits for', rank: 2, maybe: true, cell: (/** @type {any} */ g) => g.message },
    ]} /></section>
    <${Instances} query=${{ job: j.name }} empty="It has no instances." />
    <${WhyOf} subject=${'job/' + j.name} />
    <section><h2>By command</h2><p><${Command} text="outspan job status ${j.name}" /></p><p><${Command} text="outspan job history ${j.name}" /></p></section>`
}
