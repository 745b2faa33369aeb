//! Programs of every kind do the same with little memory as natively: interpreters, compressors,
//! version control, compilers, shells with pipelines, direct I/O.

use std::fmt::Write;
use std::time::Duration;

use uzswap_e2e::{Job, Outcome, Scratch, find_or_skip, users};

/// Runs a shell script natively and managed, each in a directory of its own, and compares.
fn same(needs: &[(&str, &str)], ram_mib: u64, script: &str, input: &[(&str, &[u8])]) {
    for (command, package) in needs {
        if find_or_skip(command, package).is_none() {
            return;
        }
    }
    let run = |managed: bool, user| -> Outcome {
        let scratch = Scratch::new();
        for (name, content) in input {
            scratch.write(name, content);
        }
        // rustup's shims look for the toolchain in the home directory; an ordinary user may have
        // none.
        let rustup = std::env::var_os("RUSTUP_HOME").map_or_else(
            || std::path::Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".rustup"),
            Into::into,
        );
        let job = Job::new("bash")
            .env("RUSTUP_HOME", rustup)
            .args(["-euo", "pipefail", "-c", script])
            .cwd(scratch.path())
            .env("HOME", scratch.path())
            .env("LC_ALL", "C")
            .each_mib(ram_mib)
            .timeout(Duration::from_secs(400))
            .user(user);
        if managed { job.managed() } else { job.native() }
    };
    for &user in users() {
        let native = run(false, user).expect_success(script);
        let managed = run(true, user).expect_success(script);
        assert!(!native.stdout.is_empty(), "the script prints nothing");
        managed.expect_same_output(&native);
        let (peak, limit) = (managed.stat("ram_peak"), managed.stat("ram_limit"));
        assert!(peak <= limit, "{peak} of {limit}");
    }
}

/// `bytes` of log lines.
fn log(bytes: usize) -> Vec<u8> {
    let mut text = String::new();
    let mut x = 1_u64;
    while text.len() < bytes {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = writeln!(
            text,
            "2026-11-20 12:{:02}:{:02} host-{:02} service[{}]: request {:x} took {} ms",
            x >> 58,
            x >> 50 & 31,
            x >> 40 & 15,
            x >> 30 & 1023,
            x >> 20 & 0xff_ffff,
            x >> 12 & 255
        );
    }
    text.into_bytes()
}

#[test]
fn perl_hashes_and_sorting() {
    same(
        &[("perl", "perl")],
        40,
        r#"perl -e '
            my %h; my @a;
            for my $i (0..100000) { $h{"key number $i"} = { id => $i, text => "line $i " x 4 }; }
            push @a, map { $h{$_}{text} } grep { $h{$_}{id} % 3 == 0 } sort keys %h;
            my $s = join "|", sort { $b cmp $a } @a; my $n = () = $s =~ /line \d+7 /g;
            print scalar(@a), " $n ", length $s, " ", unpack("%32C*", $s), "\n";'"#,
        &[],
    );
}

#[test]
fn awk_and_pipelines() {
    same(
        &[("awk", "mawk")],
        24,
        r#"awk '{ n[$4 " " $6]++; t[$4] += $8; l[NR] = $0 }
                END { for (k in n) c++; for (h in t) print h, t[h]; print c, NR, l[NR - 5] }' log | sort | tee sums
           sort -k6 log | uniq -c | sort -rn | sed -n 1,100p | sha256sum
           grep -c 'took 1[0-9]* ms' log; sed 's/host/HOST/; s/took/needed/' log | tac | cksum
           split -n l/7 log part. && cat part.* | cmp - log && echo whole"#,
        &[("log", &log(8 << 20))],
    );
}

#[test]
fn compressors_with_threads() {
    same(
        &[("xz", "xz-utils"), ("gzip", "gzip"), ("tar", "tar")],
        32,
        r"xz -T2 -2 --block-size=3MiB -k log && xz -T2 -dc log.xz | cmp - log && sha256sum < log.xz
          tar cf - log log.xz | gzip -1n > all.tgz && tar tzf all.tgz && gzip -dc all.tgz | tar xf - -O log | cmp - log
          echo right",
        &[("log", &log(12 << 20))],
    );
}

