// SPDX-License-Identifier: MIT OR Apache-2.0
//! Help texts: `-h` fits a screen, `--help` has everything, and both name a page of the manual.

use clap::{
    Command,
    error::{ContextKind, ContextValue},
};
use longhaul_command::manual;
use std::path::Path;

/// Examples that `-h` shows, at most.
const SHORT_EXAMPLES: usize = 3;

/// Commands and the page that explains each.
const PAGES: [(&str, &str); 15] = [
    ("link", "link"),
    ("relay", "relay"),
    ("copy", "copy"),
    ("site", "site"),
    ("cc", "cc"),
    ("probe", "link"),
    ("decp", "decp"),
    ("doctor", "doctor"),
    ("plan", "plan"),
    ("run", "run"),
    ("tap", "tap"),
    ("udt", "udt"),
    ("lab", "lab"),
    ("demo", "experiments/papers"),
    ("generate", "README"),
];

/// Commands with more options than a screen has lines, and the options that `-h` shows.
const COMMON_OPTIONS: [(&str, &[&str]); 5] = [
    (
        "link",
        &[
            "left", "right", "config", "name", "delay", "jitter", "rate", "queue", "aqm", "loss",
            "duration",
        ],
    ),
    (
        "relay",
        &[
            "config",
            "socks5",
            "http",
            "forward",
            "transparent",
            "convert",
            "allow-from",
            "peer",
            "cc-downstream",
            "cc-upstream",
            "admin",
        ],
    ),
    (
        "copy",
        &[
            "streams",
            "cc",
            "limit",
            "transport",
            "dry-run",
            "delete",
            "exclude",
            "ssh",
            "json",
            "quiet",
        ],
    ),
    (
        "site",
        &[
            "export",
            "export-ro",
            "listen",
            "http",
            "https",
            "ports",
            "state",
        ],
    ),
    (
        "run",
        &[
            "cc",
            "pacing-rate",
            "inter-packet-gap",
            "cwnd-cap",
            "initial-window",
            "ack-ratio",
            "user",
            "verbose",
            "json",
        ],
    ),
];

/// Completes the help of each command. `directory` has the pages of the manual.
pub(crate) fn complete(command: Command, directory: &Path) -> Command {
    // The options of the log are the same for all commands; the help of `longhaul` itself shows them.
    let command = command.mut_args(|argument| argument.hide_short_help(true));
    PAGES.into_iter().fold(command, |command, (name, page)| {
        if command.find_subcommand(name).is_none() {
            return command; // A Cargo feature left it out.
        }
        let path = manual::page_in(directory, page);
        command.mut_subcommand(name, |subcommand| end_with_page(subcommand, name, &path))
    })
}

/// Returns the command that the user named and that a Cargo feature left out, if this is the error.
pub(crate) fn left_out(command: &Command, error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    let (name, _) = PAGES.into_iter().find(|(name, _)| name == given)?;
    command.find_subcommand(name).is_none().then_some(name)
}

fn end_with_page(command: Command, name: &str, path: &str) -> Command {
    let examples = command.get_after_help().map(ToString::to_string);
    let examples = examples.unwrap_or_default();
    let command = command.after_long_help(join(&examples, &format!("Manual: {path}")));
    match COMMON_OPTIONS.iter().find(|(long, _)| *long == name) {
        None => command.after_help(join(&examples, &format!("Manual: {path}"))),
        Some((_, options)) => {
            let ending = format!("All options: longhaul {name} --help. Manual: {path}");
            hide_others(command, options).after_help(join(&first_examples(&examples), &ending))
        }
    }
}

fn join(examples: &str, ending: &str) -> String {
    format!("{examples}\n\n{ending}").trim_start().to_owned()
}

/// Hides all options from `-h` except those of the list.
fn hide_others(command: Command, shown: &[&str]) -> Command {
    command.mut_args(|argument| {
        let hide = argument
            .get_long()
            .is_some_and(|long| !shown.contains(&long));
        match hide {
            true => argument.hide_short_help(true),
            false => argument,
        }
    })
}

/// Returns the heading and the first examples: a line with the command, and deeper lines about it.
fn first_examples(examples: &str) -> String {
    let is_command = |line: &str| line.starts_with("  ") && !line.starts_with("   ");
    let mut commands = 0;
    let in_first = |line: &&str| {
        commands += usize::from(is_command(line));
        commands <= SHORT_EXAMPLES && !line.is_empty()
    };
    examples
        .lines()
        .take_while(in_first)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Lines of a large terminal.
    const SCREEN: usize = 50;

    fn command() -> Command {
        complete(crate::Cli::command(), Path::new("/usr/share/doc/longhaul"))
    }

    #[test]
    fn short_help_of_each_command_fits_a_screen() {
        for mut subcommand in command().get_subcommands().cloned() {
            let help = subcommand.render_help().to_string();
            let lines = help.lines().count();
            assert!(
                lines <= SCREEN,
                "{} has {lines} lines:\n{help}",
                subcommand.get_name()
            );
        }
    }

    #[test]
    fn help_of_each_command_names_a_page_of_the_manual() {
        for mut subcommand in command().get_subcommands().cloned() {
            for help in [subcommand.render_help(), subcommand.render_long_help()] {
                let help = help.to_string();
                let page = help.rsplit_once("/usr/share/doc/longhaul/");
                let page = page.unwrap_or_else(|| panic!("{help}")).1.trim_end();
                let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                    .join("../../docs")
                    .join(page);
                assert!(path.exists(), "{}", path.display());
            }
        }
    }

    #[test]
    fn names_a_command_that_was_left_out() {
        let parser = || Command::new("longhaul").subcommand(Command::new("relay"));
        let error = |name: &str| {
            parser()
                .try_get_matches_from(["longhaul", name])
                .unwrap_err()
        };
        assert_eq!(left_out(&parser(), &error("tap")), Some("tap"));
        assert_eq!(left_out(&parser(), &error("tapp")), None);
        assert_eq!(left_out(&parser(), &error("--tap")), None);
    }

    #[cfg(all(feature = "link", feature = "tune", feature = "webdav"))]
    #[test]
    fn common_options_exist() {
        let command = command();
        for (name, options) in COMMON_OPTIONS {
            let subcommand = command.find_subcommand(name).unwrap();
            for option in options {
                let mut arguments = subcommand.get_arguments();
                assert!(
                    arguments.any(|argument| argument.get_long() == Some(option)),
                    "{name} --{option}"
                );
            }
        }
    }

    #[test]
    fn long_help_has_every_example() {
        let command = command();
        let relay = command.find_subcommand("relay").unwrap();
        assert!(
            relay
                .clone()
                .render_long_help()
                .to_string()
                .contains("--admin 127.0.0.1:9100")
        );
        assert!(
            !relay
                .clone()
                .render_help()
                .to_string()
                .contains("--admin 127.0.0.1:9100")
        );
    }
}
