// The settings of the cluster: values, defaults, who changed them, and a change with its preview.
import { html, useState } from './lib.js'
import { may, useResource } from './store.js'
import { write } from './session.js'
import { bytes, quoted, stamp } from './format.js'
import { Command, Facts, Failure, Heading, Late, Loaded, Refused, Table } from './parts.js'

/**
 * Each setting: its default, what it does, and if a change can stop or lose something, what.
 * @type {Record<string, [standard: string | number | boolean, help: string, risk?: string]>}
 */
export const known = {
  offline_after: [
    '1m',
    'how long a node is silent before it is offline',
    'a shorter time makes nodes offline sooner, and their instances are replaced',
  ],
  drain_deadline: ['1h', 'how long a drain may take for each node'],
  node_drain_policy: [
    'block-if-contains-last-replica',
    'what a drain may stop without asking',
    'drains may stop instances that they would have left',
  ],
  rescheduler: ['balanced', 'how eagerly instances are moved to balance the nodes', 'instances may be moved at once'],
  failure_domain_label: ['', 'the label of nodes that fail together, such as rack'],
  place_on_degraded: [false, 'whether degraded nodes get instances'],
  placement_algorithm: ['spread', 'how nodes are chosen: spread, or binpack to fill them one by one'],
  cpu_overcommit_percent: [
    400,
    'how much CPU may be allocated, of what the nodes have',
    'with less, instances may find no room any more',
  ],
  instance_overhead_bytes: [
    67108864,
    'memory that each instance takes beside its own',
    'with more, instances may find no room any more',
  ],
  start_timeout: ['2m', 'how long an instance may take to become ready', 'a shorter time makes slow starts fail'],
  actuation_paused: [
    false,
    'whether decisions are computed and not carried out',
    'while it is paused, nothing is placed, moved or replaced',
  ],
  event_limit: [100000, 'how many events are kept', 'a smaller number removes events for good'],
  event_age: ['168h', 'how long events are kept', 'a shorter time removes events for good'],
  volume_cooling: [
    '24h',
    'how long the old copy of a moved volume is kept',
    'a shorter time removes old copies for good',
  ],
  rate_drain: ['none', 'the most stops by drains, such as 5/1m'],
  rate_preemption: ['none', 'the most stops by preemption'],
  rate_rescheduler: ['none', 'the most stops by the rescheduler'],
  rate_operator: ['none', 'the most stops by people'],
  evict_on: [
    'drain',
    'what makes members with replicated volumes leave: drain or cordon',
    'with cordon, members leave nodes that are cordoned',
  ],
  rescheduler_min_age: ['0s', 'younger instances are not moved; 0s: as the rescheduler says'],
  rescheduler_cooldown: ['0s', 'between two moves of a group; 0s: as the rescheduler says'],
  rescheduler_cycle: ['0s', 'the length of a cycle of moves; 0s: as the rescheduler says'],
  rescheduler_moves: [0, 'the most moves of a cycle; 0: as the rescheduler says'],
  rescheduler_gain: [0, 'the least gain of a move in points; 0: as the rescheduler says'],
  rescheduler_window: ['', 'when moves may begin: a cron expression in UTC; empty: always'],
  rejoin_grace: [
    '2160h',
    'how long after the end of its certificate an agent may return; 0s: never',
    'with less, machines that were off may need a new token',
  ],
  join_approval: [false, 'whether a newcomer waits for the approval of a person'],
}

/** @param {any} v */
const shown = v =>
  v === '' || v === undefined
    ? html`<span class="dim">empty</span>`
    : html`<span class="mono breaks">${String(v)}</span>`
/** @param {string} key @param {any} v */
const valued = (key, v) =>
  html`${shown(v)}${key.endsWith('_bytes') ? html` <span class="dim">(${bytes(v)})</span>` : ''}`
/** @param {string} key @param {any} d the settings */
const valueOf = (key, d) => d[key] ?? known[key]?.[0] ?? ''

/** @param {string} key @param {string} text what was typed */
function parse(key, text) {
  const [standard] = known[key] || ['']
  if (typeof standard === 'number') return /^-?\d+$/.test(text.trim()) ? Number(text) : text
  if (typeof standard === 'boolean') return text.trim() === 'true' ? true : text.trim() === 'false' ? false : text
  return text.trim()
}

/** @param {{ name?: string }} p name: the setting that is changed */
export function Settings({ name }) {
  const state = useResource('/v1/settings')
  const d = state.data
  if (!d) return html`<${Heading}>Settings<//><${Loaded} state=${state} />`
  if (name) return html`<${Change} key=${name} name=${name} state=${state} />`
  const keys = Object.keys(d).filter(k => k !== 'index'),
    all = [...new Set([...Object.keys(known), ...keys])]
  const set = may('settings.set')
  return html`<${Heading}>Settings<//>
    <${Late} state=${state} />
    <p class="dim small">
      Of the whole cluster. ${all.filter(k => String(valueOf(k, d)) !== String(known[k]?.[0])).length} differ from their
      defaults.
    </p>
    <${Table}
      caption="Settings"
      rows=${all}
      id=${(/** @type {string} */ k) => k}
      columns=${[
        {
          head: 'setting',
          cell: (/** @type {string} */ k) =>
            set ? html`<a class="mono" href="#/settings/${k}">${k}</a>` : html`<span class="mono">${k}</span>`,
        },
        {
          head: 'value',
          cell: (/** @type {string} */ k) =>
            html`${valued(k, valueOf(k, d))}${String(valueOf(k, d)) === String(known[k]?.[0])
              ? ''
              : html` <span class="label">changed</span>`}`,
        },
        {
          head: 'default',
          rank: 2,
          cell: (/** @type {string} */ k) =>
            known[k] ? valued(k, known[k][0]) : html`<span class="dim">not known to this page</span>`,
        },
        { head: 'what it does', rank: 3, cell: (/** @type {string} */ k) => known[k]?.[1] || '' },
      ]}
    />
    ${may('event.read') && html`<${History} />`}
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan settings get" /></p>
      ${set && html`<p><${Command} text="outspan settings set offline_after=1m" /></p>`}
      ${may('cluster.pause') &&
      html`<p>
        <${Command} text=${d.actuation_paused ? 'outspan settings resume' : 'outspan settings pause'} />
        <span class="dim">
          ${d.actuation_paused
            ? 'decisions are carried out again'
            : 'nothing is placed, moved or replaced until resume'}
        </span>
      </p>`}
    </section>`
}

