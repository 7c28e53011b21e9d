// SPDX-License-Identifier: MIT OR Apache-2.0
//! Help texts: `-h` fits a screen, `--help` has everything, and both name a page of the manual.

use clap::{
    Command,
    error::{ContextKind, ContextValue},
};
use longhaul_command::manual;
use std::{fmt::Write as _, path::Path};

/// Examples that `-h` shows, at most.
const SHORT_EXAMPLES: usize = 2;

/// Commands and the page that explains each.
const PAGES: [(&str, &str); 16] = [
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
    ("check", "lab"),
    ("demo", "experiments/papers"),
    ("generate", "README"),
];

/// Commands by purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Move data", &["relay", "copy", "site", "udt"]),
    ("Tune hosts", &["doctor", "cc", "run", "decp"]),
    ("Predict and measure", &["plan", "tap", "probe"]),
    ("Emulate and experiment", &["link", "lab", "demo"]),
    ("Other", &["generate", "help"]),
];

/// Column at which descriptions of commands begin.
const DESCRIPTION_COLUMN: usize = 12;

/// Subcommands with a page of their own. The others are on the page of their command.
const SUBCOMMAND_PAGES: [(&str, &str); 1] = [("tap capture", "tap-capture")];

/// Commands with more options than a screen has lines, and the options that `-h` shows.
const COMMON_OPTIONS: [(&str, &[&str]); 6] = [
    (
        "tap capture",
        &[
            "interface",
            "filter",
            "netns",
            "write",
            "rotate",
            "files",
            "duration",
            "count",
            "force",
        ],
    ),
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
            "allow-from",
            "peer",
            "cc-downstream",
            "cc-upstream",
        ],
    ),
    (
        "copy",
        &[
            "streams", "cc", "limit", "dry-run", "delete", "exclude", "json", "quiet",
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
        ],
    ),
];

/// Completes the help of each command. `directory` has the pages of the manual.
pub(crate) fn complete(command: Command, directory: &Path) -> Command {
    // The options of the log are the same for all commands; the long help of `longhaul` itself shows them.
    let command = command.mut_args(|argument| argument.hide_short_help(true));
    let command = group_subcommands(command, directory);
    let pages = PAGES.into_iter().chain(SUBCOMMAND_PAGES);
    pages.fold(command, |command, (name, page)| {
        let path = manual::page_in(directory, page);
        let names: Vec<_> = name.split(' ').collect();
        change_at(command, &names, &|command| {
            end_with_page(command, name, &path)
        })
    })
}

/// Lists the subcommands by purpose, with the page to begin with.
fn group_subcommands(command: Command, directory: &Path) -> Command {
    let begin = manual::page_in(directory, "start/slow-path");
    let mut text = String::new();
    for (title, names) in GROUPS {
        let lines: String = names
            .iter()
            .filter_map(|name| describe(&command, name))
            .collect();
        if !lines.is_empty() {
            let _ = write!(text, "{title}:\n{lines}\n");
        }
    }
    let template = format!(
        "{{about-with-newline}}\nUsage: {{name}} <COMMAND>\n\n{text}Options:\n{{options}}\n\n\
         longhaul COMMAND -h has the options of a command. Begin with {begin}\n"
    );
    command.help_template(template)
}

/// Returns the line of a subcommand, unless a Cargo feature left it out.
fn describe(command: &Command, name: &str) -> Option<String> {
    let about = match command.find_subcommand(name) {
        Some(subcommand) => subcommand.get_about()?.to_string(),
        None if name == "help" => "Print the help of a command".to_owned(),
        None => return None,
    };
    Some(format!("  {name:DESCRIPTION_COLUMN$}{about}\n"))
}

/// Returns the path of the page that explains a command, such as `tap capture`. The empty name is `longhaul` itself.
pub(crate) fn page_of(name: &str, directory: &Path) -> String {
    let first = name.split(' ').next().unwrap_or_default();
    let page_of = |name: &str| {
        let mut pages = PAGES.into_iter().chain(SUBCOMMAND_PAGES);
        pages.find(|(command, _)| *command == name)
    };
    let page = page_of(name).or_else(|| page_of(first));
    manual::page_in(directory, page.map_or("README", |(_, page)| page))
}

/// Changes the subcommand with these names, unless a Cargo feature left it out.
fn change_at(command: Command, names: &[&str], change: &dyn Fn(Command) -> Command) -> Command {
    match names {
        [] => change(command),
        [first, ..] if command.find_subcommand(first).is_none() => command,
        [first, others @ ..] => {
            command.mut_subcommand(first, |command| change_at(command, others, change))
        }
    }
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
        if hide {
            argument.hide_short_help(true)
        } else {
            argument
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

    /// Columns of a terminal.
    const COLUMNS: usize = 80;

    /// Returns the subcommands of a command at all levels.
    fn all_below(command: &Command) -> Vec<Command> {
        let subcommands = command.get_subcommands();
        subcommands
            .flat_map(|command| [vec![command.clone()], all_below(command)].concat())
            .collect()
    }

    #[test]
    fn short_help_of_each_command_and_subcommand_fits_a_screen() {
        let mut built = command();
        built.build();
        let commands = [vec![built.clone()], all_below(&built)].concat();
        for command in commands {
            let help = command.term_width(COLUMNS).render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= SCREEN, "{lines} lines:\n{help}");
        }
    }

    #[test]
    fn each_visible_command_is_in_a_group() {
        let command = command();
        let visible = command.get_subcommands().filter(|one| !one.is_hide_set());
        for name in visible.map(Command::get_name) {
            let is_listed = GROUPS.iter().any(|(_, names)| names.contains(&name));
            assert!(is_listed, "{name} is in no group");
        }
    }

    #[test]
    fn page_of_a_subcommand_is_its_own_or_that_of_its_command() {
        for (name, page) in [
            ("", "docs/README.md"),
            ("cc", "docs/cc.md"),
            ("tap capture", "docs/tap-capture.md"),
            ("site token new", "docs/site.md"),
        ] {
            assert_eq!(page_of(name, Path::new("docs")), page);
        }
    }

    #[test]
    fn help_of_each_command_names_a_page_of_the_manual() {
        let command = command();
        let commands = command.get_subcommands().cloned();
        let own_page = SUBCOMMAND_PAGES
            .iter()
            .filter_map(|(name, _)| find(&command, name));
        for mut subcommand in commands.chain(own_page) {
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

    /// Returns a subcommand by its names, or `None` if a Cargo feature left it out.
    fn find(command: &Command, name: &str) -> Option<Command> {
        let found = name
            .split(' ')
            .try_fold(command, |command, name| command.find_subcommand(name));
        found.cloned()
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

    #[cfg(all(feature = "copy", feature = "link", feature = "tap", feature = "tune"))]
    #[test]
    fn common_options_exist() {
        let command = command();
        for (name, options) in COMMON_OPTIONS {
            let subcommand = find(&command, name).unwrap();
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
