// One node: its state, why, and its instances.
import { html } from './lib.js'
import { useMay, useResource } from './store.js'
import { bytes, linkTo, number, quoted } from './format.js'
import { Bar, Command, Facts, Heading, Late, Loaded, Mark, Since, Why } from './parts.js'
import { Grid } from './grid.js'
import { instanceColumns } from './instance.js'
import { nodeCharts } from './charts.js'
import { Plots } from './plots.js'
import { out, TakeBack } from './takeback.js'

/** @param {{ name: string }} p */
export function Node({ name }) {
  const state = useResource('/v1/nodes/' + encodeURIComponent(name))
  const mayDrain = useMay('node.drain', 'node/' + name)
  const n = state.data
  if (!n) return html`<${Heading}>Node ${name}<//><${Loaded} state=${state} />`
  const drain = mayDrain && (n.intent === 'active' || n.intent === 'cordoned')
  return html`<${Heading}
      actions=${html`${drain &&
      html`<a class="button" href="#/drain/${encodeURIComponent(n.name)}">Drain …</a>`}${n.intent === 'draining' &&
      n.drain_id
        ? html`<a class="button" href=${linkTo('drain/' + n.drain_id)}>Show its drain</a>`
        : ''}`}
    >
      Node ${n.name} <${Mark} kind="node" state=${n.state}
    /><//>
    <${Late} state=${state} />
    ${n.reason && html`<p class="note warn">Takes no new instances: ${n.reason}</p>`}
    ${out(n) && html`<${TakeBack} node=${n} />`}
    ${[
      ...n.warnings,
      ...n.troubles.map((/** @type {any} */ t) => t.reason),
      ...n.port_problems.map((/** @type {any} */ p) => `port ${p.port}: ${p.reason}`),
    ].map(w => html`<p class="note warn">${w}</p>`)}
    ${n.unknown.length > 0 &&
    html`<p class="note warn">
      ${n.unknown.length} instances run here that the servers don't know.${' '}
      <${Command} text="outspan why ${quoted(n.name)}" />
    </p>`}
    <${Facts}
      of=${[
        [
          'memory allocated',
          html`<${Bar}
            load
            part=${n.allocated.memory_bytes}
            whole=${n.capacity.memory_bytes - n.reserved.memory_bytes}
            text=${`${bytes(n.allocated.memory_bytes)} of ${bytes(n.capacity.memory_bytes - n.reserved.memory_bytes)}`}
          />`,
        ],
        [
          'CPU shares allocated',
          html`<${Bar}
            load
            part=${n.allocated.cpu}
            whole=${n.capacity.cpu - n.reserved.cpu}
            text=${`${number(n.allocated.cpu)} of ${number(n.capacity.cpu - n.reserved.cpu)}`}
          />`,
        ],
        ['heard', html`<${Since} time=${n.last_seen} />${n.last_seen ? ' ago' : ''}`],
        ['address', html`<span class="mono">${n.address}</span>`],
        [
          'labels',
          Object.keys(n.labels).length > 0 &&
            Object.entries(n.labels).map(([k, v]) => html`<span class="label">${k}=${v}</span>`),
        ],
        ['agent', n.version],
        ['containers', n.container_runtime ? n.container_runtime.down || n.container_runtime.version : 'no runtime'],
        ['id', html`<span class="mono">${n.id}</span>`],
      ]}
    />
    <${Instances} query=${{ node: n.name }} empty="Nothing runs here." />
    <${Plots} charts=${nodeCharts} query=${{ node: n.name }} note="A sample each 2 minutes, of the last 12 hours." />
    <${WhyOf} subject=${'node/' + n.name} />
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan node status ${quoted(n.name)}" /></p>
      ${drain && html`<p><${Command} text="outspan node drain ${quoted(n.name)} --dry-run" /></p>`}
    </section>`
}

/** @param {{ query: Record<string, string>, empty: string }} p */
export function Instances({ query, empty }) {
  const state = useResource('/v1/instances', query)
  const rows = /** @type {any[]} */ (state.data?.items || [])
  return html`<section>
    <h2>Instances ${state.data ? html`<span class="dim">${number(rows.length)}</span>` : ''}</h2>
    <${Loaded} state=${state} empty=${empty}
      ><${Grid}
        caption="Instances"
        rows=${rows}
        id=${(/** @type {any} */ i) => i.id}
        columns=${instanceColumns.filter(c => !(c.head in query))}
    /><//>
  </section>`
}

/** @param {{ subject: string }} p */
export function WhyOf({ subject }) {
  const state = useResource('/v1/why', { subject })
  return state.data
    ? html`<${Late} state=${state} /><${Why} why=${state.data} />`
    : html`<section>
        <h2>Why</h2>
        <${Loaded} state=${state} />
      </section>`
}
