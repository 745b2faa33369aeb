//! Random use of the address space prints the same managed as natively: `fuzz/address_space.c`
//! carries out steps that a seed determines, in all fault modes, under a limit that evicts what it
//! works on. A difference is shrunk to the steps that it takes.
//!
//! `UZSWAP_SEED=N` repeats a run, `UZSWAP_LONG=1` goes on for an hour.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uzswap_e2e::{DISK, Job, Outcome, Scratch, long_form, root_or_skip, seed, workspace};

fn modes() -> Vec<&'static str> {
    let mut modes = vec!["signal", "segv"];
    if root_or_skip("fault mode thread") {
        modes.push("thread");
    }
    modes
}

/// Steps of a seed.
const STEPS: u64 = 100;

/// How a seed is run.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// Without the C library's functions in between: every call is trapped.
    is_static: bool,
    /// A timer evicts something every millisecond.
    ticks: bool,
    /// `uzswap reclaim` evicts something all the time.
    reclaimed: bool,
    options: &'static str,
}

const PLAIN: Form = Form {
    is_static: false,
    ticks: false,
    reclaimed: false,
    options: "--ram 16M --swap none",
};

const FORMS: [Form; 7] = [
    PLAIN,
    Form {
        is_static: true,
        ..PLAIN
    },
    Form {
        options: "--ram 24M --swap none --folio 4K --background-reclaim=off",
        ..PLAIN
    },
    Form {
        ticks: true,
        options: "--ram 16M --swap none --compressor zstd",
        ..PLAIN
    },
    Form {
        options: "--ram 16M --swap /var/tmp",
        ..PLAIN
    },
    Form {
        reclaimed: true,
        options: "--ram 24M --swap /var/tmp",
        ..PLAIN
    },
    Form {
        is_static: true,
        ticks: true,
        options: "--ram 16M --swap /var/tmp",
        ..PLAIN
    },
];

/// The program in both forms.
struct Programs {
    dynamic: PathBuf,
    fixed: PathBuf,
    _scratch: [Scratch; 2],
}

impl Programs {
    fn compile() -> Programs {
        let source = workspace().join("tests/programs/fuzz/address_space.c");
        let scratch = [Scratch::new(), Scratch::new()];
        let [one, other] = &scratch;
        Programs {
            dynamic: one.compile_path(&source, &[]),
            fixed: other.compile_path(&source, &["-static"]),
            _scratch: scratch,
        }
    }

    fn of(&self, form: Form) -> &Path {
        match form.is_static {
            true => &self.fixed,
            false => &self.dynamic,
        }
    }
}

/// A seed in a form and a fault mode.
struct Case<'a> {
    program: &'a Path,
    form: Form,
    mode: &'a str,
    seed: u64,
}

impl Case<'_> {
    fn job(&self, steps: &[u64]) -> Job {
        let list: Vec<String> = steps.iter().map(u64::to_string).collect();
        let mut job = Job::new(self.program)
            .args([self.seed.to_string(), STEPS.to_string(), list.join(",")])
            .options(self.form.options)
            .option("--fault-mode", self.mode)
            .timeout(Duration::from_secs(300));
        if self.form.ticks {
            job = job.env("UZSWAP_FUZZ_TICKS", "1");
        }
        job
    }

    fn managed(&self, job: &Job) -> Outcome {
        if !self.form.reclaimed {
            return job.managed();
        }
        let live = job.start_managed();
        // It may have ended meanwhile.
        for _ in 0..5 {
            let _ = live.uzswap("reclaim", &["2M"]);
        }
        live.wait()
    }

    /// What differs with these steps, if anything.
    fn difference(&self, steps: &[u64]) -> Option<String> {
        let job = self.job(steps);
        let (native, managed) = (job.native(), self.managed(&job));
        assert_eq!(native.status, 0, "{self}: alone: {}", native.stderr);
        if managed.status == 0 && managed.stdout == native.stdout {
            return None;
        }
        let (native, text) = (native.text(), managed.text());
        let (mut ours, mut before) = (text.lines(), "");
        let mut theirs = native.lines();
        loop {
            let (a, b) = (theirs.next(), ours.next());
            if a != b || a.is_none() {
                let (a, b) = (a.unwrap_or("(end)"), b.unwrap_or("(end)"));
                return Some(format!(
                    "after   {before}\nnative  {a}\nmanaged {b}\nstatus {}\n{}",
                    managed.status, managed.stderr
                ));
            }
            before = a.unwrap_or_default();
        }
    }

    /// As few steps as still differ.
    fn shrunk(&self) -> (Vec<u64>, String) {
        let mut steps: Vec<u64> = (0..STEPS).collect();
        let mut what = String::from("not again");
        let mut piece = steps.len();
        while piece > 0 {
            let mut at = 0;
            while at < steps.len() {
                let mut fewer = steps.clone();
                fewer.drain(at..(at + piece).min(steps.len()));
                match self.difference(&fewer) {
                    Some(difference) => (steps, what) = (fewer, difference),
                    None => at += piece,
                }
            }
            piece /= 2;
        }
        (steps, what)
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Case {
            form, mode, seed, ..
        } = self;
        write!(f, "seed {seed}, {mode} mode, {form:?}")
    }
}

#[test]
fn random_steps_do_what_they_do_natively() {
    let programs = Programs::compile();
    // The short form is of the same seeds every time: what is found elsewhere does not fail it.
    let is_search = long_form() || std::env::var_os("UZSWAP_SEED").is_some();
    let first = if is_search { seed() } else { 7000 };
    let (began, mut failed) = (Instant::now(), String::new());
    let modes = modes();
    let cases = FORMS.len() * modes.len();
    let is_time_left = |nr: usize| match long_form() {
        true => began.elapsed() < Duration::from_secs(3600),
        false => nr < 2 * cases,
    };
    let (mut nr, mut nr_failed) = (0, 0);
    while is_time_left(nr) && nr_failed < 3 {
        let form = FORMS[nr % FORMS.len()];
        let case = Case {
            program: programs.of(form),
            form,
            mode: modes[nr / FORMS.len() % modes.len()],
            seed: first.wrapping_add(nr as u64) & 0xffff_ffff,
        };
        nr += 1;
        let all: Vec<u64> = (0..STEPS).collect();
        let Some(whole) = case.difference(&all) else {
            continue;
        };
        nr_failed += 1;
        let (steps, what) = case.shrunk();
        let list: Vec<String> = steps.iter().map(u64::to_string).collect();
        writeln!(
            failed,
            "{case}:\n{whole}\nwith these steps:\n{what}\nrepeat: {}address_space {} {STEPS} {}\n",
            if case.form.ticks {
                "UZSWAP_FUZZ_TICKS=1 "
            } else {
                ""
            },
            case.seed,
            list.join(",")
        )
        .expect("strings can be written to");
    }
    println!(
        "{nr} seeds from {first} in {:?}, swap in {DISK}",
        began.elapsed()
    );
    assert!(failed.is_empty(), "{nr_failed} of {nr} differ\n{failed}");
}
