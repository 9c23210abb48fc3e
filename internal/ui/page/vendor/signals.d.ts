// What the page uses of this library, for tsc. Written by hand.
export interface Signal<T> { value: T; peek(): T }
export function signal<T>(first: T): Signal<T>
export function computed<T>(make: () => T): { readonly value: T }