#[test]
fn git_packs_a_history() {
    same(
        &[("git", "git")],
        24,
        r#"export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
           export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
           mkdir r && cd r && git init -q -b main . && split -n l/40 ../log part. && git add . && git commit -qm one
           for i in 1 2 3; do for f in part.*; do sed -i "s/host-0$i/HOST-$i/" $f; done; git commit -qam "change $i"; done
           git -c pack.threads=2 -c gc.autoDetach=false gc -q --aggressive && git fsck --full 2>/dev/null
           git rev-parse HEAD && git log -p | sha256sum && git clone -q . ../clone && git -C ../clone rev-parse HEAD"#,
        &[("log", &log(3 << 19))],
    );
}

#[test]
fn sqlite_on_disk() {
    same(
        &[("sqlite3", "sqlite3")],
        16,
        r#"sqlite3 data.db "create table t (id integer primary key, name text, n integer);
             with recursive c(i) as (select 1 union all select i + 1 from c where i < 200000)
             insert into t select i, 'name of number ' || i, i * 7919 % 1000 from c;
             create index by_n on t (n, name); pragma cache_size = -60000;
             select n, count(*), max(name) from t group by n order by n limit 20;
             select count(*) from t a join t b on a.n = b.id; pragma integrity_check;""#,
        &[],
    );
}

#[test]
fn rustc_builds_a_program() {
    same(
        &[("rustc", "rustc")],
        96,
        r#"rustc --version > /dev/null 2>&1 || { echo no working rustc; exit 0; }
           rustc -O -C codegen-units=2 -o program program.rs && ./program"#,
        &[(
            "program.rs",
            br#"use std::collections::{BTreeMap, HashMap};
                fn main() {
                    let mut map = HashMap::new();
                    for i in 0..300_000u64 { map.insert(i, format!("number {i} of many")); }
                    let ordered: BTreeMap<_, _> = map.iter().filter(|(k, _)| *k % 3 == 0).collect();
                    let handles: Vec<_> = (0..4u64).map(|t| std::thread::spawn(move || {
                        let mut v: Vec<u64> = (0..500_000).map(|i| (i * 7919 + t) % 1_000_003).collect();
                        v.sort_unstable(); v.iter().step_by(1000).sum::<u64>()
                    })).collect();
                    let sums: Vec<u64> = handles.into_iter().map(|h| h.join().unwrap()).collect();
                    println!("{} {:?} {sums:?}", ordered.len(), ordered.iter().next_back());
                }"#,
        )],
    );
}

#[test]
fn direct_io_and_big_buffers() {
    // Where the file system lacks O_DIRECT, both runs fall back alike.
    same(
        &[("dd", "coreutils")],
        16,
        r"dd if=log of=direct bs=8M oflag=direct conv=notrunc 2>/dev/null || cp log direct
          dd if=direct bs=8M iflag=direct 2>/dev/null | cmp - log && echo same
          dd if=log bs=12M 2>/dev/null | dd bs=5M iflag=fullblock 2>/dev/null | sha256sum
          b2sum log; base64 -w0 log | base64 -d | cmp - log && echo back",
        &[("log", &log(16 << 20)[..16 << 20])],
    );
}

#[test]
fn shells_with_functions_arrays_and_jobs() {
    same(
        &[("bash", "bash")],
        16,
        r#"declare -A seen; for i in $(seq 1 20000); do seen[$((i * 7919 % 10007))]="value $i of the array"; done
           echo ${#seen[@]} "${seen[77]}"
           f() { local n=$1; if ((n < 2)); then echo $n; else echo $(($(f $((n - 1))) + $(f $((n - 2))))); fi; }
           f 9
           for i in 1 2 3 4; do (x=$(seq $i 3 60000 | tr '\n' ' '); echo "job $i ${#x}") > out.$i & done; wait; cat out.*
           while read -r a b; do echo "$b $a"; done < <(seq 1 3000 | paste - -) | cksum
           big=$(head -c 3000000 /dev/zero | tr '\0' x); echo ${#big}; cat <<< "$big" | wc -c
           printf '%s\n' {1..20000} | xargs -n 500 echo | wc"#,
        &[],
    );
}

/// ZGC maps its heap, which is shared memory, at three addresses that it has in its code.
#[test]
fn java_with_a_collector_that_needs_its_addresses() {
    let script = "java -XX:+UseZGC -Xmx64m -version 2>&1";
    same(&[("java", "default-jre-headless")], 256, script, &[]);
}

#[test]
fn a_debugger_starts_a_program() {
    let script = "gdb -nx -batch -ex 'handle SIGSYS SIGBUS nostop noprint pass' -ex run \
                  --args echo started | grep -o 'started$\\|exited normally'";
    same(&[("gdb", "gdb")], 256, script, &[]);
}
