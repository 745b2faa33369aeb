//! Writes the first inputs of each target into `corpus/`: what the fuzzer would be long in finding
//! by itself. `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

use std::fs;
use std::path::Path;

use uzswap_compress::{Codec, CodecId, MAX_BLOCK, MIN_BLOCK, Workspace};

/// Memory for a workspace, aligned to 64.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

fn write(target: &str, name: &str, bytes: &[u8]) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    fs::create_dir_all(&dir).expect("a folder");
    fs::write(dir.join(name), bytes).expect("a file");
}

/// Records as programs have them: pointers, counters, zeroes, text.
fn records(len: usize) -> Vec<u8> {
    let record = |nr: u64| {
        let words = [0x5555_5560_0140 + nr % 3 * 64, nr, 0, nr * nr % 1000];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(format!("name {nr:05} of a list ").as_bytes());
        bytes
    };
    (0..).flat_map(record).take(len).collect()
}

fn compress(codec: Codec, block: &[u8]) -> Vec<u8> {
    let len = Workspace::required_size(codec, MAX_BLOCK);
    let mut memory = vec![Line([0; 64]); len.div_ceil(64)];
    // SAFETY: aligned, long enough, and used for nothing else while the workspace is.
    let workspace = unsafe { Workspace::init(memory.as_mut_ptr().cast(), len, codec, MAX_BLOCK) };
    let mut object = vec![0; 2 * MAX_BLOCK];
    let mut workspace = workspace.expect("a workspace");
    let packed = workspace.compressor.compress_stable(block, &mut object);
    object.truncate(packed.expect("room enough"));
    object
}

fn objects() {
    let codecs = "lz4 pz:1 pz:2 pz:3 zstd:1 zstd:6 deflate:1 deflate:6";
    for codec in codecs
        .split(' ')
        .map(|text| text.parse::<Codec>().expect("a codec"))
    {
        let target = match codec.id() {
            CodecId::Lz4 => "decode_lz4",
            CodecId::Pz => "decode_pz",
            CodecId::Zstd => "decode_zstd",
            CodecId::Deflate => "decode_deflate",
        };
        // The first byte chooses the length: see `LENS` in src/codecs.rs.
        for (choice, nr_pages, what) in [(0, 1, "page"), (1, 2, "block")] {
            let mut block = records(nr_pages * MIN_BLOCK);
            // Most of it zeroes, so that the object is short.
            block[400..].fill(0);
            let mut input = vec![choice, 0, 16, 0, 0];
            input.extend(compress(codec, &block));
            write(
                target,
                &format!("{what}-{}", codec.to_string().replace(':', "-")),
                &input,
            );
        }
    }
}

