//! A key-value store that holds four times its memory, and serves several clients while it does: of
//! twenty requests one is an update, of any key.
//! `cargo run --release -p uzswap --example key_value_store [MIB [CLIENTS]]`

use std::sync::RwLock;
use std::time::{Duration, Instant};

use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};
use uzswap::Pool;

type Value<'a> = Vec<u8, &'a Pool>;
type Shard<'a> = RwLock<HashMap<u64, Value<'a>, DefaultHashBuilder, &'a Pool>>;
const SHARDS: u64 = 64;
const REQUESTS: u64 = 20_000;

fn value(key: u64, version: u64, pool: &Pool) -> Value<'_> {
    let mut value = Vec::with_capacity_in(1000, pool);
    for field in 0..25 {
        let number = key * field % 9973 + version;
        value.extend_from_slice(format!("field{field:02}={number:>10}; ").as_bytes());
    }
    value
}

/// Makes a request; whether it was an update, and how long it took.
fn request<'a>(n: u64, keys: u64, shards: &[Shard<'a>], pool: &'a Pool) -> (bool, Duration) {
    let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
    let shard = &shards[usize::try_from(key % SHARDS).unwrap_or(0)];
    let (began, is_update) = (Instant::now(), n.is_multiple_of(20));
    if is_update {
        let new = value(key, n % 10, pool);
        shard.write().unwrap().insert(key, new);
    } else {
        assert!(shard.read().unwrap()[&key].starts_with(b"field00=         "));
    }
    (is_update, began.elapsed())
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args().skip(1).map_while(|n| n.parse().ok());
    let (limit, clients) = (
        numbers.next().unwrap_or(16) << 20,
        numbers.next().unwrap_or(4),
    );
    let pool = Pool::builder().limit(limit).compressor("zstd").build()?;
    let new_shard = |_| RwLock::new(HashMap::new_in(&pool));
    let shards: std::vec::Vec<Shard<'_>> = (0..SHARDS).map(new_shard).collect();
    let keys = 4 * limit / 1000;
    for key in 0..keys {
        let shard = &shards[usize::try_from(key % SHARDS)?];
        shard.write().unwrap().insert(key, value(key, 0, &pool));
    }
    println!("{keys} values: {}", pool.stats());
    let (began, shards, pool) = (Instant::now(), &shards, &pool);
    let client =
        |id: u64| (0..REQUESTS).map(move |n| request(id * REQUESTS + n, keys, shards, pool));
    let mut took: std::vec::Vec<_> = std::thread::scope(|scope| {
        let start = |id| scope.spawn(move || client(id).collect::<std::vec::Vec<_>>());
        let threads: std::vec::Vec<_> = (0..clients).map(start).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    let per_second = (clients * REQUESTS) as f64 / began.elapsed().as_secs_f64();
    println!("{clients} clients: {per_second:.0} requests a second");
    took.sort_unstable();
    let (reads, updates) = took.split_at(took.partition_point(|(is_update, _)| !is_update));
    for (what, took) in [("reads", reads), ("updates", updates)] {
        let within = |percent: usize| took[took.len() * percent / 100].1;
        println!(
            "{what}: half within {:?}, 99 % within {:?}",
            within(50),
            within(99)
        );
    }
    Ok(())
}
