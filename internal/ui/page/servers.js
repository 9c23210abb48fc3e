// The servers: who leads, how far each is, and what is wrong with it.
import { html } from './lib.js'
import { may, now, status, useResource } from './store.js'
import { bytes, duration, number, quoted, span, stamp } from './format.js'
import { Advice, Bar, Command, Facts, Heading, Loaded, Mark, Table } from './parts.js'
import { serverCharts } from './charts.js'
import { Plots } from './plots.js'

/** @param {any} m how a server is, as the state of a node has shapes for it @returns {[state: string, word: string]} */
function stateOf(m) {
  const leader = status.state.value.data?.leader
  if (m.leader) return ['active', 'leads']
  if (m.state === 'failed' || m.state === 'left') return ['offline', m.state]
  if (m.state === 'suspect') return ['unreachable', 'suspect']
  if (m.state === 'unknown') return ['unreachable', 'not heard']
  if (leader && !m.answers) return ['degraded', 'does not answer the leader']
  return m.voter ? ['active', 'follows'] : ['cordoned', 'no vote']
}

/** @param {{ m: any }} p */
function State({ m }) {
  const [shape, word] = stateOf(m)
  return html`<span class="said"><${Mark} kind="node" state=${shape} bare /> ${word}</span>`
}

/** @param {string | null} ends */
function ends(ends) {
  if (!ends) return html`<span class="dim">not known</span>`
  const left = Date.parse(ends) - now.value
  return html`<time datetime=${ends} title=${stamp(ends)}
    >${left > 0 ? `in ${span(left)}` : html`<strong>${span(-left)} ago</strong>`}</time
  >`
}

/** @param {any} m */
const disk = m =>
  m.disk_total_bytes === 0
    ? html`<span class="dim">not known</span>`
    : html`<${Bar}
        load
        part=${m.disk_total_bytes - m.disk_free_bytes}
        whole=${m.disk_total_bytes}
        text=${`${bytes(m.disk_free_bytes)} free${m.disk === 'enough' ? '' : `, ${m.disk}`}`}
      />`

/** @param {any} m for how long it has not answered the leader */
const contact = m =>
  m.leader
    ? html`<span class="dim">it leads</span>`
    : !m.answers && m.silent === '0s'
      ? html`<span class="dim">not known</span>`
      : m.answers
        ? 'now'
        : `${duration(m.silent) || '0 s'} ago`

/** @type {{ head: string, cell: (m: any) => any, rank?: number, num?: boolean, maybe?: boolean }[]} */
const columns = [
  { head: 'server', cell: m => html`<a href="#/servers/${encodeURIComponent(m.name)}">${m.name}</a>` },
  { head: 'state', cell: m => html`<${State} m=${m} />` },
  { head: 'vote', rank: 2, cell: m => (m.voter ? 'yes' : 'no') },
  {
    head: 'entries behind',
    num: true,
    cell: m => (m.leader ? html`<span class="dim">0</span>` : number(m.index_lag)),
  },
  { head: 'disk', rank: 2, cell: disk },
  { head: 'last answer', rank: 2, cell: contact },
  { head: 'certificate ends', rank: 3, cell: m => ends(m.certificate_ends) },
  { head: 'version', rank: 3, cell: m => html`<span class="mono">${m.version || 'not known'}</span>` },
  { head: 'address', rank: 3, cell: m => html`<span class="mono">${m.address}</span>` },
]

