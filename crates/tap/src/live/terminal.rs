// SPDX-License-Identifier: MIT OR Apache-2.0
//! Display on a terminal, and its keys.

use super::{POLL_INTERVAL, Samplers, screen::Screen};
use crate::capture::Source;
use anyhow::{Context, Result};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::time::Duration;

impl Samplers {
    /// Shows the flows until the end, or until the user quits.
    pub(super) fn show(&self, source: &Source) -> Result<()> {
        let mut screen = Screen::new(&source.interfaces, &source.filter);
        let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
        let outcome = self.draw(&mut screen, &mut terminal);
        ratatui::restore();
        outcome
    }

    fn draw(&self, screen: &mut Screen, terminal: &mut ratatui::DefaultTerminal) -> Result<()> {
        while !self.is_finished() {
            terminal.draw(|frame| screen.draw(frame))?;
            if event::poll(POLL_INTERVAL)? && !handle_event(screen, &event::read()?) {
                return Ok(());
            }
            loop {
                match self.next(Duration::ZERO) {
                    Ok(Some(snapshot)) => screen.add(snapshot),
                    Ok(None) => break,
                    Err(_) => return Ok(()),
                }
            }
        }
        Ok(())
    }
}

/// Handles an event; returns false to quit. A new terminal size needs nothing: the next frame has it.
fn handle_event(screen: &mut Screen, event: &Event) -> bool {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => screen.handle_key(*key),
        _ => true,
    }
}
