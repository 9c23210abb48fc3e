// The way in at a server: by an access token, or by the provider.
import { html, useEffect, useRef, useState } from './lib.js'
import { CallError, enterWith, leaveForProvider, provider } from './session.js'
import { Command } from './parts.js'

/** @param {string} text */
const sentence = text => text[0].toUpperCase() + text.slice(1).replace(/\.?$/, '.')

/**
 * The screen to sign in. Whoever signs in is back at the screen that the address names.
 * @param {{ error: CallError, again: boolean }} p error: why nobody is in; again: somebody was, when the page was
 * loaded
 */
export function Login({ error, again }) {
  const [failed, fail] = useState(error.code !== 'page_not_entered' && !again ? error : null)
  const [busy, work] = useState(false)
  const field = useRef(/** @type {HTMLInputElement | null} */ (null))
  useEffect(() => {
    document.title = 'Sign in · outspan'
    if (!provider) field.current?.focus()
  }, [])
  /** @param {() => Promise<any>} step */
  const go = async step => {
    work(true)
    fail(null)
    try {
      await step()
    } catch (e) {
      fail(e instanceof CallError ? e : new CallError({ message: String(e) }))
      work(false)
    }
  }
  /** @param {Event} e */
  const submit = e => {
    e.preventDefault()
    const token = field.current?.value.trim() || ''
    if (!token) return field.current?.focus()
    go(async () => {
      await enterWith(token)
      location.reload()
    })
  }
  return html`<main id="main" class="login" tabindex="-1">
    <p class="brand">
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
        <circle cx="8" cy="8" r="5.5" fill="none" stroke="currentColor" stroke-width="3" /></svg
      >outspan
    </p>
    <h1>${again ? 'Your sign-in has ended' : 'Sign in'}</h1>
    <p class="dim">
      ${again
        ? html`${sentence(error.message)} Sign in again, and you are back where you were.`
        : html`You see and do what your roles allow, at the server <span class="mono">${location.host}</span>.`}
    </p>
    ${failed &&
    html`<div class="note bad" role="alert">
      <p><strong>${sentence(failed.message)}</strong></p>
      ${failed.code === 'unauthenticated' || failed.code === 'invalid'
        ? ''
        : failed.hint && html`<p>${sentence(failed.hint)}</p>`}
    </div>`}
    ${provider &&
    html`<button type="button" class="primary wide" disabled=${busy} onClick=${() => go(leaveForProvider)}>
        Sign in with ${provider}
      </button>
      <p class="or dim"><span>or</span></p>`}
    <form onSubmit=${submit}>
      <label
        >Access token${' '}
        <input
          ref=${field}
          type="password"
          name="token"
          autocomplete="off"
          spellcheck=${false}
          autocapitalize="off"
          maxlength="300"
      /></label>
      <button type="submit" class=${provider ? 'wide' : 'primary wide'} disabled=${busy}>
        ${busy ? 'Signing in …' : 'Sign in with the token'}
      </button>
    </form>
    <details>
      <summary>How to get an access token</summary>
      <p class="dim">Somebody with the role admin makes one. It is shown once.</p>
      <p><${Command} text="outspan auth token create NAME --role viewer" /></p>
    </details>
  </main>`
}
