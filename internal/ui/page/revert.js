// Going back to an earlier version: first what that changes, then the revert of exactly this.
import { html, useEffect, useState } from './lib.js'
import { useMay, useResource } from './store.js'
import { call, write } from './session.js'
import { linkTo, quoted, stamp } from './format.js'
import { Command, Failure, goTo, Heading, Late, Loaded, Mark } from './parts.js'
import { Plan, planOf } from './plan.js'

/** @param {{ name: string, query: URLSearchParams }} p */
export function Revert({ name, query }) {
  const state = useResource('/v1/jobs/' + encodeURIComponent(name))
  const j = state.data,
    version = Number(query.get('version')) || 0
  if (!j) return html`<${Heading}>Revert ${name}<//><${Loaded} state=${state} />`
  return html`<${To} key=${`${version}/${j.version}`} state=${state} version=${version} />`
}

/** @param {{ state: import('./store.js').State, version: number }} p */
function To({ state, version }) {
  const j = state.data,
    path = '/v1/jobs/' + encodeURIComponent(j.name)
  const [counts, setCounts] = useState(false),
    [message, setMessage] = useState(''),
    [busy, setBusy] = useState(false),
    [error, setError] = useState(/** @type {any} */ (null))
  const [made, setMade] = useState(/** @type {any} */ (null))
  const allowed = useMay('job.submit', 'job/' + j.name)
  const body = { version, if_version: j.version, counts }
  useEffect(() => {
    let old = false
    const look = async () => {
      setError(null)
      setMade(null)
      const got = (await call('POST', path + '/revert', { query: { dry_run: 'true' }, body })).value
      if (!got.spec) return { note: got.note, to: got.reverted_to }
      return { ...(await planOf(got.spec, true)), note: got.note, to: got.reverted_to }
    }
    look().then(
      m => {
        if (!old) setMade(m)
      },
      e => {
        if (!old) setError(e)
      },
    )
    return () => {
      old = true
    }
  }, [counts])
  const run = () => {
    setBusy(true)
    setError(null)
    write('POST', path + '/revert', { body: { ...body, version: made.to || version, message } })
      .then(() => {
        goTo(linkTo('job/' + j.name))
      }, setError)
      .finally(() => setBusy(false))
  }
  const to = made?.to || version
  return html`<${Heading}>Revert ${j.name} ${to ? `to version ${to}` : ''} <${Mark} kind="job" state=${j.status} /><//>
    <${Late} state=${state} />
    <p class="dim">
      The job is at version ${j.version}, as of ${stamp(new Date(state.at).toISOString())}. A revert makes a new version
      with the file of the earlier one.
    </p>
    <label class="check"
      ><input type="checkbox" checked=${counts} onChange=${(/** @type {any} */ e) => setCounts(e.target.checked)} />
      <span>Take the counts of that version too; otherwise each group keeps its count</span></label
    >
    ${error &&
    (error.code === 'conflict'
      ? html`<div class="note bad" role="alert">
          <p><strong>Nothing was reverted: the job has changed meanwhile.</strong> Look at its versions again.</p>
          <p class="dim">${error.message}</p>
        </div>`
      : html`<${Failure} error=${error} />`)}
    ${!made && !error && html`<p class="dim">Asking the servers …</p>`}
    ${made &&
    html`<section aria-live="polite">
      <h2>What it changes</h2>
      ${made.note && html`<p class="note">${made.note}</p>`}
      ${made.plan ? html`<${Plan} of=${made} />` : html`<p>You may not see what the versions of this job say.</p>`}
      ${allowed
        ? html`<div class="start">
            <label
              >Why, for people <span class="dim">stands in the history</span
              ><input value=${message} maxlength="256" onInput=${(/** @type {any} */ e) => setMessage(e.target.value)}
            /></label>
            <button type="button" class="primary" disabled=${busy} onClick=${run}>Revert to version ${to}</button>
          </div>`
        : html`<p>You may not revert this job.</p>`}
    </section>`}
    <section>
      <h2>By command</h2>
      <p>
        <${Command}
          text=${`outspan job revert ${quoted(j.name)} ${to || ''}${counts ? ' --counts' : ''} --if-version ${
            j.version
          }${message && ` -m ${quoted(message)}`}`}
        />
      </p>
      <p><${Command} text="outspan job revert ${quoted(j.name)} ${to || ''} --dry-run" /></p>
    </section>`
}
