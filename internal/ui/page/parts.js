// What several screens are made of.
import { html, useEffect, useRef, useState } from './lib.js'
import { asOf, identity, now, useNames } from './store.js'
import { commandsIn, goesOn, linkTo, quoted, shapeOf, span, stamp, words } from './format.js'
import { Grid } from './grid.js'

const inside = {
  solid: html`<circle cx="6" cy="6" r="4.5" fill="currentColor" />`,
  hollow: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6" />`,
  dashed: html`<circle
    cx="6"
    cy="6"
    r="4"
    fill="none"
    stroke="currentColor"
    stroke-width="1.6"
    stroke-dasharray="2.2 1.8"
  />`,
  hatched: html`<circle cx="6" cy="6" r="4.3" fill="none" stroke="currentColor" stroke-width="1.2" /><path
      d="M2.6 8.4 8.4 2.6M4 10.1 10.1 4M2 5.6 5.6 2M6.6 10 10 6.6"
      stroke="currentColor"
      stroke-width="1.1"
    />`,
  cross: html`<path d="M2 2 10 10M10 2 2 10" stroke="currentColor" stroke-width="2.2" stroke-linecap="round" />`,
  triangle: html`<path d="M6 1.2 11.2 10.6H.8Z" fill="currentColor" />`,
  square: html`<rect x="2" y="2" width="8" height="8" fill="none" stroke="currentColor" stroke-width="1.6" />`,
}

/**
 * A state by shape and word.
 * @param {{ kind: string, state: string, bare?: boolean }} p bare: the word is said elsewhere
 */
export function Mark({ kind, state, bare }) {
  const [shape, tone] = shapeOf(kind, state)
  return html`<span class="mark ${tone}"
    ><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">
      ${inside[/** @type {keyof typeof inside} */ (shape)]}</svg
    >${bare ? '' : html`<span class="word">${state}</span>`}</span
  >`
}

/**
 * A part of a whole, as a bar with its words.
 * @param {{ part: number, whole: number, text: string, load?: boolean }} p load: the bar shows how full something is
 */
export function Bar({ part, whole, text, load }) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0
  return html`<span class="amount"
    ><span class=${load ? `bar l${Math.min(4, Math.floor(share * 5))}` : 'bar'} aria-hidden="true"
      ><i style=${{ width: `${Math.round(share * 100)}%` }}></i></span
    ><span class="num">${text}</span></span
  >`
}

/** @param {{ time: string | null | undefined }} p */
export function Since({ time }) {
  if (!time) return html`<span class="dim">unknown</span>`
  return html`<time datetime=${time} title=${stamp(time)}>${span(now.value - Date.parse(time))}</time>`
}

/** @param {{ subject: string, name?: string }} p */
export function Subject({ subject, name }) {
  const to = linkTo(subject)
  const shown = name || subject.replace('/', ' ')
  return to ? html`<a href=${to}>${shown}</a>` : html`<span>${shown}</span>`
}

/** @param {{ text: string }} p a command, with a button that copies it */
export function Command({ text }) {
  const [copied, setCopied] = useState(false)
  useEffect(() => {
    if (!copied) return
    const timer = setTimeout(() => setCopied(false), 2000)
    return () => clearTimeout(timer)
  }, [copied])
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setCopied(true),
      () => {},
    )
  return html`<span class="command"
    ><code
      >${text
        .split(/(\S*-\S*)/) // an option is not broken at its dashes
        .map((part, i) => (i % 2 && part.length < 15 ? html`<span class="option">${part}</span>` : part))}</code
    ><button type="button" class="copy" onClick=${copy} aria-label=${copied ? 'copied' : 'copy: ' + text}>
      ${copied ? 'copied' : 'copy'}
    </button></span
  >`
}

/** @param {{ text: string }} p words, with the commands in them */
export const Advice = ({ text }) =>
  html`${commandsIn(text).map((p, i) =>
    p.command ? html`<${Command} text=${p.text} />` : html`<span>${i ? p.text.replace(/^[;,.] ?/, '') : p.text}</span>`,
  )}`

