// By what the server knows a tab: the secret of outspan ui, or which sign-in at a server the tab was loaded for. The
// browser's cookie goes with each request by itself, and may be that of a later sign-in.

/** @typedef {{ secret?: string, session?: string }} Pass */

/** @param {Pass | null} pass @returns {Record<string, string>} */
export function headersOf(pass) {
  if (pass?.secret) return { 'Outspan-Page-Secret': pass.secret }
  return pass?.session ? { 'Outspan-Page-Session': pass.session } : {}
}

/** @param {Pass | null} a @param {Pass} b */
export const same = (a, b) => !!a && a.secret === b.secret && a.session === b.session
