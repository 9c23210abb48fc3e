// Two job specs compared key by key, as outspan job plan does.
import { html } from './lib.js'

/** @typedef {{ op: 'add' | 'remove' | 'change', path: string, before?: any, after?: any }} Difference */

/**
 * Adds the simple values of a spec to a map, by their paths such as groups.http.update.max_surge.
 * @param {Map<string, any>} into
 * @param {string} path
 * @param {any} v
 */
function flatten(into, path, v) {
  const at = (/** @type {string} */ key) => (path ? path + '.' + key : key)
  if (Array.isArray(v)) {
    if (v.some(inner => inner === null || typeof inner !== 'object')) into.set(path, JSON.stringify(v))
    else v.forEach((inner, i) => flatten(into, at(typeof inner.name === 'string' ? inner.name : String(i)), inner))
  } else if (v && typeof v === 'object') {
    for (const [key, inner] of Object.entries(v)) flatten(into, at(key), inner)
  } else if (v !== null && v !== undefined && v !== '') into.set(path, v)
}

/**
 * What differs between two expanded specs. Parts with names, such as groups, are matched by name.
 * @param {any} before null: everything is added
 * @param {any} after
 * @returns {Difference[]} in order of path
 */
export function diffSpecs(before, after) {
  const old = new Map(),
    now = new Map()
  if (before) flatten(old, '', before)
  flatten(now, '', after)
  const diff = /** @type {Difference[]} */ ([])
  for (const path of [...new Set([...old.keys(), ...now.keys()])].sort()) {
    if (!now.has(path)) diff.push({ op: 'remove', path, before: old.get(path) })
    else if (!old.has(path)) diff.push({ op: 'add', path, after: now.get(path) })
    else if (String(old.get(path)) !== String(now.get(path)))
      diff.push({ op: 'change', path, before: old.get(path), after: now.get(path) })
  }
  return diff
}

/**
 * A spec with the images that a plan found, as outspan job run submits it.
 * @param {any} spec
 * @param {any[]} images
 */
export const pinned = (spec, images) => ({
  ...spec,
  groups: spec.groups.map((/** @type {any} */ g) => {
    const image = images.find(i => i.group === `${spec.name}/${g.name}`)
    return image && g.container
      ? { ...g, container: { ...g.container, image: `${image.image}@${image.digest}`, platforms: image.platforms } }
      : g
  }),
})

/** @param {Difference} d in a few words */
export const brief = d => {
  const path = d.path.replace(/^groups\./, '')
  return d.op === 'add'
    ? `${path} added: ${d.after}`
    : d.op === 'remove'
      ? `${path} removed`
      : `${path}: ${d.before} → ${d.after}`
}

const ops = { add: ['+', 'added'], remove: ['−', 'removed'], change: ['~', 'changed'] }
const MOST = 60 // lines that are shown at first

/** @param {{ of: Difference[] }} p */
export const Diff = ({ of }) => {
  const rows = (/** @type {Difference[]} */ some) =>
    html`<ul class="diff">
      ${some.map(
        d =>
          html`<li class=${d.op} key=${d.path}>
            <span class="op"><b aria-hidden="true">${ops[d.op][0]}</b> ${ops[d.op][1]}</span
            ><span
              ><code>${d.path}</code> ${d.op !== 'add' && html`<del>${String(d.before)}</del> `}${d.op === 'change' &&
              html`<span class="dim">→ </span>`}${d.op !== 'remove' && html`<ins>${String(d.after)}</ins>`}</span
            >
          </li>`,
      )}
    </ul>`
  return html`${rows(of.slice(0, MOST))}${of.length > MOST &&
  html`<details>
    <summary>${of.length - MOST} more</summary>
    ${rows(of.slice(MOST))}
  </details>`}`
}
