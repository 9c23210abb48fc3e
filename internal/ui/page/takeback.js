// Taking a node back after its drain, or after a cordon.
import { html } from './lib.js'
import { useAllowed, useResource } from './store.js'
import { write } from './session.js'
import { quoted } from './format.js'
import { Command, Refused } from './parts.js'
import { Confirmed } from './confirm.js'

/** @param {any} n @returns {boolean} whether a node takes no new instances, and no drain goes on there */
export const out = n => (n.intent === 'draining' || n.intent === 'cordoned') && n.drain_phase !== 'draining'

/** @param {{ node: any }} p a node that is out */
export function TakeBack({ node: n }) {
  const allowed = useAllowed('node.cordon', 'node/' + n.name)
  if (allowed === undefined) return null
  if (!allowed) return html`<${Refused} what=${`take ${n.name} back`} verb="node.cordon" object=${n.name} />`
  return html`<div class="act">
    <${Confirmed}
      text=${`Take ${n.name} back …`}
      title=${`Take ${n.name} back`}
      act="Take it back"
      typed=""
      write=${() => write('POST', `/v1/nodes/${encodeURIComponent(n.name)}/uncordon`, { body: {} })}
    >
      <p>${n.name} takes new instances again. What has moved does not come back by itself.</p>
      <p><${Command} text="outspan node uncordon ${quoted(n.name)}" /></p
    ><//>
  </div>`
}

/** What follows on a drain that has ended. @param {{ of: any }} p */
export function After({ of: d }) {
  const { data } = useResource('/v1/nodes', { fields: 'id,name,intent,drain_id,drain_phase' })
  const nodes = /** @type {any[]} */ (data?.items || []).filter(n => n.drain_id === d.id && out(n))
  if (nodes.length === 0) return null
  const [these, take, are] = nodes.length === 1 ? [nodes[0].name, 'takes', 'it is'] : ['Its nodes', 'take', 'they are']
  return html`<section>
    <h2>Next</h2>
    <p>
      ${d.phase === 'drained' ? 'Do now what the drain was for. ' : ''}${these} ${take} no new instances until${' '}
      ${are} taken back.
    </p>
    ${nodes.map(n => html`<${TakeBack} key=${n.id} node=${n} />`)}
  </section>`
}
