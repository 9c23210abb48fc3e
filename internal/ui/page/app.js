// The shell: the way in, the address, the head of the page.
import { html, render, signal, useEffect, useRef, useState } from './lib.js'
import { enter } from './session.js'
import { ended, identity, may, mayStatus, status } from './store.js'
import { Advice } from './parts.js'
import { Age, Health, healthOf } from './health.js'
import { Fleet } from './fleet.js'
import { Node } from './node.js'
import { Instance } from './instance.js'
import { Job, Jobs } from './jobs.js'
import { Drain, Drains } from './drains.js'
import { NewDrain } from './newdrain.js'
import { Events } from './events.js'
import { Problems } from './problems.js'

const address = signal(location.hash)
addEventListener('hashchange', () => { address.value = location.hash })

/** @param {string} hash such as #/nodes/n1?x=y */
function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?')
  return { parts: path.split('/').map(p => { try { return decodeURIComponent(p) } catch { return p } }), query: new URLSearchParams(query) }
}

/** The screens, and the right to see each. */
const tabs = [['fleet', 'Fleet', 'node.read'], ['jobs', 'Jobs', 'job.read'], ['drains', 'Drains', 'node.read'],
  ['events', 'Events', 'event.read'], ['problems', 'Problems', 'server.read']]

/** @param {string} screen @param {string | undefined} name @param {URLSearchParams} query */
function screenOf(screen, name, query) {
  switch (screen) {
    case '': case 'fleet': return [html`<${Fleet} query=${query} />`, 'Fleet', 'fleet']
    case 'nodes': return [html`<${Node} key=${name} name=${name} />`, `Node ${name}`, 'fleet']
    case 'instances': return [html`<${Instance} key=${name} id=${name} />`, `Instance ${name}`, 'jobs']
    case 'jobs': return name ? [html`<${Job} key=${name} name=${name} />`, `Job ${name}`, 'jobs'] : [html`<${Jobs} query=${query} />`, 'Jobs', 'jobs']
    case 'drains': return name ? [html`<${Drain} key=${name} id=${name} />`, `Drain ${name}`, 'drains'] : [html`<${Drains} />`, 'Drains', 'drains']
    case 'drain': return [html`<${NewDrain} key=${name} node=${name} />`, `Drain ${name}`, 'drains']
    case 'events': return [html`<${Events} query=${query} />`, 'Events', 'events']
    case 'problems': return [html`<${Problems} />`, 'Problems', 'problems']
  }
  return [html`<section><h1>There is no such page</h1><p><a href="#/fleet">To the fleet</a></p></section>`, 'Not found', '']
}

function Shell() {
  const asks = mayStatus()
  useEffect(() => asks ? status.use() : undefined, [asks])
  useEffect(() => identity.use(), [])
  const { parts: [screen, name], query } = parse(address.value)
  const [view, title, tab] = screenOf(screen, name, query)
  const s = status.state.value
  const who = identity.state.value.data?.subject
  const seen = who ? tabs.filter(([, , verb]) => may(verb)) : tabs
  useEffect(() => { document.title = `${title} · ${s.data?.cluster || 'outspan'}` }, [title, s.data?.cluster])
  const problems = s.data ? s.data.problems.length : 0
  return html`<a class="skip" href="#main" onClick=${(/** @type {Event} */ e) => { e.preventDefault(); document.getElementById('main')?.focus() }}>Skip to the content</a>
    <header><div class="top">
      <a class="brand" href="#/fleet"><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true"><circle cx="8" cy="8" r="5.5" fill="none"
        stroke="currentColor" stroke-width="3" /></svg>${s.data?.cluster || 'outspan'}</a>
      <nav aria-label="Screens">${seen.map(([to, text]) => html`<a href="#/${to}" aria-current=${tab === to ? 'page' : null}>${text}${
        to === 'problems' && problems > 0 ? html` <span class="badge">${problems}</span>` : ''}</a>`)}</nav>
      ${who && html`<span class="who dim" title="who you are to the cluster">${who}</span>`}
    </div><div class="health"><${Health} /><${Age} /></div></header>
    <main id="main" tabindex="-1">${view}</main><${Spoken} />`
}

/** Tells readers of the screen when the health changes, at most every 5 s. */
function Spoken() {
  const [said, say] = useState('')
  const latest = useRef('')
  const h = healthOf(status.state.value)
  latest.current = `${h.text} ${h.facts || ''}`
  useEffect(() => {
    say(latest.current)
    const timer = setInterval(() => say(latest.current), 5000)
    return () => clearInterval(timer)
  }, [])
  return html`<div class="unseen" role="status" aria-live="polite">${said}</div>`
}

/** What is shown when the page can't go on. */
function Ended() {
  const e = ended.value
  if (!e) return null
  const login = e.status === 401 && e.code !== 'page_not_entered'
  return html`<main id="main" class="ended"><h1>${login ? 'Your sign-in has ended' : 'This page is closed'}</h1>
    <p>${e.message[0].toUpperCase() + e.message.slice(1)}.</p>
    ${login ? html`<p><${Advice} text=${`${e.hint || 'Sign in again: outspan login'}; then open a new page: outspan ui`} /></p>`
      : html`<p>It works for one person, by a link that is good once and for 60 s. <${Advice} text="Open a new one: outspan ui" /></p>`}</main>`
}

const Page = () => ended.value ? html`<${Ended} />` : html`<${Shell} />`

addEventListener('keydown', e => {
  const field = document.getElementById('filter')
  const typing = e.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)
  if (e.key === '/' && field && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault()
    field.focus()
  }
})

const root = /** @type {HTMLElement} */ (document.getElementById('page'))
ended.value = await enter()
address.value = location.hash
root.replaceChildren()
render(html`<${Page} />`, root)
