// All jobs.
import { html, useMemo } from './lib.js'
import { may, useResource } from './store.js'
import { count, jobStates, linkTo, number } from './format.js'
import { Bar, Command, Filter, Heading, Loaded, Mark } from './parts.js'
import { Grid } from './grid.js'
import { setQuery } from './fleet.js'

/** @param {any} j @param {'count' | 'ready'} what */
const sum = (j, what) => j.groups.reduce((/** @type {number} */ n, /** @type {any} */ g) => n + g[what], 0)

/** @param {{ query: URLSearchParams }} p */
export function Jobs({ query }) {
  const state = useResource('/v1/jobs')
  const text = query.get('q') || ''
  const all = /** @type {any[]} */ (state.data?.items || [])
  const found = useMemo(
    () =>
      all.filter(j =>
        text
          .toLowerCase()
          .split(/\s+/)
          .every(w => `${j.name} ${j.status} ${j.class}`.toLowerCase().includes(w)),
      ),
    [state.data, text],
  )
  return html`<${Heading} actions=${may('job.submit') && html`<a class="button" href="#/edit">New job</a>`}>Jobs<//>
    <${Loaded}
      state=${state}
      empty=${html`No job runs. Start with <${Command} text="outspan job init" /> and${' '}
        <${Command} text="outspan job run FILE" />`}
    >
      <div class="tools">
        <${Filter}
          value=${text}
          hint="name or state"
          onChange=${(/** @type {string} */ v) => setQuery('q', v, query)}
        />
      </div>
      <p class="dim small">
        ${found.length === all.length ? count(all.length, 'job') : `${found.length} of ${count(all.length, 'job')}`}.
      </p>
      ${found.length === 0
        ? html`<p class="empty">No job matches.</p>`
        : html`<${Grid} caption="Jobs" rows=${found} id=${(/** @type {any} */ j) => j.name} columns=${columns} />`}
    <//>`
}

/** @type {import('./grid.js').Column<any>[]} */
const columns = [
  { head: 'job', size: 260, by: j => j.name, cell: j => html`<a href=${linkTo('job/' + j.name)}>${j.name}</a>` },
  {
    head: 'state',
    size: 130,
    by: j => jobStates.indexOf(j.status),
    cell: j => html`<${Mark} kind="job" state=${j.status} />`,
  },
  {
    head: 'ready',
    size: 180,
    by: j => (sum(j, 'count') ? sum(j, 'ready') / sum(j, 'count') : 1),
    cell: j =>
      html`<${Bar}
        part=${sum(j, 'ready')}
        whole=${sum(j, 'count')}
        text=${`${number(sum(j, 'ready'))} of ${number(sum(j, 'count'))}`}
      />`,
  },
  { head: 'version', size: 96, rank: 2, num: true, by: j => j.version, cell: j => j.version },
  { head: 'class', rank: 3, by: j => j.class, cell: j => j.class },
  {
    head: 'waits for',
    size: 380,
    rank: 2,
    maybe: true,
    cell: j =>
      j.groups
        .map((/** @type {any} */ g) => g.message)
        .filter(Boolean)
        .join('; '),
  },
]
