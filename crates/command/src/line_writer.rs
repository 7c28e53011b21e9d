// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines that a daemon writes to standard output or standard error. A separate thread writes them, so that a reader
//! that stops (a paused terminal, a full pipe) does not delay the daemon's clients.

use crate::{console, threads::Monitor};
use rustix::io::retry_on_intr;
use std::{io, os::fd::BorrowedFd, sync::OnceLock, thread, time::Duration};

/// Maximum bytes that wait to be written: several thousand lines. Further lines are dropped and counted.
const BUFFER_MAX: usize = 1 << 20;
/// Time for which [`LineWriter::flush`] waits for the reader.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Writer of lines to standard output or standard error. Its thread starts with the first line.
#[derive(Debug)]
pub struct LineWriter {
    file: fn() -> BorrowedFd<'static>,
    /// Formats the line that reports the number of dropped lines.
    format_dropped: fn(u64) -> String,
    on_error: fn(io::Error),
    /// `None` if the thread could not start: then each line is written at once.
    buffer: OnceLock<Option<Monitor<Buffer>>>,
}

#[derive(Debug, Default)]
struct Buffer {
    text: String,
    dropped: u64,
    /// Whether the thread is writing the text that it took.
    is_writing: bool,
}

impl LineWriter {
    /// Returns a writer to standard output. `format_dropped` formats the line that reports the number of dropped lines.
    pub const fn stdout(format_dropped: fn(u64) -> String) -> Self {
        Self::new(rustix::stdio::stdout, format_dropped, console::record_error)
    }

    /// Returns a writer to standard error. `format_dropped` formats the line that reports the number of dropped lines.
    pub const fn stderr(format_dropped: fn(u64) -> String) -> Self {
        // A failure of standard error cannot be reported anywhere else.
        Self::new(rustix::stdio::stderr, format_dropped, drop)
    }

    const fn new(
        file: fn() -> BorrowedFd<'static>,
        format_dropped: fn(u64) -> String,
        on_error: fn(io::Error),
    ) -> Self {
        let buffer = OnceLock::new();
        Self {
            file,
            format_dropped,
            on_error,
            buffer,
        }
    }

    /// Queues a line, which must end with a newline. If the buffer is full, drops and counts the line. If the
    /// thread could not start, writes the line at once, and waits for its reader.
    pub fn queue(&'static self, line: &str) {
        match self.buffer() {
            Some(buffer) => buffer.update(|buffer| buffer.push(line)),
            None => self.write_text(line),
        }
    }

    /// Waits until all lines are written, but at most a second.
    pub fn flush(&self) {
        if let Some(Some(buffer)) = self.buffer.get() {
            buffer.wait_timeout(FLUSH_TIMEOUT, Buffer::is_empty);
        }
    }

    fn buffer(&'static self) -> Option<&'static Monitor<Buffer>> {
        let start = || {
            let thread = thread::Builder::new().spawn(|| self.write_queued());
            thread.ok().map(|_| Monitor::default())
        };
        self.buffer.get_or_init(start).as_ref()
    }

    fn write_queued(&'static self) {
        let Some(buffer) = self.buffer() else {
            return;
        };
        loop {
            let text = buffer.wait_for(|buffer| buffer.take(self.format_dropped));
            // The loop continues after an error, because later lines may have a reader again.
            self.write_text(&text);
            buffer.update(|buffer| buffer.is_writing = false);
        }
    }

    /// Writes without the standard library's lock: the thread that ends the process needs it, even if this write waits
    /// for its reader. Uses the standard descriptor itself: a process at its limit of descriptors could not duplicate
    /// it.
    fn write_text(&self, text: &str) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match retry_on_intr(|| rustix::io::write((self.file)(), rest)) {
                Ok(written) => rest = &rest[written..],
                Err(error) => return (self.on_error)(error.into()),
            }
        }
    }
}

impl Buffer {
    fn push(&mut self, line: &str) {
        if self.text.len() + line.len() <= BUFFER_MAX {
            self.text += line;
        } else {
            self.dropped += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.is_writing
    }

    /// Takes the text to write, if there is any.
    fn take(&mut self, format_dropped: fn(u64) -> String) -> Option<String> {
        let mut text = std::mem::take(&mut self.text);
        match std::mem::take(&mut self.dropped) {
            0 => {}
            count => text += &format_dropped(count),
        }
        self.is_writing = !text.is_empty();
        self.is_writing.then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_waiting_lines_and_reports_dropped_ones() {
        let mut buffer = Buffer::default();
        let line = "x".repeat(BUFFER_MAX / 4 - 1) + "\n";
        (0..6).for_each(|_| buffer.push(&line));
        assert_eq!(buffer.text.len(), BUFFER_MAX);
        let text = buffer.take(|count| format!("{count} lost\n")).unwrap();
        assert!(text.ends_with("\n2 lost\n"));
        assert!(!buffer.is_empty(), "the thread writes");
        buffer.is_writing = false;
        assert_eq!(buffer.take(|_| unreachable!()), None);
        assert!(buffer.is_empty());
    }
}
