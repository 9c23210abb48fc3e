// The map of a large fleet, by rack, with what is known of the selected node at its right.
import { html, useEffect, useMemo, useRef, useState } from './lib.js'
import { may, useResource } from './store.js'
import { counts, draw, live, stream, streamTime } from './stream.js'
import { INSTANCE, NODE, STATE, nodeStates, observedStates } from './frames.js'
import { Painter } from './mapdraw.js'
import { bytes, count, linkTo, number, quoted, span, stamp } from './format.js'
import { Bar, Command, Mark } from './parts.js'

const LEAST = 24 // nodes; fewer are better seen one by one
const NARROW = 700 // CSS pixels of the window, below which there is no map
const SIZED = 100 // ms after which another size of the window counts
const LAID = 300 // ms after which nodes that came or went get their places

/** The classes of jobs, in the order of their colours. */
const classes = ['production', 'batch', 'critical', 'system', 'other']

/** @typedef {import('./frames.js').Picture} Picture */
/**
 * @typedef {{ name: string, state: string, address: string, reason: string, labels: Record<string, string>,
 *   attributes: Record<string, string> }} Known
 */

const names = new Intl.Collator('en', { numeric: true })
const rackOf = (/** @type {Known} */ n) => n.labels.rack || n.labels.zone || ''

/**
 * Whether the fleet is shown as a map: it is large, the window is wide, and the stream brings its rows.
 * @returns {boolean}
 */
export function useMapped() {
  const [wide, setWide] = useState(innerWidth >= NARROW)
  useEffect(() => {
    let timer = 0
    const look = () => {
      clearTimeout(timer)
      timer = setTimeout(() => setWide(innerWidth >= NARROW), SIZED)
    }
    addEventListener('resize', look)
    return () => {
      clearTimeout(timer)
      removeEventListener('resize', look)
    }
  }, [])
  return wide && (counts.value?.nodes.total || 0) + (counts.value?.hidden_nodes || 0) >= LEAST
}

/**
 * @param {{ matches: (n: Known) => boolean, by: string }} p matches: what the filter leaves; by: changes whenever that
 * does
 */
