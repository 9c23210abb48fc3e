// The shell: the way in, the address, the head of the page.
import { html, render, signal, useEffect, useErrorBoundary, useRef, useState } from './lib.js'
import { enter, signIn, signOut } from './session.js'
import { follow } from './stream.js'
import { Login } from './login.js'
import { ended, identity, may, mayStatus, status } from './store.js'
import { Advice } from './parts.js'
import { Age, Health, healthOf } from './health.js'
import { Fleet } from './fleet.js'
import { Node } from './node.js'
import { Instance } from './instance.js'
import { Jobs } from './jobs.js'
import { Job } from './job.js'
import { Edit } from './edit.js'
import { Revert } from './revert.js'
import { Drain, Drains } from './drains.js'
import { NewDrain } from './newdrain.js'
import { Roll, Rolls } from './rolls.js'
import { NewRoll } from './newroll.js'
import { driveOn } from './roll.js'
import { Events } from './events.js'
import { Problems } from './problems.js'
import { Servers } from './servers.js'
import { Settings } from './settings.js'

const address = signal(location.hash)
addEventListener('hashchange', () => {
  address.value = location.hash
})

/** @param {string} hash such as #/nodes/n1?x=y */
function parse(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?')
  return {
    parts: path.split('/').map(p => {
      try {
        return decodeURIComponent(p)
      } catch {
        return p
      }
    }),
    query: new URLSearchParams(query),
  }
}

/** The screens, and the right to see each. */
const tabs = [
  ['fleet', 'Fleet', 'node.read'],
  ['jobs', 'Jobs', 'job.read'],
  ['drains', 'Drains', 'node.read'],
  ['events', 'Events', 'event.read'],
  ['problems', 'Problems', 'server.read'],
  ['servers', 'Servers', 'server.read'],
  ['settings', 'Settings', 'settings.read'],
]

/** @param {string} screen @param {string | undefined} name @param {URLSearchParams} query */
function screenOf(screen, name, query) {
  switch (screen) {
    case '':
    case 'fleet':
      return [html`<${Fleet} query=${query} />`, 'Fleet', 'fleet']
    case 'nodes':
      return [html`<${Node} key=${name} name=${name} />`, `Node ${name}`, 'fleet']
    case 'instances':
      return [html`<${Instance} key=${name} id=${name} query=${query} />`, `Instance ${name}`, 'jobs']
    case 'edit':
      return [html`<${Edit} key=${name} name=${name || ''} />`, `Edit ${name || 'a new job'}`, 'jobs']
    case 'revert':
      return [html`<${Revert} key=${name} name=${name} query=${query} />`, `Revert ${name}`, 'jobs']
    case 'jobs':
      return name
        ? [html`<${Job} key=${name} name=${name} query=${query} />`, `Job ${name}`, 'jobs']
        : [html`<${Jobs} query=${query} />`, 'Jobs', 'jobs']
    case 'drains':
      return name
        ? [html`<${Drain} key=${name} id=${name} />`, `Drain ${name}`, 'drains']
        : [html`<${Drains} />`, 'Drains', 'drains']
    case 'drain':
      return [html`<${NewDrain} key=${name} node=${name} />`, `Drain ${name}`, 'drains']
    case 'rolls':
      return name === 'new'
        ? [html`<${NewRoll} />`, 'New roll', 'drains']
        : name
          ? [html`<${Roll} key=${name} id=${name} />`, 'Roll', 'drains']
          : [html`<${Rolls} />`, 'Rolls', 'drains']
    case 'events':
      return [html`<${Events} query=${query} />`, 'Events', 'events']
    case 'servers':
      return [html`<${Servers} name=${name} />`, name ? `Server ${name}` : 'Servers', 'servers']
    case 'settings':
      return [html`<${Settings} name=${name} />`, 'Settings', 'settings']
    case 'problems':
      return [html`<${Problems} />`, 'Problems', 'problems']
  }
  return [
    html`<section>
      <h1>There is no such page</h1>
      <p><a href="#/fleet">To the fleet</a></p>
    </section>`,
    'Not found',
    '',
  ]
}

