//! `uzswap-usemem`: fills memory, then reads and writes it at random and in order.

use std::process::ExitCode;

fn main() -> ExitCode {
    uzswap_usemem::main(std::env::args_os().skip(1)).into()
}
