// What the page waits for: time, a tab that is shown, and room for a connection.

const STREAMS = 2 // how many logs are followed at once, in all tabs: a browser opens six connections to one server

/**
 * Waits, or until it is over.
 * @param {number} ms
 * @param {AbortSignal} over
 */
export function pause(ms, over) {
  return new Promise(done => {
    const end = () => {
      clearTimeout(timer)
      over.removeEventListener('abort', end)
      done(undefined)
    }
    const timer = setTimeout(end, ms)
    over.addEventListener('abort', end)
  })
}

/**
 * Runs a stream, if few enough of them run in all tabs.
 * @param {() => Promise<void>} run
 * @returns {Promise<boolean>} false: too many run
 */
export async function streaming(run) {
  for (let i = 0; i < STREAMS; i++) {
    const ran = await navigator.locks.request(`outspan-stream-${i}`, { ifAvailable: true }, async lock => {
      if (lock) await run()
      return !!lock
    })
    if (ran) return true
  }
  return false
}

/**
 * Waits until the tab is shown. A hidden tab asks nothing.
 * @param {AbortSignal} over
 */
export function visible(over) {
  if (!document.hidden) return
  return new Promise(done => {
    const look = () => {
      if (document.hidden && !over.aborted) return
      document.removeEventListener('visibilitychange', look)
      over.removeEventListener('abort', look)
      done(undefined)
    }
    document.addEventListener('visibilitychange', look)
    over.addEventListener('abort', look)
  })
}
