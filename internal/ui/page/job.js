// One job: its versions, groups, budgets and rollout, and what may be done to it.
import { html, useState } from './lib.js'
import { may, useMay, useResource } from './store.js'
import { count, linkTo, number, quoted, stamp } from './format.js'
import { Acts } from './acts.js'
import { Bar, Command, Facts, Heading, Late, Loaded, Mark, Since, Table } from './parts.js'
import { Budget } from './budget.js'
import { Diff, brief, diffSpecs } from './spec.js'
import { drafts } from './edit.js'
import { Instances, WhyOf } from './node.js'
import { Logs } from './logs.js'
import { jobCharts } from './charts.js'
import { Plots } from './plots.js'
import { setQuery } from './fleet.js'

/** @param {string} name @param {string} [rest] */
const pathOf = (name, rest = '') => '/v1/jobs/' + encodeURIComponent(name) + rest

/** @param {{ name: string, query: URLSearchParams }} p */
export function Job({ name, query }) {
  const state = useResource(pathOf(name))
  const j = state.data
  if (!j) return html`<${Heading}>Job ${name}<//><${Loaded} state=${state} />`
  return html`<${Shown} state=${state} j=${j} query=${query} />`
}

/** @param {{ state: import('./store.js').State, j: any, query: URLSearchParams }} p */
function Shown({ state, j, query }) {
  const on = 'job/' + j.name
  const mayEdit = useMay('job.plan', on),
    logs = query.get('logs')
  const draft = drafts.get(j.name)
  return html`<${Heading}
      actions=${mayEdit && html`<a class="button" href="#/edit/${encodeURIComponent(j.name)}">Edit</a>`}
    >
      Job ${j.name} <${Mark} kind="job" state=${j.status}
    /><//>
    <${Late} state=${state} />
    ${draft &&
    html`<p class="note warn">
      You have changed its file and not run it.
      <a href="#/edit/${encodeURIComponent(j.name)}">Go on with that</a>
    </p>`}
    <${Facts}
      of=${[
        ['version', String(j.version)],
        ['last stable version', j.stable_version ? String(j.stable_version) : 'none'],
        ['class', j.class],
      ]}
    />
    <${JobActs} j=${j} />
    ${j.deployment_id && html`<${Deployment} id=${j.deployment_id} />`}
    <${Versions} j=${j} />
    <section>
      <h2>Groups</h2>
      <${Table} caption="Groups" rows=${j.groups} id=${(/** @type {any} */ g) => g.name} columns=${groupColumns} />
      ${avoids(j)}
    </section>
    ${may('budget.read') &&
    j.groups.some((/** @type {any} */ g) => g.role !== 'system') &&
    html`<section>
      <h2>Budgets</h2>
      ${j.groups
        .filter((/** @type {any} */ g) => g.role !== 'system')
        .map((/** @type {any} */ g) => html`<${Budget} key=${g.name} job=${j.name} group=${g.name} />`)}
    </section>`}
    <${Instances} query=${{ job: j.name }} empty="It has no instances." />
    <${Plots} charts=${jobCharts} query=${{ job: j.name }} />
    ${may('instance.logs') &&
    html`<section>
      <h2>Logs</h2>
      ${logs === null
        ? html`<p><button type="button" onClick=${() => setQuery('logs', '*', query)}>Follow the logs</button></p>`
        : html`${j.groups.length > 1 &&
            html`<p class="states">
              ${['*', ...j.groups.map((/** @type {any} */ g) => g.name)].map(
                g =>
                  html`<button type="button" aria-pressed=${logs === g} onClick=${() => setQuery('logs', g, query)}>
                    ${g === '*' ? 'all groups' : g}
                  </button>`,
              )}
            </p>`} <${Logs} key=${logs} job=${j.name} group=${logs === '*' ? '' : logs} />`}
    </section>`}
    <${WhyOf} subject=${on} />
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan job status ${quoted(j.name)}" /></p>
      <p><${Command} text="outspan job history ${quoted(j.name)}" /></p>
    </section>`
}

/** @type {{ head: string, cell: (g: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const groupColumns = [
  { head: 'group', cell: g => g.name },
  { head: 'role', rank: 2, cell: g => g.role },
  {
    head: 'ready',
    cell: g => html`<${Bar} part=${g.ready} whole=${g.count} text=${`${number(g.ready)} of ${number(g.count)}`} />`,
  },
  { head: 'placed', rank: 3, num: true, cell: g => number(g.placed) },
  { head: 'pending', num: true, cell: g => number(g.pending) },
  { head: 'changed in version', rank: 3, num: true, cell: g => g.version },
  { head: 'waits for', rank: 2, maybe: true, cell: g => g.message },
]

/** @param {any} j */
const avoids = j =>
  (j.avoids || []).map(
    (/** @type {any} */ a) =>
      html`<p class="note warn">
        ${a.group} avoids
        <a href=${linkTo('node/' + a.node)}>${a.node}</a> until ${stamp(a.until)}: ${a.reason}
      </p>`,
  )

