//! The pages in a real browser: they render without an error, charts have axes with units, nothing
//! sticks out, in light and dark, on a desktop and on a phone. Screenshots stay in the target
//! directory, under `tmp/report`.
//! Needs chromium (`apt-get install chromium`); without it the test is skipped with a line.

mod fixtures;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::{codecs, sample, start_trace};
use serde_json::Value;
use uzswap_bench::report;
use uzswap_bench::results::{Results, Suite};
use uzswap_bench::trace::{Sample, Trace};
use uzswap_corpus::Scratch;

/// Examines the page in its frame and writes the findings where `--dump-dom` shows them.
const LOOK: &str = r#"
const page = frame.contentDocument, seen = {};
const inside = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1
  && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
seen.width = frame.contentWindow.innerWidth;
seen.needs = page.documentElement.scrollWidth;
seen.ground = frame.contentWindow.getComputedStyle(page.body).backgroundColor;
seen.tables = page.querySelectorAll('table').length;
seen.charts = [...page.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg'), box = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll('text')];
  return {
    title: figure.querySelector('figcaption').textContent,
    width: box.width, height: box.height,
    units: texts.filter(t => t.classList.contains('unit')).map(t => t.textContent),
    ticks: texts.filter(t => t.classList.contains('tick')).length,
    marks: svg.querySelectorAll('.mark, .curve').length,
    outside: texts.filter(t => !inside(t.getBoundingClientRect(), box)).map(t => t.textContent),
    least: Math.min(...texts.map(t => t.getBoundingClientRect().height)),
  };
});
found.textContent = JSON.stringify(seen);
"#;

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .flat_map(|dir| {
            ["chromium", "chromium-browser", "google-chrome"].map(|name| dir.join(name))
        })
        .find(|path| path.is_file())
}

/// A page as a browser shows it.
struct View {
    /// What the browser said on its console.
    console: Vec<String>,
    seen: Value,
}

fn show(browser: &Path, page: &str, dark: bool, size: (u32, u32), picture: &Path) -> View {
    let scratch = Scratch::new().unwrap();
    let escaped = page.replace('&', "&amp;").replace('"', "&quot;");
    let (width, height) = size;
    // In a frame, because a window cannot be as narrow as a phone.
    let around = format!(
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">\
         <link rel=\"icon\" href=\"data:,\"><body style=\"margin:0\">\
         <iframe id=\"frame\" style=\"border:0;width:{width}px;height:{height}px\" srcdoc=\"{escaped}\"></iframe>\
         <pre id=\"found\" hidden></pre><script>frame.onload = () => {{ {LOOK} }};</script>"
    );
    let file = scratch.path().join("around.html");
    fs::write(&file, around).unwrap();
    let run = |what: &str| {
        let done = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ])
            .args(["--enable-logging=stderr", "--force-device-scale-factor=1"])
            .arg(format!(
                "--user-data-dir={}",
                scratch.path().join("profile").display()
            ))
            .arg(format!(
                "--blink-settings=preferredColorScheme={}",
                u8::from(!dark)
            ))
            .arg(format!("--window-size={},{height}", width.max(500)))
            .arg(what)
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
        done
    };
    run(&format!("--screenshot={}", picture.display()));
    let done = run("--dump-dom");
    let dom = String::from_utf8_lossy(&done.stdout);
    let (_, found) = dom.split_once("<pre id=\"found\" hidden=\"\">").unwrap();
    let (found, _) = found.split_once("</pre>").unwrap();
    let found = found
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&");
    View {
        console: String::from_utf8_lossy(&done.stderr)
            .lines()
            .filter(|line| line.contains(":CONSOLE"))
            .map(str::to_owned)
            .collect(),
        seen: serde_json::from_str(&found).unwrap_or_else(|why| panic!("{why}: {found:?}")),
    }
}

