//! What an access to a page that is out costs: in a pool, or, with `plain`, as `uzswap run` manages
//! it.
//! `random_access pool`, and `uzswap run --ram 64M -- random_access plain`

use std::time::Instant;

const LIMIT: u64 = 64 << 20;
const PAGES: usize = (256 << 20) >> 12;
const ACCESSES: usize = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = match std::env::args().nth(1).as_deref() {
        Some("pool") => Some(uzswap::Pool::builder().limit(LIMIT).build()?),
        _ => None,
    };
    let mut region = pool
        .as_ref()
        .map(|pool| pool.map(PAGES << 12))
        .transpose()?;
    let mut plain = vec![0_u8; if region.is_none() { PAGES << 12 } else { 0 }];
    let data: &mut [u8] = region.as_deref_mut().unwrap_or(&mut plain);
    for (n, word) in data.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(n / 16 * 7919 % 100_003 + n % 16 / 8).to_le_bytes());
    }
    let (mut x, mut sum) = (1_u64, 0_u64);
    let began = Instant::now();
    for _ in 0..ACCESSES {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let page = usize::try_from(x >> 33)? % PAGES;
        sum += u64::from(data[page << 12]);
    }
    let each = began.elapsed().as_nanos() / ACCESSES as u128;
    println!("{each} ns an access ({sum})");
    if let Some(pool) = &pool {
        println!("{}", pool.stats());
    }
    Ok(())
}