/** @param {{ j: any }} p the acts on a job that its viewer may do */
function JobActs({ j }) {
  const on = 'job/' + j.name
  const mayScale = useMay('job.scale', on),
    mayRestart = useMay('job.restart', on),
    mayStop = useMay('job.stop', on)
  const scalable = j.groups.filter((/** @type {any} */ g) => g.role !== 'system')
  const [group, setGroup] = useState(''),
    [n, setN] = useState(/** @type {number | null} */ (null)),
    [purge, setPurge] = useState(false)
  const g = scalable.find((/** @type {any} */ g) => g.name === group) || scalable[0],
    to = n ?? g?.count
  const several = scalable.length > 1,
    all = /** @type {import('./acts.js').Action[]} */ ([])
  const name = quoted(j.name),
    running = j.status !== 'stopped' && j.status !== 'stopping'
  if (mayScale && g && running) {
    all.push({
      key: 'scale',
      name: 'Scale',
      post: [pathOf(j.name, '/scale'), { group: g.name, count: to }],
      then: () => setN(null),
      text:
        to === g.count
          ? `${g.name} has ${g.ready} ready of ${g.count}.`
          : to > g.count
            ? `Starts ${count(to - g.count, 'instance')} of ${g.name}.`
            : `Stops ${to === 0 ? 'every instance' : count(g.count - to, 'instance')} of ${g.name}. ` +
              'This is what you ask for, so no budget delays it.',
      command: `outspan job scale ${name} ${several ? quoted(g.name) + ' ' : ''}${to}`,
      fields: html`<div class="tools">
        ${several &&
        html`<label class="pick"
          >Group${' '}
          <select
            value=${g.name}
            onChange=${(/** @type {any} */ e) => {
              setGroup(e.target.value)
              setN(null)
            }}
          >
            ${scalable.map((/** @type {any} */ g) => html`<option>${g.name}</option>`)}
          </select></label
        >`}
        <label class="pick"
          >Instances${' '}
          <input
            type="number"
            min="0"
            max="100000"
            value=${to}
            onInput=${(/** @type {any} */ e) => {
              const v = parseInt(e.target.value, 10)
              setN(v >= 0 ? v : null)
            }}
        /></label>
      </div>`,
    })
  }
  if (mayRestart && running) {
    all.push({
      key: 'restart',
      name: 'Restart',
      post: [pathOf(j.name, '/restart')],
      command: `outspan job restart ${name}`,
      text:
        'Makes a new version with the same file, whose rollout replaces every instance, as the budgets and the ' +
        'updates of its groups allow.',
    })
  }
  if (mayStop && (running || j.status === 'stopped')) {
    all.push({
      key: running ? 'stop' : 'remove', // an open form never becomes the other one
      name: running ? 'Stop' : 'Remove',
      typed: purge || !running ? j.name : '',
      post: [pathOf(j.name, '/stop'), { purge: purge || !running }],
      command: `outspan job stop ${name}${purge || !running ? ' --purge' : ''}`,
      text: running
        ? 'Stops every instance. Its versions stay: to start it again, run its file.'
        : 'Removes the job with its versions.',
      fields:
        running &&
        html`<label class="check"
          ><input
            type="checkbox"
            checked=${purge}
            onChange=${(/** @type {any} */ e) => setPurge(e.target.checked)}
          /><span>Then remove the job with its versions</span></label
        >`,
      then: () => setPurge(false),
    })
  }
  return all.length > 0 && html`<${Acts} of=${all} />`
}

