#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| uzswap_fuzz::run("filters", input));
