//! A key-value store that holds four times its memory, and answers while it does.
//! `cargo run --release -p uzswap --example key_value_store [MIB]`

use std::time::Instant;

use allocator_api2::vec::Vec;
use hashbrown::{DefaultHashBuilder, HashMap};
use uzswap::Pool;

type Store<'a> = HashMap<u64, Vec<u8, &'a Pool>, DefaultHashBuilder, &'a Pool>;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mib = std::env::args().nth(1).and_then(|mib| mib.parse().ok());
    let limit = mib.unwrap_or(16) << 20;
    let pool = Pool::builder().limit(limit).compressor("zstd").build()?;
    let mut store = Store::new_in(&pool);
    for key in 0..(4 * limit / 1000) {
        let mut value = Vec::with_capacity_in(1000, &pool);
        for field in 0..25 {
            value.extend_from_slice(
                format!("field{field:02}={:>10}; ", key * field % 9973).as_bytes(),
            );
        }
        store.insert(key, value);
    }
    let mut nanoseconds: std::vec::Vec<u128> = (0..20_000_u64)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % store.len() as u64)
        .map(|key| {
            let began = Instant::now();
            assert!(store[&key].starts_with(b"field00=         0; field01="));
            began.elapsed().as_nanos()
        })
        .collect();
    nanoseconds.sort_unstable();
    let [p50, p99] = [10_000, 19_800].map(|n| nanoseconds[n]);
    println!("{} values: {}", store.len(), pool.stats());
    println!("p50 {p50} ns, p99 {p99} ns");
    Ok(())
}
