// What the page uses of this library, for tsc. Written by hand.
export default class uPlot {
  constructor(options: any, data: any[], into: HTMLElement)
  data: (number | null)[][]
  cursor: { idx: number | null, left: number, top: number }
  bbox: { left: number, top: number, width: number, height: number }
  ctx: CanvasRenderingContext2D
  setData(data: any[]): void
  setSize(size: { width: number, height: number }): void
  setCursor(at: { left: number, top: number }): void
  valToPos(value: number, scale: string, canvas?: boolean): number
  destroy(): void
}