function Shell() {
  const asks = mayStatus()
  useEffect(() => (asks ? status.use() : undefined), [asks])
  useEffect(() => identity.use(), [])
  const {
    parts: [screen, name],
    query,
  } = parse(address.value)
  const [view, title, tab] = screenOf(screen, name, query)
  const s = status.state.value
  const who = identity.state.value.data?.subject
  const seen = who ? tabs.filter(([, , verb]) => may(verb)) : tabs
  useEffect(() => {
    document.title = `${title} · ${s.data?.cluster || 'outspan'}`
  }, [title, s.data?.cluster])
  const nav = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => {
    // on a phone, the name of the screen is scrolled to
    const at = nav.current?.querySelector('[aria-current]')
    if (nav.current && at instanceof HTMLElement) {
      const { left, right } = at.getBoundingClientRect(),
        box = nav.current.getBoundingClientRect()
      if (left < box.left || right > box.right) nav.current.scrollLeft += left - box.left - 16
    }
  }, [tab, seen.length])
  const problems = s.data ? s.data.problems.length : 0
  return html`<a
      class="skip"
      href="#main"
      onClick=${(/** @type {Event} */ e) => {
        e.preventDefault()
        document.getElementById('main')?.focus()
      }}
      >Skip to the content</a
    >
    <header>
      <div class="top">
        <a class="brand" href="#/fleet"
          ><svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
            <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="3" /></svg
          ><span>${s.data?.cluster || 'outspan'}</span></a
        >
        <nav aria-label="Screens" ref=${nav}>
          ${seen.map(
            ([to, text]) =>
              html`<a href="#/${to}" aria-current=${tab === to ? 'page' : null}
                >${text}${to === 'problems' && problems > 0 ? html` <span class="badge">${problems}</span>` : ''}</a
              >`,
          )}
        </nav>
        ${who && html`<${Who} subject=${who} token=${identity.state.value.data?.token} />`}
      </div>
      <div class="health"><${Health} /><${Age} /></div>
    </header>
    <main id="main" tabindex="-1"><${Whole} key=${`${screen}/${name}`}>${view}<//></main>
    <${Spoken} />`
}

/** A screen, or why it can't be shown. The rest of the page goes on. @param {{ children?: any }} p */
function Whole({ children }) {
  const [error] = useErrorBoundary()
  return error
    ? html`<section>
        <h1>This screen can't be shown</h1>
        <p class="note bad" role="alert">${String(error)}</p>
      </section>`
    : children
}

/** Whose page this is. @param {{ subject: string, token?: any }} p */
function Who({ subject, token }) {
  const [failed, fail] = useState('')
  const leave = () => signOut().catch(e => fail(e.message))
  return html`<span class="me"
    ><span class="who dim" title=${`who you are to the cluster: ${subject}`}>${token?.person || subject}</span
    >${signIn && html`<button type="button" class="out" onClick=${leave} title=${failed}>Sign out</button>`}${failed &&
    html`<span class="bad" role="alert">Not signed out: ${failed}</span>`}</span
  >`
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
  if (signIn) return html`<${Login} error=${e} again=${was} />`
  const login = e.status === 401 && e.code !== 'page_not_entered'
  return html`<main id="main" class="ended">
    <h1>${login ? 'Your sign-in has ended' : 'This page is closed'}</h1>
    <p>${e.message[0].toUpperCase() + e.message.slice(1)}.</p>
    ${login
      ? html`<p>
          <${Advice} text=${`${e.hint || 'Sign in again: outspan login'}; then open a new page: outspan ui`} />
        </p>`
      : html`<p>
          It works for one person, by a link that is good once and for 60 s.${' '}
          <${Advice} text="Open a new one: outspan ui" />
        </p>`}
  </main>`
}

const Page = () => (ended.value ? html`<${Ended} />` : html`<${Shell} />`)

addEventListener('keydown', e => {
  const field = document.getElementById('filter')
  const typing = e.target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)
  if (e.key === '/' && field && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault()
    field.focus()
  }
})

let was = false // somebody was signed in when the page was loaded

const root = /** @type {HTMLElement} */ (document.getElementById('page'))
ended.value = await enter()
was = !ended.value
if (was) {
  follow()
  driveOn()
}
address.value = location.hash
root.replaceChildren()
render(html`<${Page} />`, root)
