//! The exchange with the broker, by one thread; every interleaving: `loom_exchange.rs`.
#![cfg(not(loom))]

use uzswap_io::exchange::{Exchange, Op, Request};

const READ: Request = Request {
    op: Op::Read,
    offset: 0,
    len: 4096,
};

fn new_exchange() -> Box<Exchange> {
    let mut memory = Box::<Exchange>::new_uninit();
    // SAFETY: zeroes are an exchange, which is too large for a stack.
    unsafe {
        memory.as_mut_ptr().write_bytes(0, 1);
        memory.assume_init()
    }
}

/// A thread that dies by the exec(2) of another leaves its number to that one.
#[test]
fn what_a_number_had_before_an_exec_is_given_up() {
    let exchange = new_exchange();
    let [_claimed, submitted, taken, done, _others] =
        [7, 7, 7, 7, 8].map(|owner| exchange.claim(owner).expect("free"));
    exchange.submit([(done, READ)].into_iter());
    exchange.take(1, false, |taken| {
        exchange.complete(taken, 0);
    });
    exchange.submit([(taken, READ)].into_iter());
    let mut under_way = None;
    exchange.take(1, false, |taken| under_way = Some(taken));
    exchange.submit([(submitted, READ)].into_iter());
    exchange.disown(7);
    // The broker finds what it has and what it may take abandoned, and frees them.
    assert!(!exchange.complete(under_way.expect("taken"), 0));
    assert_eq!(exchange.take(8, false, |_| {}), 0);
    let free = std::iter::from_fn(|| exchange.claim(9)).count();
    assert_eq!(
        free,
        uzswap_io::exchange::NR_CELLS - 1,
        "all but the other thread's"
    );
}