fn elf() {
    let mut head = vec![0_u8; 64 + 3 * 56];
    head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    head[16..20].copy_from_slice(&[2, 0, 62, 0]);
    head[32] = 64;
    head[54] = 56;
    head[56] = 3;
    let mut segment = |nr: usize, kind: u8, offset: u64, address: u64, len: u64| {
        let at = 64 + nr * 56;
        head[at] = kind;
        head[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
        head[at + 16..at + 24].copy_from_slice(&address.to_le_bytes());
        head[at + 32..at + 40].copy_from_slice(&len.to_le_bytes());
        head[at + 40..at + 48].copy_from_slice(&len.to_le_bytes());
    };
    segment(0, 3, 232, 0x40_0000, 28);
    segment(1, 4, 260, 0x40_0000, 20);
    segment(2, 2, 0x2000, 0x40_2000, 64);
    head.extend(b"/lib64/ld-linux-x86-64.so.2\0");
    head.extend(b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0\x01\x02\x03\x04");
    write("elf", "go", &head);
    head[56] = 1;
    write("elf", "dynamic", &head);
    head[64] = 1;
    write("elf", "fixed", &head);
    write("elf", "script", b"#! /bin/sh -e\necho\n");
}

fn main() {
    objects();
    elf();
    for codec in 0..11 {
        let mut input = vec![codec, 1, 0, 200, 1, 0, 0, 9, 0];
        input.extend(records(48));
        write("round_trip", &format!("records-{codec}"), &input);
    }
    let object = |len: u16| {
        let mut bytes = len.to_le_bytes().to_vec();
        bytes.extend([7; 12]);
        bytes.push(len as u8);
        bytes
    };
    for encrypted in [0, 1] {
        let mut input = vec![encrypted, 3, 4];
        input.extend([900, 4096, 16, 3000].into_iter().flat_map(object));
        input.extend([9, 0, 0, 0, 1, 200, 3, 5]);
        write("objects", &format!("four-{encrypted}"), &input);
    }
    let story: Vec<u8> = (0..400_u32).map(|nr| ((nr * nr * 7) >> 3) as u8).collect();
    write("slots", "story", &story);
    write("group", "steps", &story[..100]);
    write("filters", "calls", &story);
    write("decisions", "classes", &story[..200]);
    let told = "/dev/shm/uzswap/run-1.group#4711:/run/uzswap/libuzswap-1.so:/run/uzswap/image-1";
    write("told", "told", told.as_bytes());
    for text in [
        "zstd:-5",
        "lz4",
        "libuzswap-1.so",
        "read=eio@3+,write=short@0.5%,seed=7",
    ] {
        write(
            "told",
            text.split('=').next().unwrap_or(text),
            text.as_bytes(),
        );
    }
    let smaps = "55d000000000-55d000400000 rw-p 00000000 00:00 0 [heap]\nSize:  4096 kB\n\
        Referenced:  400 kB\nAnonymous:  800 kB\nAnonHugePages:  0 kB\nSwap:  40 kB\n";
    write("proc_files", "smaps", smaps.as_bytes());
    let machine = r#""machine":{"cpu":"c","processors":2,"memory_mib":1,"kernel":"6"}"#;
    let sample = r#""live":1,"ram_limit":9,"resident":5,"zswap":2,"metadata":1,"zswapped":3,"swapped":1,"swap_used":1,"faults":9,"refaults":3,"zswpout":5,"zswpin":3,"pswpout":1,"pswpin":1,"fault_s":0.5,"reclaim_s":0.25"#;
    let trace = format!(
        "{{\"format\":\"uzswap-trace\",\"version\":1,\"uzswap\":\"0\",\"command\":\"c\",{machine},\
         \"compressor\":\"lz4\",\"folio\":4096}}\n{{\"elapsed_s\":1.0,{sample}}}\n\
         {{\"elapsed_s\":2.5,{sample}}}\n{{\"end\":{{\"exit_status\":0,\"elapsed_s\":3.5}}}}\n"
    );
    write("reports", "trace", trace.as_bytes());
    // A rate so high that the axis above it ends at infinity.
    let soon = trace.replace(":1.0,", ":0.0,").replace("2.5,", "1e-307,");
    let steep = soon.replacen("\"faults\":9", "\"faults\":26", 2);
    let steep = steep.replacen("\"faults\":26", "\"faults\":9", 1);
    write("reports", "trace-steep", steep.as_bytes());
    let results = format!(
        "{{\"format\":\"uzswap-bench\",\"version\":1,\"uzswap\":\"0\",\"command\":\"c\",{machine},\
         \"complete\":true,\"skipped\":[\"x\"],\"suites\":[{{\"suite\":\"codecs\",\"programs\":\
         [{{\"name\":\"p\",\"pages\":9,\"same_filled\":1}}],\"rounds\":[{{\"spin_ratio\":1.0,\
         \"spin_alone_s\":0.2,\"disturbed\":false}}],\"cells\":[{{\"codec\":\"lz4\",\"block\":4096,\
         \"program\":\"p\",\"bytes\":8192,\"compressed\":900,\"packed\":1000,\"compress_us\":[4.0],\
         \"decompress_us\":[1.0]}}]}}]}}"
    );
    write("reports", "codecs", results.as_bytes());
}
