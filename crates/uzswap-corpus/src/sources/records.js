// Records parsed from JSON, indexed twice, with strings built up and closures kept.
let seed = 5;
const below = (n) => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % n;
const words = 'order left harbour customer blue seven window letter north paper delayed river market'.split(' ');
const text = () => Array.from({ length: 3 + below(6) }, () => words[below(words.length)]).join(' ');
const all = [];
for (let i = 0; i < 220000; i++) {
  all.push({ id: i, name: `record ${i}`, price: below(100000) / 100, tags: ['a', 'b' + (i % 7)], at: { x: below(1000), y: below(1000) }, note: text() });
}
const json = JSON.stringify(all.slice(0, 100000));
const back = JSON.parse(json);
const byName = new Map(back.map((r) => [r.name, r]));
const byTag = {};
for (const r of back) (byTag[r.tags[1]] ||= []).push(r);
const handlers = back.filter((r) => r.id % 5 === 0).map((r) => () => r.name + r.price);
const numbers = new Float64Array(1 << 20).map((_, i) => Math.round(Math.sin(i / 1000) * 1e4) / 100);
globalThis.kept = [all, json, back, byName, byTag, handlers, numbers];
process.stdin.resume();
