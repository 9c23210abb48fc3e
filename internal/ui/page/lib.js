// The libraries, under the names that the rest of the page uses. Only this file imports from vendor.
import { h, render } from './vendor/preact.js'
import { useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.js'
import { signal, computed } from './vendor/signals.js'
import htm from './vendor/htm.js'

/** Makes elements from a template. Values become text or attributes, never markup. */
export const html = htm.bind(h)

export { render, useEffect, useErrorBoundary, useLayoutEffect, useMemo, useRef, useState, signal, computed }