export function FleetMap({ matches, by }) {
  const list = useResource(
    may('node.read') ? '/v1/nodes' : '/v1/auth/whoami',
    may('node.read') ? { fields: 'name,labels' } : {},
    { slow: true },
  )
  const jobs = useResource(
    may('job.read') ? '/v1/jobs' : '/v1/auth/whoami',
    may('job.read') ? { fields: 'name,class' } : {},
    { slow: true },
  )
  const labels = useMemo(
    () => new Map((list.data?.items || []).map((/** @type {any} */ n) => [n.name, n.labels])),
    [list.data],
  )
  const classOf = useMemo(
    () =>
      new Map(
        (jobs.data?.items || []).map((/** @type {any} */ j) => [
          j.name,
          Math.max(0, classes.includes(j.class) ? classes.indexOf(j.class) : 4),
        ]),
      ),
    [jobs.data],
  )
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null)),
    box = useRef(/** @type {HTMLElement | null} */ (null))
  const painter = useRef(/** @type {Painter | null} */ (null))
  const [picture, setPicture] = useState(/** @type {Picture | null} */ (null))
  const [laid, setLaid] = useState({ cell: 0, smallest: true, largest: false, of: 0 })
  const [width, setWidth] = useState(0),
    [zoom, setZoom] = useState(0),
    [set, setSet] = useState(0),
    [below, setBelow] = useState(0),
    [, setTicks] = useState(0)
  const [name, select] = useState(new URLSearchParams(location.hash.split('?')[1]).get('node') || '')
  const picked = useRef(-1)
  const handle =
    picture?.nodes.names && name
      ? picture.nodes.names.findIndex((n, h) => n === name && picture.nodes.columns[STATE][h] > 0)
      : -1
  picked.current = handle

  useEffect(() => {
    const p = (painter.current = new Painter(/** @type {HTMLCanvasElement} */ (canvas.current)))
    let late = 0
    const again = () => {
      late ||= setTimeout(() => {
        late = 0
        setSet(n => n + 1)
      }, LAID)
    }
    const stop = draw({
      replaced: one => {
        p.show(one)
        setPicture(one)
        setSet(n => n + 1)
      },
      changed: (one, dirty) => {
        // A node that came, went or got another name needs a new layout.
        if (dirty.nodes.some(h => one.nodes.columns[STATE][h] > 0 !== p.at[2 * h] >= 0)) again()
        p.change(dirty)
        if (
          dirty.nodes.includes(picked.current) ||
          dirty.instances.some(
            (h, i) =>
              one.instances.columns[INSTANCE.node][h] === picked.current || dirty.left[2 * i] === picked.current,
          )
        )
          setTicks(n => n + 1)
      },
    })
    let timer = 0
    const sized = new ResizeObserver(([e]) => {
      clearTimeout(timer)
      timer = setTimeout(() => setWidth(Math.floor(e.contentRect.width)), p.cell ? SIZED : 0)
    })
    sized.observe(/** @type {HTMLElement} */ (box.current))
    const looks = ['(prefers-color-scheme: dark)', '(forced-colors: active)'].map(q => matchMedia(q)),
      colour = () => {
        p.colour()
        p.drawAll()
      }
    looks.forEach(q => q.addEventListener('change', colour))
    return () => {
      stop()
      p.end()
      sized.disconnect()
      looks.forEach(q => q.removeEventListener('change', colour))
      clearTimeout(late)
      clearTimeout(timer)
    }
  }, [])

  useEffect(() => {
    // the layout
    const p = painter.current
    if (!p || !picture || !width) return
    /** @type {Map<string, number[]>} */
    const racks = new Map()
    for (let h = 0; h < picture.nodes.length; h++) {
      if (!picture.nodes.columns[STATE][h]) continue
      const rack = rackOf(known(picture, h, labels)),
        of = racks.get(rack)
      if (of) of.push(h)
      else racks.set(rack, [h])
    }
    const text = /** @type {string[]} */ (picture.nodes.names)
    for (const of of racks.values()) of.sort((a, b) => names.compare(text[a], text[b]))
    p.dim = h => !matches(known(picture, h, labels))
    p.classOf = group => classOf.get(picture.groups.names?.[group].split('/')[0] || '') || 0
    const sorted = [...racks].sort(([a], [b]) => Number(a === '') - Number(b === '') || names.compare(a, b))
    setLaid({ ...p.layOut(sorted, width, Math.max(240, innerHeight - 260), zoom), of: p.racks.length })
  }, [picture, width, labels, zoom, set])

  useEffect(() => {
    // the filter, and the classes
    const p = painter.current
    if (!p || !picture || !laid.of) return
    p.dim = h => !matches(known(picture, h, labels))
    p.classOf = group => classOf.get(picture.groups.names?.[group].split('/')[0] || '') || 0
    p.drawAll()
  }, [by, classOf])

  /** @param {number} h */
  const pick = h => {
    if (!picture || h < 0) return
    const to = /** @type {string[]} */ (picture.nodes.names)[h]
    select(to)
    const [path, query] = location.hash.split('?'),
      q = new URLSearchParams(query)
    q.set('node', to)
    history.replaceState(null, '', `${path || '#/fleet'}?${q}`)
  }
  const spot = (/** @type {any} */ e) => painter.current?.nodeAt(e.offsetX, e.offsetY) ?? -1
  /** @param {KeyboardEvent} e */
  const key = e => {
    const p = painter.current,
      to = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key]
    if (e.key === 'Enter' && handle >= 0) location.hash = linkTo('node/' + name)
    if (!to || !p || !p.racks[0]) return
    e.preventDefault()
    pick(handle < 0 ? p.racks[0].handles[0] : p.next(handle, to[0], to[1]))
  }
  const look = () => {
    const view = box.current?.parentElement,
      end = view ? view.scrollTop + view.clientHeight - 16 : 0
    setBelow(painter.current?.racks.filter(r => r.y + r.rows * laid.cell > end).length || 0)
  }
  useEffect(look, [laid])
  const at = handle >= 0 ? painter.current?.placeOf(handle) : null
  useEffect(() => {
    const view = box.current?.parentElement
    if (!at || !view) return
    const top = at[1],
      end = top + laid.cell
    if (top < view.scrollTop) view.scrollTop = Math.max(0, top - 32)
    else if (end > view.scrollTop + view.clientHeight) view.scrollTop = end - view.clientHeight + 48
  }, [handle])
  return html`<div class="fleet">
    <div class="fleetmap">
      <div class="mapview" onScroll=${look}>
        <div
          class="mapbox"
          ref=${box}
          tabindex="0"
          role="application"
          aria-label="Map of the nodes by rack. Arrow keys select one. The list below has the same."
          onKeyDown=${key}
        >
          <canvas
            ref=${canvas}
            style=${{ width: `${width}px`, height: `${painter.current?.height || 240}px` }}
            onClick=${(/** @type {any} */ e) => pick(spot(e))}
            onDblClick=${() => {
              if (handle >= 0) location.hash = linkTo('node/' + name)
            }}
            onPointerMove=${(/** @type {any} */ e) => {
              const h = spot(e)
              e.target.title = h < 0 ? '' : picture?.nodes.names?.[h] || ''
            }}
          ></canvas>
          <div class="racks" aria-hidden="true">
            ${painter.current?.racks.map(
              r =>
                html`<span
                  key=${r.name}
                  style=${{ left: `${r.x}px`, top: `${r.y - 17}px`, width: `${r.wide * laid.cell}px` }}
                  title=${r.name}
                  >${r.name || 'no rack'}</span
                >`,
            )}
          </div>
          ${at &&
          html`<i
            class="picked"
            style=${{
              left: `${at[0] - 3}px`,
              top: `${at[1] - 3}px`,
              width: `${laid.cell + 4}px`,
              height: `${laid.cell + 4}px`,
            }}
          ></i>`}
        </div>
      </div>
      ${below > 0 &&
      html`<button
        type="button"
        class="below"
        onClick=${() => box.current?.parentElement?.scrollBy(0, innerHeight / 3)}
      >
        ↓ below: the rest of ${count(below, 'rack')}
      </button>`}
      <div class="maptools">
        <${Legend} inside=${laid.cell >= 12} /><span class="zoom"
          ><button
            type="button"
            aria-label="smaller cells"
            disabled=${laid.smallest}
            onClick=${() => setZoom(Math.max(0, zoom - 2))}
          >
            −</button
          ><button type="button" aria-label="larger cells" disabled=${laid.largest} onClick=${() => setZoom(zoom + 2)}>
            +
          </button></span
        >
      </div>
      <${Stale} />
    </div>
    <aside class="inspector" aria-live="polite" aria-label="The selected node">
      ${handle >= 0 && picture && painter.current
        ? html`<${Inspector} p=${picture} h=${handle} labels=${labels} on=${painter.current.instancesOn(handle)} />`
        : html`<p class="dim">
            ${name ? `There is no node ${name}.` : 'Select a node: by a click, or with the arrow keys.'}
          </p>`}
    </aside>
  </div>`
}

