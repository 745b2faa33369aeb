//! The committed inputs of every fuzz target hold to what the target looks for: what was once found
//! stays mended. Inputs made at random come with them, so that this says something by itself.

use std::fs;
use std::path::{Path, PathBuf};

use uzswap_fuzz::TARGETS;

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|why| panic!("{}: {why}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    files
}

#[test]
fn every_committed_input_holds() {
    for (name, property) in TARGETS {
        let inputs = files(&here().join("corpus").join(name));
        assert!(!inputs.is_empty(), "no inputs for {name}");
        for path in &inputs {
            // What fails is named by the last line before.
            println!("{}", path.display());
            property(&fs::read(path).expect("an input"));
        }
        property(&[]);
    }
}

#[test]
fn each_target_has_a_program_of_its_own() {
    let programs: Vec<String> = files(&here().join("targets"))
        .iter()
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
        .collect();
    let mut names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(programs, names);
}

/// Committed inputs with some bytes changed: the fuzzer's first steps, the same in each run.
#[test]
fn what_is_near_to_them_holds_too() {
    const NEAR: u64 = 64;
    let mut state = 0x5eed_u64;
    let mut random = |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % end
    };
    for (name, property) in TARGETS {
        let inputs = files(&here().join("corpus").join(name));
        for nr in 0..NEAR {
            let path = &inputs[random(inputs.len())];
            let mut input = fs::read(path).expect("an input");
            for _ in 0..=random(4) {
                if !input.is_empty() {
                    let at = random(input.len());
                    input[at] = random(256) as u8;
                }
            }
            println!("{}, {nr}", path.display());
            property(&input);
        }
    }
}
