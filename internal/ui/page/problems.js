// What a person should look at, and the way out of each.
import { html } from './lib.js'
import { mayStatus, nameOf, status } from './store.js'
import { count, words } from './format.js'
import { Hold } from './hold.js'
import { Advice, Failure, Heading, Late, Subject } from './parts.js'
import { Grid } from './grid.js'

export function Problems() {
  const s = status.state.value
  const of = /** @type {any[]} */ (s.data?.problems || [])
  const held = s.data?.hold.active && of.some(p => p.code === 'hold'),
    rest = held ? of.filter(p => p.code !== 'hold') : of
  if (mayStatus() === false)
    return html`<${Heading}>Problems<//>
      <p class="empty">You may not see the problems of this cluster (server.read).</p>`
  return html`<${Heading}>Problems<//> ${s.data
      ? html`<${Late} state=${s} />`
      : s.error && html`<${Failure} error=${s.error} />`}
    ${!s.data
      ? !s.error && html`<p class="dim">Asking the servers …</p>`
      : of.length === 0
        ? html`<p class="empty">
            ${s.old ? 'One server knows of no problem. Only the leader knows of all.' : 'No problems.'}
          </p>`
        : html`${held &&
          html`<ul class="problems">
            <${Hold} key="hold" />
          </ul>`}
          ${rest.length > 0 &&
          html`<p class="dim small">${count(rest.length, 'problem')}.</p>
            <${Grid}
              caption="Problems"
              rows=${rest}
              id=${(/** @type {any} */ p) => p.code + p.subject}
              columns=${columns}
            />`}`}`
}

/** @type {import('./grid.js').Column<any>[]} */
const columns = [
  {
    head: 'object',
    size: 190,
    by: p => p.subject,
    cell: p => html`<${Subject} subject=${p.subject} name=${nameOf(p.subject)} />`,
  },
  { head: 'kind', size: 170, by: p => p.code, cell: p => words(p.code) },
  { head: 'problem', size: 440, cell: p => p.message },
  { head: 'way out', size: 440, cell: p => p.next && html`<${Advice} text=${p.next} />` },
]