/**
 * What the filter looks at.
 * @param {Picture} p @param {number} h @param {Map<string, any>} labels
 * @returns {Known}
 */
function known(p, h, labels) {
  const name = p.nodes.names?.[h] || ''
  return {
    name,
    state: nodeStates[p.nodes.columns[STATE][h]],
    address: '',
    reason: '',
    labels: labels.get(name) || {},
    attributes: {},
  }
}

/** Says that the map does not show the present state, and why. */
function Stale() {
  const s = stream.value,
    time = streamTime()
  if (live() && !s.alone && s.age >= 0 && s.age < 15000) return null
  const why =
    s.course === 'live'
      ? s.alone
        ? 'this server knows no leader'
        : s.age < 0
          ? 'a new picture arrives'
          : 'this server is behind'
      : s.message || 'the stream is opened again'
  return html`<p class="note bad">
    ${time
      ? `The map is as of ${stamp(new Date(time).toISOString())}, ${span(Date.now() - time)} ago`
      : 'The map is of an unknown age'}:${' '}
    ${why}.
  </p>`
}

/** @param {{ p: Picture, h: number, labels: Map<string, any>, on: number[] }} p */
function Inspector({ p, h, labels, on }) {
  const row = (/** @type {number} */ c) => p.nodes.columns[c][h],
    name = p.nodes.names?.[h] || '',
    state = nodeStates[row(STATE)]
  const rack = rackOf(known(p, h, labels)),
    { columns } = p.instances
  /** @type {Map<string, Map<string, number>>} */
  const groups = new Map()
  for (const i of on) {
    const group = p.groups.names?.[columns[INSTANCE.group][i]] || '',
      seen = columns[STATE][i]
    const word = seen & 0x30 && (seen & 15) < 5 ? 'draining' : observedStates[seen & 15]
    const of = groups.get(group) || new Map()
    groups.set(group, of.set(word, (of.get(word) || 0) + 1))
  }
  if (state === 'named')
    return html`<h2>${name}</h2>
      <p class="dim">You may see its name, and ${count(on.length, 'instance')} of it.</p>`
  return html`<h2><a href=${linkTo('node/' + name)}>${name}</a> <${Mark} kind="node" state=${state} /></h2>
    <dl>
      <dt>memory allocated</dt>
      <dd>
        <${Bar}
          load
          part=${row(NODE.memoryPlaced)}
          whole=${row(NODE.memory)}
          text=${`${bytes(row(NODE.memoryPlaced) * 2 ** 20)} of ${bytes(row(NODE.memory) * 2 ** 20)}`}
        />
      </dd>
      <dt>CPU shares allocated</dt>
      <dd>
        <${Bar}
          load
          part=${row(NODE.cpuPlaced)}
          whole=${row(NODE.cpu)}
          text=${`${number(row(NODE.cpuPlaced))} of ${number(row(NODE.cpu))}`}
        />
      </dd>
      <dt>rack</dt>
      <dd>${rack || 'none'}</dd>
    </dl>
    <h3>${count(row(NODE.instances), 'instance')}${on.length < row(NODE.instances) ? `, ${on.length} shown` : ''}</h3>
    <ul>
      ${[...groups]
        .sort(([a], [b]) => names.compare(a, b))
        .map(
          ([group, of]) =>
            html`<li key=${group}>
              <a href=${linkTo('group/' + group)}>${group}</a>
              <span
                >${[...of].map(
                  ([word, n]) =>
                    html`<span class="few"><${Mark} kind="instance" state=${word} />${n > 1 ? ` ${n}` : ''}</span>`,
                )}</span
              >
            </li>`,
        )}
    </ul>
    <p><${Command} text="outspan node status ${quoted(name)}" /></p>`
}

/** What shapes and colours mean. @param {{ inside: boolean }} p */
function Legend({ inside }) {
  return html`<ul class="legend" aria-label="Legend">
    <li>
      <span class="ramp" aria-hidden="true"
        ><i class="l0"></i><i class="l1"></i><i class="l2"></i><i class="l3"></i><i class="l4"></i></span
      >${' '} allocated, the larger of CPU and memory
    </li>
    <li><i class="key hatched" aria-hidden="true"></i> draining</li>
    <li><i class="key hollow" aria-hidden="true"></i> cordoned</li>
    <li><i class="key square" aria-hidden="true"></i> disabled</li>
    <li><i class="key corner" aria-hidden="true"></i> degraded</li>
    <li><i class="key dashed" aria-hidden="true"></i> unreachable</li>
    <li><i class="key cross" aria-hidden="true"></i> offline</li>
    ${inside &&
    html`${classes.slice(0, 4).map((c, i) => html`<li><i class="key c${i}" aria-hidden="true"></i> ${c}</li>`)}
      <li class="dim">solid ready, hollow starting, hatched leaving, corner unready, cross failed</li>`}
  </ul>`
}
