// An image in memory, and the shapes that the map is made of.

export class Pixels {
  constructor() {
    this.image = new ImageData(1, 1)
    this.pixels = new Uint32Array(this.image.data.buffer)
  }

  /** Begins an empty image. @param {number} w @param {number} h in pixels */
  resize(w, h) {
    this.image = new ImageData(w, h)
    this.pixels = new Uint32Array(this.image.data.buffer)
  }

  /** @param {number} x @param {number} y @param {number} w @param {number} h @param {number} colour */
  fill(x, y, w, h, colour) {
    for (let row = y; row < y + h; row++)
      this.pixels.fill(colour, row * this.image.width + x, row * this.image.width + x + w)
  }

  /**
   * @param {number} x @param {number} y @param {number} w @param {number} h @param {number} line
   * @param {number} colour
   */
  frame(x, y, w, h, line, colour) {
    this.fill(x, y, w, line, colour)
    this.fill(x, y + h - line, w, line, colour)
    this.fill(x, y, line, h, colour)
    this.fill(x + w - line, y, line, h, colour)
  }

  /**
   * Diagonal lines, or a cross.
   * @param {number} x @param {number} y @param {number} w @param {number} h @param {number} line
   * @param {number} colour @param {boolean} cross
   */
  lines(x, y, w, h, line, colour, cross) {
    const every = w < 6 ? 2 : Math.max(3, 4 * line)
    for (let j = 0; j < h; j++) {
      for (let i = 0; i < w; i++) {
        const on = cross
          ? Math.abs(i - j) < line || Math.abs(i + j - w + 1) < line
          : (i + j) % every < Math.min(line, every - 1)
        if (on) this.pixels[(y + j) * this.image.width + x + i] = colour
      }
    }
  }
}

/** @param {number} a @param {number} b colours in RGB @param {number} part of b */
export function mix(a, b, part) {
  const one = (/** @type {number} */ shift) =>
    Math.round(((a >> shift) & 255) * (1 - part) + ((b >> shift) & 255) * part) << shift
  return one(16) | one(8) | one(0)
}

/** A colour as the memory of an image has it, on machines that store the lowest byte first. @param {number} c in RGB */
export const pixel = c => (0xff000000 | ((c & 255) << 16) | (c & 0xff00) | (c >> 16)) >>> 0
