// What the page uses of this library, for tsc. Written by hand.
export type VNode = object | string | number | null
export function h(type: any, props: any, ...children: any[]): VNode
export function render(node: any, into: Element): void