/// The faults of a page as shown.
fn faults(view: &View, dark: bool, size: (u32, u32)) -> Vec<String> {
    let View { console, seen } = view;
    let mut faults = console.clone();
    let mut check = |good: bool, what: String| {
        if !good {
            faults.push(what);
        }
    };
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    check(
        seen["width"] == size.0,
        format!("shown {} wide", seen["width"]),
    );
    let needs = number(&seen["needs"]);
    check(needs <= f64::from(size.0), format!("needs {needs} across"));
    let ground = if dark {
        "rgb(15, 19, 24)"
    } else {
        "rgb(255, 255, 255)"
    };
    check(
        seen["ground"] == ground,
        format!("ground {}", seen["ground"]),
    );
    check(number(&seen["tables"]) >= 1.0, "no table".into());
    for chart in seen["charts"].as_array().unwrap() {
        let title = &chart["title"];
        check(
            number(&chart["width"]) >= 300.0 && number(&chart["height"]) >= 60.0,
            format!("{title} is too small: {chart}"),
        );
        let units = chart["units"].as_array().unwrap();
        check(
            !units.is_empty() && units.iter().all(|unit| unit != ""),
            format!("{title} has no units"),
        );
        check(
            number(&chart["ticks"]) >= 2.0,
            format!("{title} has no ticks"),
        );
        check(
            number(&chart["marks"]) >= 1.0,
            format!("{title} shows nothing"),
        );
        check(
            chart["outside"].as_array().is_some_and(Vec::is_empty),
            format!("{title}: {} stick(s) out", chart["outside"]),
        );
        check(
            number(&chart["least"]) >= 8.0,
            format!("{title} has letters of {}", chart["least"]),
        );
    }
    faults
}

fn results() -> Results {
    let mut results = Results::new(
        "0.1.0",
        "uzswap bench codecs --json 'a <b> & c.json'".into(),
    );
    results.suites = vec![Suite::Codecs(codecs())];
    results
}

/// A minute, with a swap device.
fn life() -> Trace {
    let scratch = Scratch::new().unwrap();
    let path = scratch.path().join("t");
    let mut writer = start_trace(&path);
    for tenth in 0..600 {
        let sample = sample(tenth);
        let swap_used = sample.zswapped / 10;
        writer
            .sample(Sample {
                swap_used,
                ..sample
            })
            .unwrap();
    }
    Trace::parse(&fs::read_to_string(&path).unwrap()).unwrap()
}

#[test]
fn pages_are_whole_in_light_and_dark_on_a_desktop_and_a_phone() {
    let Some(browser) = chromium() else {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED the report's pages in a browser: no chromium here (apt-get install chromium)"
        );
        return;
    };
    let pictures = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    fs::create_dir_all(&pictures).unwrap();
    for (name, page, charts) in [
        ("results", report::page(&results()), 2),
        ("life", report::trace_page(&life()), 5),
    ] {
        for (device, size) in [("desktop", (1280, 1600)), ("phone", (390, 844))] {
            for dark in [false, true] {
                let light = if dark { "dark" } else { "light" };
                let picture = pictures.join(format!("{name}-{device}-{light}.png"));
                let view = show(&browser, &page, dark, size, &picture);
                let found = faults(&view, dark, size);
                assert!(found.is_empty(), "{name}, {device}, {light}: {found:#?}");
                assert_eq!(view.seen["charts"].as_array().map(Vec::len), Some(charts));
                assert!(
                    fs::metadata(&picture).unwrap().len() > 10_000,
                    "an empty picture"
                );
            }
        }
        // The looking itself sees what it should.
        let broken = page
            .replacen("class=\"unit\"", "class=\"none\"", 2)
            .replace("<h1>", "<h1 style=\"width:9000px\">")
            .replace(
                "</body>",
                "<script>console.error('on purpose')</script></body>",
            );
        let view = show(
            &browser,
            &broken,
            false,
            (390, 844),
            &pictures.join("broken.png"),
        );
        let found = faults(&view, false, (390, 844)).join("\n");
        for part in ["on purpose", "has no units", "across"] {
            assert!(found.contains(part), "{part} was not seen: {found}");
        }
    }
    println!("screenshots in {}", pictures.display());
}
