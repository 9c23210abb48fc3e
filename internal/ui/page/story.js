// The life of an instance, as a vertical story, and what it uses.
import { html, useEffect, useState } from './lib.js'
import { may, useNames, useResource } from './store.js'
import { pause, visible } from './wait.js'
import { call } from './session.js'
import { bytes, duration, linkTo, quoted, span, stamp, words } from './format.js'
import { Bar, Command, Facts, Failure, Loaded, Mark } from './parts.js'

/**
 * One step of a life.
 * @param {any} e an event
 * @param {Map<string, string>} names
 * @returns {{ state: string, text: any, more: string }} state: the one that the instance had then; empty: as before
 */
export function step(e, names) {
  const { before, after, node, group, slot, replaces, reason, ...rest } = e.data
  const more = Object.entries(rest)
    .filter(([, v]) => v)
    .map(([k, v]) => `${words(k)} ${v}`)
    .join(', ')
  const at = node && (names.get(node) || node)
  switch (e.type) {
    case 'instance.allocated':
      return {
        state: 'pending',
        more,
        text: html`placed on <a href=${linkTo('node/' + at)}>${at}</a>${replaces
            ? html`, in place of <a class="mono" href=${linkTo('instance/' + replaces)}>${replaces}</a>`
            : ''}`,
      }
    case 'instance.status_changed':
      return { state: after, more, text: html`${after}${reason ? html`: <strong>${reason}</strong>` : ''}` }
    case 'instance.restarted':
      return {
        state: 'booting',
        more,
        text: html`its program was started again${reason ? html`: <strong>${reason}</strong>` : ''}`,
      }
    case 'instance.desired_state_changed':
      return { state: '', more, text: `told to be ${after}${reason ? `: ${reason}` : ''}` }
    case 'instance.eviction_changed':
      return { state: '', more, text: after === 'true' ? 'to leave its node' : 'may stay on its node' }
    case 'instance.preparation_failed':
      return { state: '', more: '', text: html`its stop could not be prepared: <strong>${rest.text}</strong>` }
  }
  return { state: '', more, text: `${words(e.type.split('.')[1] || e.type)}${after ? `: ${after}` : ''}` }
}

const FIRST = 24 // steps that are shown at first, the newest

/** @param {{ id: string, i: any }} p */
export function Story({ id, i }) {
  const state = useResource(
    '/v1/events',
    { subject: 'instance/' + id, tail: '300', follow: 'false' },
    { lines: true, grows: 500 },
  )
  const names = useNames()
  const [most, setMost] = useState(FIRST)
  const all = /** @type {any[]} */ (state.data || []),
    left = Math.max(0, all.length - most)
  const whole = all.some(e => e.type === 'instance.allocated')
  return html`<section>
    <h2>Its life</h2>
    <${Loaded} state=${state}>
      ${all.length === 0
        ? html`<p class="empty">Nothing is kept of what happened to it.</p>`
        : html`${!whole && !left && html`<p class="dim">What was before is not kept any more.</p>`}${left > 0 &&
            html`<p><button type="button" onClick=${() => setMost(Infinity)}>${left} earlier</button></p>`}
            <ol class="life">
              ${all.slice(left).map((e, k) => {
                const s = step(e, names),
                  n = left + k,
                  gap = n > 0 ? Date.parse(e.time) - Date.parse(all[n - 1].time) : 0
                return html`<li key=${e.id}>
                  <span class="dot">${s.state ? html`<${Mark} kind="instance" state=${s.state} bare />` : ''}</span
                  ><time datetime=${e.time} title=${gap > 0 ? `${span(gap)} after the one before` : null}
                    >${stamp(e.time)}</time
                  >
                  <div>
                    ${s.text}
                    <span class="dim"
                      >${' '} ${[s.more, e.cause && words(e.cause), e.actor].filter(Boolean).join(' · ')}</span
                    >
                  </div>
                </li>`
              })}
            </ol>
            ${['failed', 'stopped', 'lost'].includes(i.observed) &&
            html`<p class="dim">It has ended${i.exit_code === null ? '' : `, with exit code ${i.exit_code}`}.</p>`}`}<//
    >
  </section>`
}

const EVERY = 5000 // ms between two reads of what an instance uses: each asks its agent

/** @param {{ id: string, allocated: any }} p what an instance uses, beside what it was given */
export function Use({ id, allocated }) {
  const [got, setGot] = useState(/** @type {{ use: any, at: number } | null} */ (null)),
    [error, setError] = useState(/** @type {any} */ (null))
  useEffect(() => {
    const over = new AbortController()
    const loop = async () => {
      while (!over.signal.aborted) {
        await visible(over.signal)
        try {
          const { value } = await call('GET', `/v1/instances/${encodeURIComponent(id)}/stats`, { signal: over.signal })
          setGot({ use: value.use, at: Date.now() })
          setError(null)
        } catch (e) {
          if (!over.signal.aborted) setError(e)
        }
        await pause(EVERY, over.signal)
      }
    }
    loop()
    return () => over.abort()
  }, [id])
  const u = got?.use
  const known = (/** @type {any} */ v) => v !== null && v !== undefined
  return html`<section>
    <h2>What it uses</h2>
    ${error && html`<${Failure} error=${error} />`}${!u && !error && html`<p class="dim">Asking its node …</p>`}
    ${u &&
    html`<${Facts}
        of=${[
          [
            'memory',
            known(u.memory.bytes) &&
              html`<${Bar}
                load
                part=${u.memory.bytes}
                whole=${u.memory.limit_bytes || allocated.memory_bytes}
                text=${`${bytes(u.memory.bytes)} of ${bytes(u.memory.limit_bytes || allocated.memory_bytes)}`}
              />`,
          ],
          ['most memory so far', known(u.memory.peak_bytes) && bytes(u.memory.peak_bytes)],
          [
            'CPU',
            known(u.cpu.cores) &&
              html`<${Bar}
                load
                part=${u.cpu.cores * 1000}
                whole=${allocated.cpu}
                text=${`${Math.round(u.cpu.cores * 1000)} of ${allocated.cpu} shares`}
              />`,
          ],
          ['CPU time', known(u.cpu.seconds) && span(u.cpu.seconds * 1000)],
          [
            'processes',
            u.processes.count + (known(u.processes.threads) ? `, with ${u.processes.threads} threads` : ''),
          ],
          [
            'files',
            known(u.disk.bytes) &&
              (u.disk.at_least ? 'at least ' : '') +
                bytes(u.disk.bytes) +
                (u.disk.limit_bytes ? ' of ' + bytes(u.disk.limit_bytes) : ''),
          ],
          ['runs for', known(u.uptime) && (duration(u.uptime) || u.uptime)],
        ]}
      />
      ${u.notes.map((/** @type {string} */ n) => html`<p class="dim small">${n}</p>`)}
      <p class="dim small">As its node counted at ${stamp(u.at)}. It may use more CPU than its shares.</p>`}
    ${may('instance.read') && html`<p><${Command} text="outspan instance stats ${quoted(id)}" /></p>`}
  </section>`
}
