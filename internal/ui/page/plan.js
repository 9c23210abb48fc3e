// What a spec would change: asked from the servers, and shown.
import { html } from './lib.js'
import { call } from './session.js'
import { count, linkTo } from './format.js'
import { Table } from './parts.js'
import { Diff, diffSpecs, pinned } from './spec.js'

/**
 * @typedef {object} Planned
 * @property {any} spec what would be submitted, with the digests that were found
 * @property {any} plan
 * @property {import('./spec.js').Difference[]} diff
 * @property {string[]} warnings
 */

/**
 * Plans a spec. It throws a CallError if the spec is not valid, or may not be planned.
 * @param {any} spec
 * @param {boolean} keep whether images whose name is that of the present version keep their digests
 * @returns {Promise<Planned>}
 */
export async function planOf(spec, keep) {
  const path = '/v1/jobs/' + encodeURIComponent(spec.name)
  const plan = (await call('POST', path + '/plan', { body: { job: spec, keep_images: keep } })).value
  const whole = pinned(spec, plan.images || [])
  const [valid, present] = await Promise.all([
    call('POST', '/v1/jobs/validate', { body: { job: whole } }),
    plan.index > 0 ? call('GET', path) : null,
  ])
  const before = present && present.value.name === spec.name ? present.value.spec : null
  return { spec: whole, plan, diff: diffSpecs(before, valid.value.job), warnings: valid.value.warnings || [] }
}

/** @param {any} g how many instances are created, replaced and stopped */
const counts = g => {
  const replace = Math.min(g.created, g.destroyed)
  return { create: g.created - replace, replace, stop: g.destroyed - replace }
}
const nameOf = (/** @type {any} */ g) => g.group.split('/').pop()

/** @param {any} plan in one sentence */
function sentence(plan) {
  if (!plan.changes) return `Nothing would change: version ${plan.version} is so already.`
  const sum = (/** @type {'create' | 'replace' | 'stop'} */ what) =>
    plan.groups.reduce((/** @type {number} */ n, /** @type {any} */ g) => n + counts(g)[what], 0)
  const parts = [
    [sum('create'), 'started'],
    [sum('replace'), 'replaced'],
    [sum('stop'), 'stopped'],
  ]
    .filter(([n]) => n)
    .map(([n, what], i) => `${i === 0 ? count(Number(n), 'instance') : n} ${what}`)
  const what = parts.join(', ') || 'no instance is touched'
  return `${plan.index === 0 ? 'The job is new' : `This would be version ${plan.version}`}: ${what}.`
}

/** @param {{ of: Planned }} p */
export function Plan({ of: { plan, diff, warnings } }) {
  const stuck = plan.groups.filter((/** @type {any} */ g) => g.unschedulable > 0),
    budgets = plan.groups.flatMap((/** @type {any} */ g) => g.budgets)
  return html`<p class="next">${sentence(plan)}</p>
    ${stuck.map(
      (/** @type {any} */ g) =>
        html`<p class="note bad">
          <strong>${g.unschedulable} of ${nameOf(g)} ${g.unschedulable === 1 ? 'fits' : 'fit'} nowhere now:</strong
          >${' '} ${g.message} <span class="dim mono"> ${g.code}</span>${g.excluded.map(
            (/** @type {any} */ e) => html`<br />${count(e.nodes, 'node')} excluded by ${e.code}`,
          )}
        </p>`,
    )}
    ${plan.groups
      .filter((/** @type {any} */ g) => g.preempts.length > 0)
      .map(
        (/** @type {any} */ g) =>
          html`<p class="note warn">
            To make room for ${nameOf(g)}, ${count(g.preempts.length, 'less important instance')} would stop:${' '}
            ${g.preempts.map(
              (/** @type {string} */ id) => html`<a class="mono" href=${linkTo('instance/' + id)}>${id}</a> `,
            )}
          </p>`,
      )}
    ${warnings.map(w => html`<p class="note warn">${w}</p>`)}
    ${plan.index === 0
      ? html`<details>
          <summary>All that it says (${diff.length})</summary>
          <${Diff} of=${diff} />
        </details>`
      : diff.length > 0
        ? html`<${Diff} of=${diff} />`
        : plan.changes && html`<p class="dim">The file is the same.</p>`}
    ${plan.changes &&
    html`<${Table}
      caption="Groups"
      rows=${plan.groups}
      id=${nameOf}
      columns=${[
        { head: 'group', cell: nameOf },
        { head: 'start', num: true, cell: (/** @type {any} */ g) => counts(g).create },
        { head: 'replace', num: true, cell: (/** @type {any} */ g) => counts(g).replace },
        { head: 'stop', num: true, cell: (/** @type {any} */ g) => counts(g).stop },
        { head: 'keep', num: true, cell: (/** @type {any} */ g) => g.kept },
      ]}
    />`}
    ${budgets.length > 0 &&
    html`<ul class="dim small">
      ${budgets.map((/** @type {any} */ b) => html`<li>Budget of ${b.name}: ${b.text}</li>`)}
    </ul>`}
    ${(plan.images || []).map(
      (/** @type {any} */ i) =>
        html`<p class="dim small">${i.group} runs ${i.image}, which is <span class="mono">${i.digest}</span></p>`,
    )}`
}
