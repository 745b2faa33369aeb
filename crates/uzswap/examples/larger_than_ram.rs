//! Sorts four times as many numbers as its limit of RAM has room for.
//! `cargo run --release -p uzswap --example larger_than_ram`

use allocator_api2::vec::Vec;
use uzswap::Pool;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::builder().limit(16 << 20).build()?;
    let mut numbers: Vec<u64, &Pool> = Vec::new_in(&pool);
    let mut x = 1_u64;
    numbers.extend((0..8 << 20).map(|_| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        x >> 40
    }));
    numbers.sort_unstable();
    assert!(numbers.is_sorted());
    println!("{}", pool.stats());
    Ok(())
}
