// Editing a job file: the text, its mistakes, the plan, and the run of exactly what was planned.
import { html, useEffect, useRef, useState } from './lib.js'
import { may, useMay, useResource } from './store.js'
import { DRAFTS, call, write } from './session.js'
import { linkTo, quoted } from './format.js'
import { Command, Failure, goTo, Heading, Late, Loaded, Mark, Refused } from './parts.js'
import { Plan, planOf } from './plan.js'

/** @typedef {{ text: string, of: number }} Draft */

/**
 * Texts that were changed and not run, by job; '' has that of a new job. They last as long as the tab, also when its
 * sign-in ends.
 * @type {Map<string, Draft>}
 */
export const drafts = new Map(JSON.parse(sessionStorage.getItem(DRAFTS) || '[]'))
/** @param {string} name @param {Draft} [draft] */
function keepDraft(name, draft) {
  if (draft) drafts.set(name, draft)
  else drafts.delete(name)
  try {
    sessionStorage.setItem(DRAFTS, JSON.stringify([...drafts]))
  } catch {} // too large: it lasts until the page is loaded again
}
addEventListener('beforeunload', e => {
  if (drafts.size > 0) e.preventDefault()
})

const example = [
  'job "web" {',
  '  group "http" {',
  '    count = 2',
  '    exec {',
  '      command = "/usr/bin/python3"',
  '      args    = ["-m", "http.server", "${port.http}"]',
  '    }',
  '    resources {',
  '      cpu    = 100',
  '      memory = "64MiB"',
  '    }',
  '    port "http" {}',
  '    check "answers" {',
  '      type = "http"',
  '      port = "http"',
  '    }',
  '  }',
  '}',
  '',
].join('\n')

/** @param {{ name: string }} p name: empty for a new job */
export function Edit({ name }) {
  if (name) return html`<${Of} name=${name} />`
  return may('job.submit')
    ? html`<${Editor} name="" version=${0} given=${example} />`
    : html`<${Heading}>New job<//>
        <${Refused} what="run jobs" verb="job.submit" />`
}

/** @param {{ name: string }} p */
function Of({ name }) {
  const state = useResource('/v1/jobs/' + encodeURIComponent(name))
  const allowed = useMay('job.plan', 'job/' + name),
    is = state.data?.name
  if (!is) return html`<${Heading}>Edit ${name}<//><${Loaded} state=${state} />`
  if (is === name) return html`<${Present} state=${state} allowed=${allowed} />`
  return html`<${Heading}>Edit ${name}<//>
    <p>There is no job of exactly this name. <a href="#/edit/${is}">Edit ${is}</a></p>`
}

/**
 * Reads the file of the version that is current when it is opened.
 * @param {{ state: import('./store.js').State, allowed: boolean }} p
 */
function Present({ state, allowed }) {
  const j = state.data
  const [given, setGiven] = useState(/** @type {any} */ (null)),
    [error, setError] = useState(/** @type {any} */ (null)),
    [of, setOf] = useState(j.version)
  useEffect(() => {
    call('GET', `/v1/jobs/${encodeURIComponent(j.name)}/versions/${of}/file`).then(got => setGiven(got.value), setError)
  }, [of])
  if (error) return html`<${Heading}>Edit ${j.name}<//><${Failure} error=${error} />`
  if (!given)
    return html`<${Heading}>Edit ${j.name}<//>
      <p class="dim">Asking the servers …</p>`
  return html`<${Editor}
    key=${given.version}
    name=${j.name}
    version=${j.version}
    status=${j.status}
    given=${given.text}
    of=${given.version}
    late=${state}
    renew=${() => setOf(j.version)}
    readonly=${!allowed}
  />`
}

/** @typedef {import('./plan.js').Planned & { text: string, keep: boolean }} Made */

/**
 * @param {{ name: string, version: number, given: string, of?: number, status?: string,
 *   late?: import('./store.js').State, renew?: () => void, readonly?: boolean }} p
 * version: the current one; of: the one that the text was made from
 */
