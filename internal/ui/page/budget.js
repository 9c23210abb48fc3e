// The budget of a group, as a gauge over its ledger: what uses it now, and what it still allows.
import { html } from './lib.js'
import { useResource } from './store.js'
import { count, duration, number, quoted, stamp, words } from './format.js'
import { Command, Late, Loaded } from './parts.js'

/**
 * The parts of a gauge, and the lines of the ledger below it.
 * @param {any} b a budget
 * @returns {{ n: number, kind: string, text: string }[]}
 */
export function ledger(b) {
  const free = Math.max(0, b.ready - b.held - b.unheard)
  const causes = Object.entries(b.down.by_cause || {})
    .map(([k, v]) =>
      Object.keys(b.down.by_cause).length > 1 || v !== b.down.voluntary + b.down.involuntary
        ? `${v} ${words(k)}`
        : words(k),
    )
    .join(', ')
  const all = [
    { n: free, kind: 'ready', text: 'ready' },
    { n: b.held, kind: 'held', text: 'ready, reserved: its stop is being prepared' },
    { n: b.unheard, kind: 'unheard', text: 'ready by a restored state only: no agent has told since' },
    {
      n: b.down.voluntary,
      kind: 'draining',
      text: `down on purpose, not yet replaced${causes && !b.down.involuntary ? ` (${causes})` : ''}`,
    },
    {
      n: b.down.involuntary,
      kind: 'unready',
      text: `failed, lost or unready${causes && b.down.involuntary ? ` (${causes})` : ''}`,
    },
  ]
  const known = all.reduce((sum, p) => sum + p.n, 0)
  if (b.want > known) all.push({ n: b.want - known, kind: 'missing', text: 'not there' })
  return all.filter(p => p.n > 0)
}

/** @param {{ of: any }} p */
export function Gauge({ of: b }) {
  const parts = ledger(b),
    whole = parts.reduce((sum, p) => sum + p.n, 0)
  if (whole === 0) return html`<p class="dim">There are no instances, so nothing uses it.</p>`
  const at = (/** @type {number} */ n) => ({ left: `${Math.min(100, (n / whole) * 100)}%` })
  return html`<div class="gauge" aria-hidden="true">
      <div>${parts.map(p => html`<i class=${p.kind} style=${{ flexGrow: String(p.n) }}></i>`)}</div>
      <b style=${at(b.min_ready)}></b
      ><span style=${at(b.min_ready)} class=${b.min_ready > whole / 2 ? 'left' : ''}
        >must stay ready: ${number(b.min_ready)}</span
      >
    </div>
    <ul class="ledger">
      ${parts.map(
        p =>
          html`<li>
            <i class=${p.kind} aria-hidden="true"></i><span><span class="num">${number(p.n)}</span> ${p.text}</span>
          </li>`,
      )}
    </ul>`
}

/** @param {{ job: string, group: string }} p */
export function Budget({ job, group }) {
  const state = useResource(`/v1/budgets/${encodeURIComponent(job)}/${encodeURIComponent(group)}`)
  const b = state.data
  if (!b)
    return html`<h3>${group}</h3>
      <${Loaded} state=${state} />`
  const rate =
    b.rate &&
    `${b.rate.used} of ${count(b.rate.max, 'stop')} used within ${duration(b.rate.window) || b.rate.window}${
      b.rate.next_allowed ? `; the next at ${stamp(b.rate.next_allowed)}` : ''
    }`
  return html`<div class="budget">
    <h3>
      ${group}${' '}
      <span class="dim">${b.allowed > 0 ? `${count(b.allowed, 'stop')} may begin now` : 'no stop may begin now'}</span>
    </h3>
    <${Late} state=${state} /><${Gauge} of=${b} />
    <p class="dim small">
      ${b.text}${rate ? ` · ${rate}` : ''}${b.shared?.length > 0
        ? ` · shared with others: ${b.shared.join(', ')}`
        : ''}${b.blocking ? ' · it is meant to allow nothing' : ''}
    </p>
    <p><${Command} text="outspan budget status ${quoted(job + '/' + group)}" /></p>
  </div>`
}
