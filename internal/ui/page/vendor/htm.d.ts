// What the page uses of this library, for tsc. Written by hand.
declare const htm: { bind(h: any): (text: TemplateStringsArray, ...values: any[]) => any }
export default htm
