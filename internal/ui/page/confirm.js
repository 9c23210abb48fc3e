// Buttons that change something: with a confirmation where it can't be undone, with an undo for a while where it can.
import { html, useEffect, useState } from './lib.js'
import { Failure } from './parts.js'

const UNDO = 10000 // ms for which an act can be undone by its own button

/** @typedef {() => Promise<any>} Write a write; it throws a CallError */

/** @returns {{ busy: boolean, error: any, run: (write: Write, then?: () => void) => void }} */
export function useWrite() {
  const [busy, setBusy] = useState(false),
    [error, setError] = useState(/** @type {any} */ (null))
  const run = (/** @type {Write} */ write, /** @type {(() => void) | undefined} */ then) => {
    setBusy(true)
    setError(null)
    write()
      .then(() => then?.(), setError)
      .finally(() => setBusy(false))
  }
  return { busy, error, run }
}

/**
 * A button for an act that another act takes back, which is offered for 10 s.
 * @param {{ text: string, write: Write, undo: Write, done: string, typed?: string }} p done: what has happened then;
 * typed: what has to be typed before, empty for nothing
 */
export function Undoable({ text, write, undo, done, typed = '' }) {
  const { busy, error, run } = useWrite()
  const [undone, setUndo] = useState(/** @type {{ write: Write, done: string } | null} */ (null)),
    [given, give] = useState('')
  useEffect(() => {
    if (!undone) return
    const timer = setTimeout(() => setUndo(null), UNDO)
    return () => clearTimeout(timer)
  }, [undone])
  const act = () =>
    run(write, () => {
      setUndo({ write: undo, done })
      give('')
    })
  return html`${undone &&
    html`<span class="undo" role="status"
      >${undone.done}${' '}
      <button type="button" disabled=${busy} onClick=${() => run(undone.write, () => setUndo(null))}>Undo</button></span
    >`}
    ${typed &&
    html`<label
      >This can lose work. Type ${typed} to go on${' '}
      <input class="short" value=${given} onInput=${(/** @type {any} */ e) => give(e.target.value)}
    /></label>`}
    <button type="button" disabled=${busy || (typed !== '' && given !== typed)} onClick=${act}>${text}</button
    >${error && html`<${Failure} error=${error} />`}`
}

/**
 * A button that first says what the act means, and asks to type a word where it can't be undone.
 * @param {{ text: string, title: string, act: string, typed: string, write: Write, children?: any, opens?: () => void,
 *   then?: () => void }} p
 * text: of the button; title: of what it opens; act: of the button that acts; typed: the word, empty for none
 */
export function Confirmed({ text, title, act, typed, write, children, opens, then }) {
  const { busy, error, run } = useWrite()
  const [open, setOpen] = useState(false),
    [given, give] = useState('')
  const show = () => {
    opens?.()
    setOpen(true)
  }
  if (!open) return html`<button type="button" onClick=${show}>${text}</button>`
  const close = () => {
    setOpen(false)
    give('')
  }
  const submit = (/** @type {Event} */ e) => {
    e.preventDefault()
    if (given === typed)
      run(write, () => {
        close()
        then?.()
      })
  }
  return html`<form class="confirm" aria-label=${title} onSubmit=${submit}>
    <h3>${title}</h3>
    ${children}
    ${typed &&
    html`<label
      >This can't be undone. Type ${typed} to go on${' '}
      <input class="short" value=${given} ref=${focus} onInput=${(/** @type {any} */ e) => give(e.target.value)}
    /></label>`}
    ${error && html`<${Failure} error=${error} />`}
    <p class="buttons">
      <button type="submit" class="primary" disabled=${busy || given !== typed}>${act}</button>
      <button type="button" onClick=${close}>Leave it</button>
    </p>
  </form>`
}

/** @param {HTMLElement | null} field */
const focus = field => {
  if (field && !field.dataset.met) {
    field.dataset.met = '1'
    field.focus()
  }
}