/** @param {{ error: import('./session.js').CallError }} p */
export const Failure = ({ error }) =>
  html`<div class="note bad" role="alert">
    <p><strong>${error.message}</strong> <span class="dim mono">${error.code}</span></p>
    ${error.hint && html`<p><${Advice} text=${error.hint} /></p>`}
  </div>`

/**
 * Says that what is shown is not the present state, and why.
 * @param {{ state: import('./store.js').State }} p
 */
export function Late({ state }) {
  const why = state.error || state.old
  if (!why) return null
  const time = stamp(new Date(asOf(state)).toISOString())
  return html`<div class="note bad" role=${state.error ? 'alert' : null}>
    <p>
      ${state.error ? `Not read since ${time}: ` : `As of ${time}, what one server knows: `}${why.message}${' '}
      <span class="dim mono">${why.code}</span>
    </p>
    ${why.hint && html`<p><${Advice} text=${why.hint} /></p>`}
  </div>`
}

/**
 * What a list shows while nothing is known, after an error, and when it is empty.
 * @param {{ state: import('./store.js').State, empty?: any, children?: any }} p
 */
export function Loaded({ state, empty, children }) {
  if (!state.data)
    return state.error ? html`<${Failure} error=${state.error} />` : html`<p class="dim">Asking the servers …</p>`
  const hidden = state.data.hidden ? html`<p class="dim">${state.data.hidden} more that you may not see.</p>` : ''
  return html`<${Late} state=${state} />${empty && state.data.items?.length === 0
      ? html`<p class="empty">${empty}</p>`
      : children}${hidden}`
}

const MANY = 100 // rows from which a table is a grid, which has only some of them in the document

/**
 * A table of few rows, all of which are drawn. A column of rank 2 is left out on a narrow screen, one of rank 3 also on
 * one of middle width.
 * @template T
 * @param {{ caption: string, rows: T[], columns: import('./grid.js').Column<T>[], id: (row: T) => string }} p
 */
export function Table({ caption, rows, columns: all, id }) {
  if (rows.length > MANY) return html`<${Grid} caption=${caption} rows=${rows} columns=${all} id=${id} />`
  const columns = all.filter(c => !c.maybe || rows.some(c.cell))
  const of = (/** @type {any} */ c) => `r${c.rank || 1}${c.num ? ' num' : ''}`
  return html`<div class="scroll">
    <table>
      <caption class="unseen">
        ${caption}
      </caption>
      <thead>
        <tr>
          ${columns.map(c => html`<th scope="col" class=${of(c)}>${c.head}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          row =>
            html`<tr key=${id(row)}>
              ${columns.map((c, i) =>
                i === 0
                  ? html`<th scope="row" class=${of(c)}>${c.cell(row)}</th>`
                  : html`<td class=${of(c)}>${c.cell(row)}</td>`,
              )}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`
}

/**
 * Facts in pairs. Pairs without a value are left out.
 * @param {{ of: [name: string, value: any][] }} p
 */
export const Facts = ({ of }) =>
  html`<dl class="facts">
    ${of
      .filter(([, v]) => v !== '' && v !== null && v !== undefined && v !== false)
      .map(
        ([k, v]) =>
          html`<div>
            <dt>${k}</dt>
            <dd>${v}</dd>
          </div>`,
      )}
  </dl>`

/**
 * The heading of a screen. It takes the focus when the screen is opened, so that a reader begins there.
 * @param {{ children?: any, actions?: any }} p
 */
export function Heading({ children, actions }) {
  const ref = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => {
    ref.current?.focus({ preventScroll: true })
  }, [])
  return html`<div class="heading">
    <h1 tabindex="-1" ref=${ref}>${children}</h1>
    ${actions && html`<div class="actions">${actions}</div>`}
  </div>`
}

/**
 * A field that filters a list; "/" leads to it. The text is part of the address.
 * @param {{ value: string, onChange: (text: string) => void, hint: string }} p
 */