/** @param {{ id: string }} p */
function Deployment({ id }) {
  const state = useResource('/v1/deployments/' + encodeURIComponent(id))
  const d = state.data
  const mayDeploy = useMay('job.deploy', 'deployment/' + id)
  if (!d)
    return html`<section>
      <h2>Rollout</h2>
      <${Loaded} state=${state} />
    </section>`
  const open = d.status === 'rolling' || d.status === 'queued',
    waits = open && !d.promoted
  const path = '/v1/deployments/' + encodeURIComponent(id),
    all = /** @type {import('./acts.js').Action[]} */ ([])
  if (mayDeploy && waits) {
    all.push({
      key: 'promote',
      name: 'Promote',
      post: [path + '/promote'],
      command: `outspan deployment promote ${quoted(id)}`,
      text: 'Accepts the canaries: the rest of the instances get the new version.',
    })
  }
  if (mayDeploy && open) {
    all.push({
      key: 'fail',
      name: 'Fail',
      post: [path + '/fail'],
      command: `outspan deployment fail ${quoted(id)}`,
      text: 'Ends the rollout as failed. With auto_revert, the job goes back to the last version that succeeded.',
    })
  }
  return html`<section>
    <h2>Rollout of version ${d.version} <${Mark} kind="deployment" state=${d.status} /></h2>
    <${Late} state=${state} />
    ${waits && html`<p class="note">Canaries of the new version run. The rest waits until somebody promotes them.</p>`}
    ${d.reason && html`<p class=${d.status === 'failed' ? 'note bad' : 'dim'}>${d.reason}</p>`}
    ${(open || d.status === 'failed') &&
    html`<${Table}
      caption="Rollout"
      rows=${d.groups}
      id=${(/** @type {any} */ g) => g.name}
      columns=${[
        { head: 'group', cell: (/** @type {any} */ g) => g.name },
        {
          head: 'new and ready',
          cell: (/** @type {any} */ g) =>
            html`<${Bar} part=${g.ready} whole=${g.count} text=${`${number(g.ready)} of ${number(g.count)}`} />`,
        },
        { head: 'new', rank: 2, num: true, cell: (/** @type {any} */ g) => number(g.current) },
        { head: 'old', num: true, cell: (/** @type {any} */ g) => number(g.old) },
      ]}
    />`}
    ${all.length > 0 && html`<${Acts} of=${all} />`}
  </section>`
}

const FIRST = 8 // versions that are shown at first

/** @param {{ j: any }} p a strip of versions, the newest first, and below it what the chosen one changed */
function Versions({ j }) {
  const state = useResource(pathOf(j.name, '/versions'))
  const mayRevert = useMay('job.submit', 'job/' + j.name)
  const [most, setMost] = useState(FIRST),
    [chosen, setChosen] = useState(0)
  const all = [.../** @type {any[]} */ (state.data?.items || [])].reverse()
  const diffs = all.slice(0, most).map((v, i) => (all[i + 1] ? diffSpecs(all[i + 1].spec, v.spec) : null))
  const at = all.findIndex(v => v.version === chosen),
    v = all[at]
  const what = (/** @type {any} */ v, /** @type {any} */ d) =>
    v.revert_of
      ? `back to version ${v.revert_of}`
      : d === null
        ? v.version === 1
          ? 'the first version'
          : 'what it changed is not kept'
        : d.length === 0
          ? 'the same file: a restart'
          : brief(d[0]) + (d.length > 1 ? `, and ${d.length - 1} more` : '')
  return html`<section>
    <h2>Versions ${state.data ? html`<span class="dim">${all.length}</span>` : ''}</h2>
    <${Loaded} state=${state} empty="No version is kept."
      ><ol class="versions">
        ${all.slice(0, most).map(
          (v, i) =>
            html`<li key=${v.version}>
              <button
                type="button"
                aria-expanded=${chosen === v.version}
                aria-pressed=${chosen === v.version}
                onClick=${() => setChosen(chosen === v.version ? 0 : v.version)}
              >
                <span
                  ><strong>${v.version}</strong> ${v.current ? 'current' : ''}${v.stable
                    ? ' stable'
                    : ''}${v.completed || v.current ? '' : ' not completed'}</span
                >
                <span class="what">${v.message || what(v, diffs[i])}</span>
                <span class="dim small"><${Since} time=${v.created_at} /> ago, ${v.actor}</span>
              </button>
            </li>`,
        )}
        ${all.length > most &&
        html`<li><button type="button" onClick=${() => setMost(most + 50)}>${all.length - most} older</button></li>`}
      </ol>
      ${v &&
      html`<div class="note">
        <p>
          Version ${v.version}, ${stamp(v.created_at)}, by ${v.actor}:${' '}
          ${what(v, diffs[at])}${v.message ? ` (${v.message})` : ''}.
        </p>
        ${(diffs[at]?.length || 0) > 0 && html`<${Diff} of=${diffs[at]} />`}
        ${mayRevert &&
        !v.current &&
        html`<p>
          <a class="button" href="#/revert/${encodeURIComponent(j.name)}?version=${v.version}"
            >Revert to version ${v.version} …</a
          >
        </p>`}
      </div>`}<//
    >
  </section>`
}