/** @param {{ name?: string }} p */
export function Servers({ name }) {
  const state = useResource('/v1/members')
  const all = /** @type {any[]} */ ([...(state.data?.items || [])]).sort((a, b) =>
    a.name.localeCompare(b.name, 'en', { numeric: true }),
  )
  const one = name ? all.find(m => m.name === name || m.id === name) : null
  if (name && state.data && !one)
    return html`<${Heading}>Server ${name}<//>
      <p class="empty">There is no server ${name}. <a href="#/servers">To the servers</a></p>`
  if (one) return html`<${One} m=${one} state=${state} />`
  const d = status.state.value.data,
    voters = all.filter(m => m.voter).length,
    away = all.filter(m => m.voter && stateOf(m)[0] !== 'active').length
  const may1 = may('server.manage')
  return html`<${Heading}>Servers<//>
    <${Loaded} state=${state} empty="This server knows of no servers.">
      ${d &&
      !d.leader &&
      html`<p class="note bad" role="alert">
        Nobody leads, so what is shown is what one server knows: no entries behind, no answers.
      </p>`}
      <p class="dim small">
        ${voters} with a vote:${' '} ${Math.floor((voters - 1) / 2) || 'none'} may be
        away${away ? `, and ${away} ${away === 1 ? 'is' : 'are'}` : ''}.${d
          ? ` The log is at entry ${number(d.index)}.`
          : ''}
      </p>
      <${Table} caption="Servers" rows=${all} id=${(/** @type {any} */ m) => m.id} columns=${columns} />
      <${Wrong} subjects=${all.map(m => m.name)} />
    <//>
    ${all.length > 0 &&
    html`<section>
      <h2>By command</h2>
      <p><${Command} text="outspan server members" /></p>
      ${may1 && html`<p><${Command} text="outspan server transfer-leader" /></p>`}
      <p class="dim small">Each server has a page of its own, with its plots.</p>
    </section>`}`
}

/** @param {{ subjects: string[] }} p the problems of servers */
function Wrong({ subjects }) {
  const all = /** @type {any[]} */ (status.state.value.data?.problems || []).filter(p =>
    subjects.some(s => p.subject === 'server/' + s),
  )
  if (all.length === 0) return null
  return html`<ul class="problems">
    ${all.map(
      p =>
        html`<li>
          <h2>${p.subject.slice(7)} <span class="dim mono">${p.code}</span></h2>
          <p>${p.message}</p>
          ${p.next && html`<p class="way"><${Advice} text=${p.next} /></p>`}
        </li>`,
    )}
  </ul>`
}

/** @param {{ m: any, state: import('./store.js').State }} p */
function One({ m, state }) {
  const manage = may('server.manage')
  return html`<${Heading}
      >Server ${m.name} <span class="word"><${State} m=${m} /></span
    ><//>
    <${Loaded} state=${state}>
      ${m.no_vote && html`<p class="note warn">It gets no vote: ${m.no_vote}</p>`}
      <${Wrong} subjects=${[m.name]} />
      <${Facts}
        of=${[
          ['entries behind', m.leader ? '' : number(m.index_lag)],
          ['last answer', contact(m)],
          ['vote', m.voter ? 'yes' : 'no'],
          ['gossip says', m.state],
          ['disk', disk(m)],
          ['certificate ends', ends(m.certificate_ends)],
          ['clock ahead', m.clock_ahead],
          ['version', m.version],
          ['address', html`<span class="mono">${m.address}</span>`],
          ['gossip address', m.gossip && html`<span class="mono">${m.gossip}</span>`],
          ['id', html`<span class="mono">${m.id}</span>`],
        ]}
      />
    <//>
    <${Plots}
      charts=${serverCharts}
      query=${{ server: m.name }}
      heading="What it measured of itself"
      note="Since it started. A restarted server has no older figures of itself."
    />
    ${manage &&
    html`<section>
      <h2>By command</h2>
      ${!m.voter && html`<p><${Command} text="outspan server promote ${quoted(m.name)}" /></p>`}
      ${!m.leader && m.voter && html`<p><${Command} text="outspan server transfer-leader ${quoted(m.name)}" /></p>`}
      ${m.leader && html`<p><${Command} text="outspan server transfer-leader" /></p>`}
      <p><${Command} text="outspan server remove ${quoted(m.name)}" /></p>
    </section>`}
    <p><a href="#/servers">All servers</a></p>`
}
