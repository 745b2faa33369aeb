// A job of about 470 MiB for node: records that are made, indexed, looked up at random, written as JSON and read again.
//
//     node examples/records.js [RECORDS]                          # 500000
//     uzswap run --ram 160M -- node examples/records.js           # the same output
const count = Number(process.argv[2] || 500000);

const random = ((state) => (below) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return state % below;
})(1);

const records = [];
for (let id = 0; id < count; id++) {
  records.push({
    id,
    name: `record number ${id} of ${id % 977}`,
    tags: ['paid', 'city-' + (id % 89), 'good-' + (id % 23)],
    at: { day: id % 365, cents: 100 + ((id * 7919) % 90000) },
  });
}

const byName = new Map(records.map((record) => [record.name, record]));
const byCity = new Map();
for (const record of records) {
  const city = record.tags[1];
  if (!byCity.has(city)) byCity.set(city, []);
  byCity.get(city).push(record);
}

let sum = 0;
for (let i = 0; i < count * 2; i++) {
  const id = random(count);
  sum += byName.get(`record number ${id} of ${id % 977}`).at.cents;
}
console.log('looked up', sum);

let bytes = 0;
for (let from = 0; from < count; from += 50000) {
  const text = JSON.stringify(records.slice(from, from + 50000));
  const again = JSON.parse(text);
  bytes += text.length;
  if (again[0].id !== from) throw new Error(`record ${from} came back as ${again[0].id}`);
}
console.log('written and read', bytes);

const cities = [...byCity].map(([city, all]) => [city, all.reduce((sum, r) => sum + r.at.cents, 0)]);
cities.sort((a, b) => b[1] - a[1]);
console.log('largest', cities.slice(0, 3));
