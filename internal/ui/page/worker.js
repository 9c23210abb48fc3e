// The worker that all tabs of the page share. It holds their only stream.
import { Hub } from './hub.js'

const hub = new Hub()
addEventListener('connect', e => hub.connect(/** @type {MessageEvent} */ (e).ports[0]))