function Editor({ name, version, given, of = 0, status, late, renew, readonly }) {
  const draft = drafts.get(name)
  const [text, setText] = useState(draft ? draft.text : given),
    [keep, setKeep] = useState(false),
    [message, setMessage] = useState('')
  const [busy, setBusy] = useState(''),
    [error, setError] = useState(/** @type {any} */ (null)),
    [made, setMade] = useState(/** @type {Made | null} */ (null))
  const area = useRef(/** @type {any} */ (null)),
    result = useRef(/** @type {any} */ (null))
  const from = draft ? draft.of : of,
    dirty = text !== given
  const mayRun = useMay('job.submit', 'job/' + (made ? made.spec.name : name))
  const change = (/** @type {string} */ t) => {
    setText(t)
    keepDraft(name, t === given ? undefined : { text: t, of: from })
  }
  /** @param {string} what @param {() => Promise<void>} f */
  const during = (what, f) => {
    setBusy(what)
    setError(null)
    f()
      .catch(setError)
      .finally(() => setBusy(''))
  }
  const plan = () =>
    during('plan', async () => {
      setMade(null)
      const spec = (await call('POST', '/v1/jobs/parse', { body: { text } })).value.job
      setMade({ ...(await planOf(spec, keep)), text, keep })
      setTimeout(() => result.current?.scrollIntoView({ block: 'nearest' }))
    })
  const check = () =>
    during('check', async () => {
      setMade(null)
      const spec = (await call('POST', '/v1/jobs/parse', { body: { text } })).value.job
      const got = (await call('POST', '/v1/jobs/validate', { body: { job: spec } })).value
      setChecked({ text, warnings: got.warnings || [] })
    })
  const [checked, setChecked] = useState(/** @type {{ text: string, warnings: string[] } | null} */ (null))
  const run = (/** @type {Made} */ m) =>
    during('run', async () => {
      try {
        await write('POST', '/v1/jobs', { query: { if_index: String(m.plan.index) }, body: { job: m.spec, message } })
      } catch (e) {
        if (/** @type {any} */ (e).code === 'conflict') setMade(null)
        throw e
      }
      if (drafts.get(name)?.text === m.text) keepDraft(name)
      goTo(linkTo('job/' + m.spec.name))
    })
  const good = made && made.text === text && made.keep === keep
  const file = quoted((made?.spec.name || name || 'web') + '.hcl')
  return html`<${Heading}
      >${name ? `Edit ${name}` : 'New job'} ${status && html`<${Mark} kind="job" state=${status} />`}<//
    >
    ${late && html`<${Late} state=${late} />`}
    ${from > 0 &&
    from !== version &&
    html`<p class="note warn" role="status">
      The job is at version ${version} now; this text was made from version ${from}. A plan compares with version${' '}
      ${version}.
      ${renew &&
      html` <button
        type="button"
        onClick=${() => {
          keepDraft(name)
          renew()
        }}
      >
        Take version ${version}, drop this text
      </button>`}
    </p>`}
    ${name
      ? html`<p class="dim">
          Made from version ${from}: it has no comments, and leaves out what the defaults say anyway.
        </p>`
      : html`<p class="dim">An example, to be changed. The keys of a job file: docs/job-file.md.</p>`}
    <${Area}
      value=${text}
      onInput=${change}
      area=${area}
      readonly=${readonly || busy === 'run'}
      name=${name ? `Job file of ${name}` : 'Job file'}
    />
    <div class="tools">
      <button type="button" class=${good ? '' : 'primary'} disabled=${busy !== '' || readonly} onClick=${plan}>
        ${busy === 'plan' ? 'Planning …' : 'Plan'}
      </button>
      <button type="button" disabled=${busy !== '' || readonly} onClick=${check}>Check only</button>
      ${dirty &&
      html`<button
        type="button"
        onClick=${() => {
          change(given)
          setMade(null)
          setError(null)
        }}
      >
        Undo all changes
      </button>`}
      ${/\bcontainer\b/.test(text) &&
      html`<label class="check"
        ><input type="checkbox" checked=${keep} onChange=${(/** @type {any} */ e) => setKeep(e.target.checked)} />
        <span>An image whose name is the same keeps its digest</span></label
      >`}
    </div>
    ${readonly && html`<p class="note">You may not plan this job.</p>`}
    ${error &&
    (error.code === 'conflict'
      ? html`<div class="note bad" role="alert">
          <p>
            <strong>Nothing was run: the job has changed since it was planned.</strong> Plan again, to see what your
            file changes now.
          </p>
          <p class="dim">${error.message}</p>
        </div>`
      : html`<${Mistakes} error=${error} area=${area} />`)}
    ${checked &&
    checked.text === text &&
    !error &&
    !made &&
    html`<p class="note" role="status">The file is right.${checked.warnings.map(w => html`<br />${w}`)}</p>`}
    ${made && !good && html`<p class="note warn" role="status">The plan was for another text. Plan again.</p>`}
    ${made &&
    good &&
    html`<section ref=${result} aria-live="polite">
      <h2>Plan</h2>
      <${Plan} of=${made} />
      ${made.spec.name !== name &&
      name !== '' &&
      html`<p class="note warn">The file is of the job ${made.spec.name}, not of ${name}: ${name} stays as it is.</p>`}
      ${made.plan.changes || status === 'stopped'
        ? mayRun
          ? html`<div class="start">
              <label
                >Why, for people <span class="dim">stands in the history</span
                ><input
                  value=${message}
                  maxlength="256"
                  onInput=${(/** @type {any} */ e) => setMessage(e.target.value)}
              /></label>
              <button type="button" class="primary" disabled=${busy !== ''} onClick=${() => run(made)}>
                ${busy === 'run' ? 'Running …' : 'Run this plan'}
              </button>
            </div>`
          : html`<p>You may plan this job, and not run it.</p>`
        : ''}
    </section>`}
    <section>
      <h2>By command</h2>
      <p><${Command} text="outspan job plan ${file}" /></p>
      ${good &&
      html`<p>
        <${Command}
          text=${`outspan job run ${file} --if-index ${made.plan.index}${keep ? ' --keep-images' : ''}${
            message && ` -m ${quoted(message)}`
          }`}
        />
      </p>`}
      ${good &&
      made.plan.images?.length > 0 &&
      html`<p class="dim">
        The command asks the registry anew what each image${keep ? ' with a new name' : ''} is; the button runs what was
        planned.
      </p>`}
    </section>`
}

