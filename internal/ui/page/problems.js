// What a person should look at, and the way out of each.
import { html } from './lib.js'
import { mayStatus, nameOf, status } from './store.js'
import { words } from './format.js'
import { Advice, Failure, Heading, Late, Subject } from './parts.js'

export function Problems() {
  const s = status.state.value
  const of = /** @type {any[]} */ (s.data?.problems || [])
  if (mayStatus() === false) return html`<${Heading}>Problems<//><p class="empty">You may not see the problems of this cluster (server.read).</p>`
  return html`<${Heading}>Problems<//>
    ${s.data ? html`<${Late} state=${s} />` : s.error && html`<${Failure} error=${s.error} />`}
    ${!s.data ? !s.error && html`<p class="dim">Asking the servers …</p>` : of.length === 0
      ? html`<p class="empty">${s.old ? 'One server knows of no problem. Only the leader knows of all.' : 'No problems.'}</p>`
      : html`<ul class="problems">${of.map(p => html`<li key=${p.code + p.subject}><h2><${Subject} subject=${p.subject} name=${nameOf(p.subject)} /> <span class="dim">${words(p.code)}</span></h2>
        <p>${p.message}</p><p class="way"><span class="dim">Way out</span> <span><${Advice} text=${p.next} /></span></p></li>`)}</ul>`}`
}