/** @param {{ of?: string }} p of: only changes of this setting */
function History({ of }) {
  const state = useResource('/v1/events', { tail: '100', follow: 'false', subject: 'settings' }, { lines: true })
  const rows = /** @type {any[]} */ (state.data || []).filter(e => !of || of in e.data).reverse()
  const changes = (/** @type {any} */ e) =>
    Object.entries(e.data)
      .filter(([k]) => !of || k === of)
      .map(([k, v]) => html`<div><span class="mono">${k}</span> ${String(v).replace(' -> ', ' → ')}</div>`)
  return html`<section>
    <h2>Who changed what</h2>
    <${Loaded} state=${state}
      >${rows.length === 0
        ? html`<p class="empty">No change is among the kept events.</p>`
        : html`<${Table}
            caption="Changes of settings"
            rows=${rows}
            id=${(/** @type {any} */ e) => e.id}
            columns=${[
              {
                head: 'time, by',
                cell: (/** @type {any} */ e) =>
                  html`<time class="num" datetime=${e.time}>${stamp(e.time)}</time>
                    <div class="dim">${e.actor}</div>`,
              },
              { head: 'change', cell: changes },
            ]}
          />`}<//
    >
  </section>`
}

/** @param {{ name: string, state: import('./store.js').State }} p */
function Change({ name, state }) {
  const d = state.data,
    [, help, risk] = known[name] || ['', '']
  const before = String(valueOf(name, d))
  const [text, setText] = useState(before),
    [typed, setTyped] = useState(''),
    [busy, setBusy] = useState(false),
    [error, setError] = useState(/** @type {any} */ (null))
  const [preview, setPreview] = useState(/** @type {{ text: string, after: string, index: number } | null} */ (null)),
    [done, setDone] = useState('')
  if (!(name in known) && !(name in d))
    return html`<${Heading}>Settings<//>
      <p class="empty">There is no setting ${name}. <a href="#/settings">To the settings</a></p>`
  if (!may('settings.set'))
    return html`<${Heading}>Setting ${name}<//> <${Refused} what="change settings" verb="settings.set" />`
  // of what is typed, and of the present settings
  const good = preview && preview.text === text && preview.index === d.index
  /** @param {boolean} dry */
  const send = async dry => {
    setBusy(true)
    setError(null)
    setDone('')
    try {
      const got = await write('PUT', '/v1/settings', {
        query: dry ? { dry_run: 'true' } : { if_index: String(preview?.index) },
        body: { [name]: parse(name, text) },
      })
      const after = String(valueOf(name, got.value.settings))
      if (dry) setPreview({ text, after: dry ? after : '', index: d.index })
      else {
        setPreview(null)
        setTyped('')
        setText(after)
        setDone(after)
      }
    } catch (e) {
      setError(e)
    }
    setBusy(false)
  }
  return html`<${Heading}>Setting <span class="mono">${name}</span><//>
    <${Late} state=${state} />
    <p>${help ? help[0].toUpperCase() + help.slice(1) + '.' : 'This page does not know what it does.'}</p>
    <${Facts}
      of=${[
        ['value', valued(name, valueOf(name, d))],
        ['default', known[name] ? valued(name, known[name][0]) : 'not known to this page'],
      ]}
    />
    <form
      onSubmit=${(/** @type {Event} */ e) => {
        e.preventDefault()
        send(true)
      }}
    >
      <label
        >New value<input
          class="short mono"
          value=${text}
          spellcheck=${false}
          autocomplete="off"
          onInput=${(/** @type {any} */ e) => {
            setText(e.target.value)
            setTyped('')
            setDone('')
          }}
      /></label>
      <p><button type="submit" disabled=${busy || text === before}>Preview</button></p>
    </form>
    ${error && html`<${Failure} error=${error} />`}
    ${done && html`<p class="note" role="status">It is ${done} now.</p>`}
    ${preview &&
    !good &&
    html`<p class="note warn" role="status">
      The preview was for another value, or the settings have changed since. Preview it again.
    </p>`}
    ${good &&
    html`<section aria-live="polite">
      <h2>Preview</h2>
      <p><span class="mono">${before}</span> → <strong class="mono">${preview.after}</strong></p>
      ${risk && html`<p class="note warn">${risk[0].toUpperCase() + risk.slice(1)}.</p>`}
      ${preview.after === before
        ? html`<p>Nothing would change.</p>`
        : html`<div class="start">
            ${risk &&
            html`<label
              >Type ${name} to go on<input
                class="short"
                value=${typed}
                autocomplete="off"
                onInput=${(/** @type {any} */ e) => setTyped(e.target.value)}
            /></label>`}
            <button
              type="button"
              class="primary"
              disabled=${busy || (!!risk && typed !== name)}
              onClick=${() => send(false)}
            >
              Change the setting
            </button>
          </div>`}
    </section>`}
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan settings set ${name}=${quoted(String(parse(name, text)))}" /></p>
    </section>
    ${may('event.read') && html`<${History} of=${name} />`}
    <p><a href="#/settings">All settings</a></p>`
}