/**
 * Each mistake of a file, with a button that leads to its line.
 * @param {{ error: import('./session.js').CallError, area: { current: any } }} p
 */
function Mistakes({ error, area }) {
  const lines = error.message.split('\n').map(l => ({ text: l, at: /^job:(\d+)(?:,(\d+))?/.exec(l) }))
  if (!lines.some(l => l.at)) return html`<${Failure} error=${error} />`
  const go = (/** @type {RegExpExecArray} */ at) => {
    const a = area.current,
      before = a.value.split('\n').slice(0, Number(at[1]) - 1)
    const start = before.reduce((/** @type {number} */ n, /** @type {string} */ l) => n + l.length + 1, 0)
    a.focus()
    a.setSelectionRange(start, start + (a.value.split('\n')[Number(at[1]) - 1] || '').length)
    a.scrollTop = Math.max(0, before.length - 4) * 20
  }
  return html`<div class="note bad" role="alert">
    ${lines.map(
      l =>
        html`<p>
          ${l.at &&
          html`<button type="button" class="line" onClick=${() => go(/** @type {any} */ (l.at))}>
            line ${l.at[1]}
          </button> `}${l.text.replace(/^job:[\d,-]+:? ?/, '')}
        </p>`,
    )}${error.hint && html`<p class="dim">${error.hint}</p>`}
  </div>`
}

/**
 * A field for code. Tab indents; after Esc, Tab leaves the field. Enter keeps the indentation.
 * @param {{ value: string, onInput: (text: string) => void, area: { current: any }, name: string,
 *   readonly?: boolean }} p
 */
function Area({ value, onInput, area, name, readonly }) {
  const [at, setAt] = useState(''),
    leaves = useRef(false)
  const place = () => {
    const a = area.current,
      before = a.value.slice(0, a.selectionStart).split('\n')
    setAt(`line ${before.length}, column ${before[before.length - 1].length + 1}`)
  }
  // so that it can be undone
  const put = (/** @type {string} */ text) => document.execCommand('insertText', false, text)
  const key = (/** @type {KeyboardEvent} */ e) => {
    const a = area.current
    if (e.key === 'Escape') {
      leaves.current = true
      return
    }
    if (e.key === 'Tab' && !leaves.current && !readonly && !e.ctrlKey && !e.altKey && !e.metaKey) {
      e.preventDefault()
      const start = a.value.lastIndexOf('\n', a.selectionStart - 1) + 1
      if (a.selectionStart === a.selectionEnd && !e.shiftKey) put('  ')
      else {
        const end = a.selectionEnd
        const old = a.value.slice(start, end),
          now = e.shiftKey ? old.replace(/^ {1,2}/gm, '') : old.replace(/^(?=.)/gm, '  ')
        a.setSelectionRange(start, end)
        if (now !== old) now ? put(now) : document.execCommand('delete')
        a.setSelectionRange(old.includes('\n') ? start : start + now.length, start + now.length)
      }
    } else if (e.key === 'Enter' && !e.isComposing && !readonly) {
      const line = a.value.slice(a.value.lastIndexOf('\n', a.selectionStart - 1) + 1, a.selectionStart)
      const indent = (/^ */.exec(line) || [''])[0] + (/[{[(]\s*$/.test(line) ? '  ' : '')
      if (indent) {
        e.preventDefault()
        put('\n' + indent)
      }
    }
    if (e.key !== 'Shift') leaves.current = false
  }
  return html`<div class="area">
    <textarea
      class="mono"
      ref=${area}
      aria-label=${name}
      aria-describedby="area-keys"
      spellcheck=${false}
      autocapitalize="off"
      autocomplete="off"
      wrap="off"
      readonly=${readonly}
      rows=${Math.min(32, Math.max(12, value.split('\n').length + 1))}
      value=${value}
      onInput=${(/** @type {any} */ e) => onInput(e.target.value)}
      onKeyDown=${key}
      onKeyUp=${place}
      onClick=${place}
      onFocus=${() => {
        leaves.current = false
      }}
    ></textarea>
    <p class="dim small">
      <span class="num">${at}</span><span id="area-keys">Tab indents. Esc, then Tab leaves the field.</span>
    </p>
  </div>`
}
