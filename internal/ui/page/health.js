// The sentence of health, and the age of what is shown.
import { html } from './lib.js'
import { asOf, mayStatus, nameOf, now, shown, status } from './store.js'
import { live, stream } from './stream.js'
import { count, number, span, stamp } from './format.js'
import { Mark } from './parts.js'
import { holdSentence } from './hold.js'

const LATE = 15000 // ms without an answer after which the page no longer counts as live

/**
 * @param {import('./store.js').State} s
 * @returns {{ tone: 'ok' | 'move' | 'warn' | 'bad' | 'idle', text: string, facts?: string }}
 */
export function healthOf(s) {
  const d = s.data
  if (mayStatus() === false) return { tone: 'idle', text: 'You may not see the health of this cluster (server.read).' }
  if (!d)
    return s.error
      ? { tone: 'bad', text: `Nothing is known: ${s.error.message}.` }
      : { tone: 'idle', text: 'Asking the servers …' }
  const alone = live() && stream.value.alone // which may be known before the servers give up a read
  if (s.error?.code === 'no_leader' || (!s.old && alone)) {
    return {
      tone: 'bad',
      text: 'No leader: nothing is decided now.',
      facts: s.error ? `What is shown does not change: ${s.error.message}.` : '',
    }
  }
  if (s.error) {
    const gone = s.error.code === 'page_gone' && !s.error.retryable
    return {
      tone: 'bad',
      text: gone ? 'outspan ui has ended: what is shown does not change any more.' : `No answer: ${s.error.message}.`,
      facts: gone ? 'Start it again to go on.' : '',
    }
  }
  if (s.old) {
    return {
      tone: 'bad',
      text:
        s.old.code === 'no_leader' || alone
          ? 'No leader: nothing is decided now.'
          : `No answer from the leader: ${s.old.message}.`,
      facts: `This is what one server knows. It heard a leader ${span(s.staleFor)} before it was asked.`,
    }
  }
  const n = d.nodes,
    of = `${number(n.active || 0)} of ${count(n.total || 0, 'node')} active`
  const ready = d.instances.ready || 0
  const wanted = Object.entries(d.instances).reduce((sum, [k, v]) => (k === 'total' ? sum : sum + Number(v)), 0)
  const work = d.drains.length ? ` ${count(d.drains.length, 'drain')} ${d.drains.length === 1 ? 'runs' : 'run'}.` : ''
  const facts = `${of}, ${number(ready)} of ${count(wanted, 'instance')} ready.${work}`
  if (d.hold.active) {
    const rest = d.problems.filter((/** @type {any} */ p) => p.code !== 'hold').length
    return {
      tone: 'bad',
      text: holdSentence(d),
      facts: `As last heard, ${facts}${rest > 0 ? ` ${count(rest, 'more problem')}.` : ''}`,
    }
  }
  if (d.problems.length) {
    const first = d.problems.length > 1 ? '. The first' : ''
    return { tone: 'warn', text: `${count(d.problems.length, 'problem')}${first}: ${brief(d.problems[0])}.`, facts }
  }
  if (!n.total)
    return {
      tone: 'idle',
      text:
        'No node has joined yet. Add one with the line that outspan up printed, or: ' +
        'outspan token create --role agent.',
    }
  return { tone: d.drains.length || ready < wanted ? 'move' : 'ok', text: 'No problems.', facts }
}

/** @param {any} p a problem in one phrase, without codes */
function brief(p) {
  const message = p.message.replace(/\b[a-z]+(?:_[a-z]+)+(?::[a-z_]+)?: /g, '')
  return p.subject === 'cluster' || message.includes(p.subject.split('/')[1])
    ? message
    : `${nameOf(p.subject)}: ${message}`
}

const shapes = {
  ok: ['node', 'active'],
  move: ['node', 'draining'],
  warn: ['node', 'degraded'],
  bad: ['node', 'offline'],
  idle: ['node', 'cordoned'],
}

export function Health() {
  const h = healthOf(status.state.value)
  const [kind, state] = shapes[h.tone]
  return html`<p class="sentence ${h.tone}">
    <${Mark} kind=${kind} state=${state} bare /><span><strong>${h.text}</strong> ${h.facts}</span>
  </p>`
}

/** How old the oldest part of the screen is. What hardly ever changes does not count. */
export function Age() {
  const all = shown.value
    .filter(r => !r.how.slow)
    .map(r => r.state.value)
    .filter(s => s.at > 0)
  if (all.length === 0) return null
  const at = Math.min(...all.map(asOf)),
    age = now.value - at,
    d = status.state.value.data
  const live = age < LATE && all.every(s => !s.error && !s.old)
  return html`<p class="age ${live ? '' : 'late'}" title=${d && `index ${d.index} of ${d.leader || 'no leader'}`}>
    ${live
      ? html`live, read ${age < 1500 ? 'just now' : `${span(age)} ago`}`
      : html`as of ${stamp(new Date(at).toISOString())}, ${span(age)} ago`}
  </p>`
}
