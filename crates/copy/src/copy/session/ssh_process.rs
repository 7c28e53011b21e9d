// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes of ssh: their command, and the lines that they print.

use anyhow::Result;
use longhaul_command::{errln, threads};
use std::{
    io::{BufRead as _, BufReader, Read},
    process::Command,
    sync::mpsc::{Receiver, Sender, channel},
};

/// Maximum length of a line on standard error of ssh or of the remote process, in bytes. A longer line is split.
const LINE_MAX: u64 = 4 << 10;

/// Signal for the end of standard error: the channel is closed then.
pub(super) type StderrEnd = Receiver<()>;

/// Returns the command that reaches other hosts. OpenSSH gets no terminal, whatever its configuration says: it would
/// change what is sent.
pub(super) fn ssh_command(words: &[String]) -> Command {
    let (program, arguments) = split_command(words);
    let mut ssh = Command::new(program);
    ssh.args(arguments);
    if is_openssh(words) {
        ssh.arg("-T");
    }
    ssh
}

fn split_command(words: &[String]) -> (&str, &[String]) {
    match words.split_first() {
        Some((program, arguments)) => (program, arguments),
        None => ("ssh", &[]),
    }
}

/// Whether the command has OpenSSH's options. A script of another name may take others.
pub(super) fn is_openssh(words: &[String]) -> bool {
    let (program, _) = split_command(words);
    program == "ssh" || program.ends_with("/bin/ssh")
}

/// Prints the lines of another host's standard error, with control characters escaped, because standard error may be a
/// terminal.
pub(super) fn print_lines(from: impl Read + Send + 'static) -> Result<StderrEnd> {
    print_lines_except(from, |_| false)
}

/// Prints lines as [`print_lines`], but not those for which `is_hidden` returns true.
pub(super) fn print_lines_except(
    from: impl Read + Send + 'static,
    is_hidden: impl Fn(&str) -> bool + Send + 'static,
) -> Result<StderrEnd> {
    let (to, stderr_end) = channel();
    threads::spawn(move || {
        let _closed_at_the_end: Sender<()> = to;
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(1..) = from.by_ref().take(LINE_MAX).read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(line.trim_ascii_end());
            if !is_hidden(&text) {
                errln!("{text}");
            }
            line.clear();
        }
    })?;
    Ok(stderr_end)
}
