// What the page uses of this library, for tsc. Written by hand.
export function useState<T>(first: T | (() => T)): [T, (next: T | ((before: T) => T)) => void]
export function useEffect(run: () => void | (() => void), on?: any[]): void
export function useLayoutEffect(run: () => void | (() => void), on?: any[]): void
export function useErrorBoundary(): [any, () => void]
export function useMemo<T>(make: () => T, on: any[]): T
export function useRef<T>(first: T): { current: T }