export function Filter({ value, onChange, hint }) {
  return html`<label class="filter"
    ><span class="unseen">Filter</span
    ><input
      type="search"
      id="filter"
      value=${value}
      placeholder=${hint}
      spellcheck=${false}
      autocomplete="off"
      onInput=${(/** @type {any} */ e) => onChange(e.target.value)}
    /><kbd aria-hidden="true">/</kbd></label
  >`
}

/**
 * Puts names instead of the ids of nodes, and words instead of the type of an event.
 * @param {string} text
 * @param {Map<string, string>} names
 */
const named = (text, names) =>
  text
    .replace(/^[a-z]+\.[a-z_]+(?=:|$)/, type => words(type.replace('.', ' ')))
    .replace(/\b[0-9a-z]{26}\b/g, id => names.get(id) || id)
    .replaceAll(' -> ', ' → ')

/** @param {{ why: any }} p an answer of why */
export function Why({ why }) {
  const names = useNames()
  return html`<section>
    <h2>Why</h2>
    ${why.next && html`<p class="next">Next: <${Advice} text=${why.next.replace(/^nothing: /, 'nothing, ')} /></p>`}
    ${why.blockers?.length > 0 && html`<${Blockers} of=${why.blockers} />`}
    ${why.chain?.length > 0
      ? html`<ol class="story">
          ${why.chain.map(
            (/** @type {any} */ l) =>
              html`<li>
                <time datetime=${l.time}>${stamp(l.time)}</time>
                <div>
                  ${named(l.text, names)}
                  <span class="dim">
                    ${' '} ${[words(l.cause), l.actor, `entry ${l.index}`].filter(Boolean).join(' · ')}</span
                  >
                </div>
              </li>`,
          )}
        </ol>`
      : html`<p class="dim">No event tells how it came to this.</p>`}
    ${why.considered?.length > 0 &&
    html`<details>
      <summary>Nodes that placement looked at (${why.considered.length})</summary>
      <${Table}
        caption="Nodes that placement looked at"
        rows=${why.considered}
        id=${(/** @type {any} */ c) => c.node_id}
        columns=${[
          { head: 'node', cell: (/** @type {any} */ c) => html`<a href=${linkTo('node/' + c.node)}>${c.node}</a>` },
          { head: 'score', num: true, cell: (/** @type {any} */ c) => c.score ?? '' },
          { head: 'excluded by', cell: (/** @type {any} */ c) => words(c.excluded_by || '') },
        ]}
      />
    </details>`}
    ${why.hidden > 0 && html`<p class="dim">${why.hidden} more nodes that you may not see.</p>`}
  </section>`
}

/**
 * What somebody may not do, and what an administrator can look up.
 * @param {{ what: string, verb: string, object?: string }} p object: the name of the one that it is about
 */
export function Refused({ what, verb, object }) {
  const who = identity.state.value.data?.subject
  const asked = [verb, object && quoted(object), who && '--as ' + quoted(who)].filter(Boolean).join(' ')
  return html`<p>
    You may not ${what}. Ask an administrator, who sees which role allows it:${' '}
    <${Command} text=${'outspan auth can-i ' + asked} />
  </p>`
}

/** @param {string} to the address of a screen, which is opened and shown from its top */
export function goTo(to) {
  location.hash = to
  scrollTo(0, 0)
}

/** @param {{ of: any[] }} p blockers: what blocks, and what would unblock it. Steps of what goes on have no sign. */
export const Blockers = ({ of }) =>
  html`<ul class="blockers">
    ${of.map(
      b =>
        html`<li>
          ${!goesOn(b) &&
          html`<span class="mark warn"
            ><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">${inside.triangle}</svg></span
          >`}
          <div>
            <p>${b.message} <span class="dim mono">${b.code}</span></p>
            ${b.instance &&
            html`<p class="dim">
              instance <a class="mono" href=${linkTo('instance/' + b.instance)}>${b.instance}</a>
            </p>`}
            ${b.unblock && html`<p><span class="dim">Way out: </span><${Advice} text=${b.unblock} /></p>`}
          </div>
        </li>`,
    )}
  </ul>`
