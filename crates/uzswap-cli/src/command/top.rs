//! *What*: `uzswap top`: shows every process that runs under uzswap, or one of them, over time.
//!
//! *Locking*: none. *Context*: one thread.

mod sample;
mod view;

use std::io::{IsTerminal as _, stdin, stdout};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::print;
use crate::args::Top;
use crate::chosen::Whom;
use sample::Watch;
use view::{Asked, View};

/// Time over which a snapshot measures rates.
const SAMPLE: Duration = Duration::from_millis(250);

/// Updates a terminal until the user quits; prints one snapshot otherwise.
pub fn top(options: &Top) -> Result<u8> {
    let pid = match options.whom {
        Some(Whom::Pid(pid)) => Some(pid),
        _ => None,
    };
    let mut watch = Watch::new(options.whom.as_ref())?;
    if options.json || !stdout().is_terminal() || !stdin().is_terminal() {
        std::thread::sleep(SAMPLE);
        watch.sample();
        let mut rows = watch.rows().to_vec();
        if let Some(only) = pid.and_then(|pid| watch.row(pid)) {
            rows = vec![only.clone()];
        }
        return print(&match options.json {
            true => serde_json::to_string_pretty(&rows)? + "\n",
            false => view::plain(&rows),
        });
    }
    let only = pid.filter(|pid| watch.row(*pid).is_some());
    let mut terminal = ratatui::try_init().context("cannot draw on this terminal")?;
    let shown = show(&mut terminal, &mut watch, View::new(only), options.interval);
    ratatui::try_restore().context("cannot leave the terminal as it was")?;
    shown.context("cannot draw on this terminal")?;
    Ok(0)
}

fn show(
    terminal: &mut DefaultTerminal,
    watch: &mut Watch,
    mut view: View,
    interval: Duration,
) -> std::io::Result<()> {
    let mut next = Instant::now() + interval.min(SAMPLE);
    loop {
        terminal.draw(|frame| view.draw(frame, watch))?;
        if event::poll(next.saturating_duration_since(Instant::now()))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let interrupt =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if interrupt || view.key(key.code, watch) == Asked::Quit {
                return Ok(());
            }
        }
        if Instant::now() >= next {
            watch.sample();
            next = Instant::now() + interval;
        }
    }
}
