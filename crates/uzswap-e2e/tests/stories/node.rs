//! node: objects, maps, JSON, typed arrays, buffers and worker threads, with the same output.

use uzswap_e2e::{Job, MIB, Scratch, find_or_skip};

const STORY: &str = r#"
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const fs = require('fs');
const digest = (x) => crypto.createHash('sha256').update(x).digest('hex').slice(0, 12);

function records(n, from) {
  const all = [];
  for (let i = from; i < from + n; i++)
    all.push({ id: i, name: `record number ${i}`, tags: [`tag ${i % 7}`, `tag ${i % 11}`], score: i * 1.5,
               text: `line ${i}: ` + 'leave at the door and ring twice, '.repeat(4) });
  return all;
}

if (!isMainThread) {
  const mine = records(40000, workerData * 1000000);
  parentPort.postMessage(digest(JSON.stringify(mine)));
} else {
  (async () => {
    const all = records(250000, 0);
    const byName = new Map(all.map((r) => [r.name, r]));
    console.log('records', all.length, byName.get('record number 77777').id);
    const lines = all.filter((r) => r.id % 3 === 0).map((r) => JSON.stringify(r));
    console.log('json', digest(lines.join('\n')));
    const back = lines.filter((_, i) => i % 5 === 0).map((l) => JSON.parse(l));
    console.log('back', back.length, back.every((r) => byName.get(r.name).text === r.text));
    const table = new Float64Array(8 << 20);
    for (let i = 0; i < table.length; i++) table[i] = i % 1000;
    console.log('table', table.reduce((a, b) => a + b, 0));
    const buffers = [];
    for (let i = 0; i < 2000; i++) buffers.push(Buffer.alloc(20000, `buffer ${i};`));
    console.log('buffers', digest(Buffer.concat(buffers)));
    fs.writeFileSync(process.argv[2], Buffer.concat(buffers));
    console.log('file', digest(fs.readFileSync(process.argv[2])));
    const answers = await Promise.all([0, 1, 2].map((n) => new Promise((done, failed) => {
      const w = new Worker(__filename, { workerData: n });
      w.on('message', done); w.on('error', failed);
    })));
    console.log('workers', answers.join(' '));
    let x = 12345, found = 0;
    for (let i = 0; i < 200000; i++) {
      x = (x * 1103515245 + 12345) % 2147483648;
      const r = all[x % all.length];
      if (byName.get(`record number ${r.id}`) === r && r.text.startsWith(`line ${r.id}:`)) found++;
    }
    console.log('found', found);
    for (const r of all) if (r.id % 2) { byName.delete(r.name); }
    all.length = 100000;
    console.log('left', byName.size, all.length, digest(JSON.stringify(all.slice(0, 1000))));
  })();
}
"#;

#[test]
fn objects_buffers_and_workers() {
    let Some(node) = find_or_skip("node", "nodejs") else {
        return;
    };
    let scratch = Scratch::new();
    let job = Job::new(node)
        .arg(scratch.write("story.js", STORY))
        .arg(scratch.write("out", ""));
    let native = job.native().expect_success("the story alone");
    // JavaScript's objects are mostly pointers: lz4 does not compress them to a quarter.
    // node itself is a file of 95 MiB, and its compiled code is not managed.
    job.option("--compressor", "zstd")
        .same_in_a_quarter_of(&native, 180 * MIB, |_| {});
}
