// Acts on a job or an instance: a button, what it does in words, a confirmation, the command.
import { html, useEffect, useState } from './lib.js'
import { write } from './session.js'
import { Command, Failure } from './parts.js'

/**
 * @typedef {object} Action
 * @property {string} key
 * @property {string} name what its button says
 * @property {string} text what it does
 * @property {string} command
 * @property {string} [typed] what has to be typed before, because it can't be undone; empty: nothing
 * @property {any} [fields] further choices
 * @property {[path: string, body?: any]} post what is sent
 * @property {(value: any) => void} [then] gets the answer
 */

/**
 * Buttons, and below them the one act that was chosen, which a second button carries out.
 * @param {{ of: Action[] }} p
 */
export function Acts({ of }) {
  const [open, setOpen] = useState(''),
    [busy, setBusy] = useState(false),
    [typed, setTyped] = useState('')
  const [error, setError] = useState(/** @type {any} */ (null)),
    [done, setDone] = useState('')
  const show = (/** @type {string} */ key) => {
    setOpen(key)
    setTyped('')
    setError(null)
    setDone('')
  }
  const a = of.find(a => a.key === open)
  useEffect(() => {
    if (open && !a) show('') // it can't be done any more, and does not come back by itself
  }, [open, a])
  const run = (/** @type {Action} */ a) => {
    setBusy(true)
    setError(null)
    write('POST', a.post[0], { body: a.post[1] || {} })
      .then(got => {
        setOpen(now => (now === a.key ? '' : now)) // another act may be open by now
        setDone(got.value?.changed === false ? `${a.name}: it was so already.` : `${a.name}: accepted.`)
        a.then?.(got.value)
      }, setError)
      .finally(() => setBusy(false))
  }
  return html`<div class="tools">
      ${of.map(
        a =>
          html`<button
            type="button"
            key=${a.key}
            aria-expanded=${open === a.key}
            onClick=${() => show(open === a.key ? '' : a.key)}
          >
            ${a.name} …
          </button>`,
      )}
      <span role="status" class="dim">${done}</span>
    </div>
    ${a &&
    html`<div class="act note">
      <p>${a.text}</p>
      ${a.fields}
      ${a.typed &&
      html`<label
        >This can't be undone. Type ${a.typed} to go on${' '}
        <input
          class="short"
          value=${typed}
          autocomplete="off"
          spellcheck=${false}
          onInput=${(/** @type {any} */ e) => setTyped(e.target.value)}
      /></label>`}
      <div class="tools">
        <button
          type="button"
          class="primary"
          disabled=${busy || (!!a.typed && typed !== a.typed)}
          onClick=${() => run(a)}
        >
          ${a.name} now
        </button>
        <button type="button" onClick=${() => show('')}>Leave it</button><${Command} text=${a.command} />
      </div>
      ${error && html`<${Failure} error=${error} />`}
    </div>`}`
}
