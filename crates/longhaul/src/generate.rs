// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul generate`: man pages and shell completions, made from the definition of the command line.

use crate::help;
use anyhow::{Context, Result};
use clap::{Command, Subcommand};
use clap_complete::Shell;
use clap_mangen::{
    Man,
    roff::{Roff, roman},
};
use longhaul_command::{exit::Refusal, outln};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Arguments of `longhaul generate`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Subcommand)]
enum Kind {
    /// Write a man page for each command into a directory, which must exist
    Man {
        /// Directory for longhaul.1, longhaul-relay.1 and the others
        directory: PathBuf,
        /// Directory of the manual, which the pages refer to
        #[arg(long, value_name = "DIR", default_value = "/usr/share/doc/longhaul")]
        manual: PathBuf,
    },
    /// Print the completions of a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// Shell that the completions are for
        shell: Shell,
    },
}

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  longhaul generate completions bash > /etc/bash_completion.d/longhaul
      completions of bash, for all users";

/// Runs `longhaul generate` for this command line.
///
/// # Errors
/// The directory of the man pages does not exist or is not writable.
pub(crate) fn run(args: Args, command: Command) -> Result<()> {
    match args.kind {
        Kind::Man { directory, manual } => {
            write_man_pages(help::complete(command, &manual), &directory, &manual)
        }
        Kind::Completions { shell } => {
            outln!("{}", completions(command, shell)?);
            Ok(())
        }
    }
}

fn completions(mut command: Command, shell: Shell) -> Result<String> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "longhaul", &mut script);
    String::from_utf8(script).context("the completions are not UTF-8")
}

/// Writes a page for the command and for each of its subcommands. `manual` has the pages of the manual.
fn write_man_pages(command: Command, directory: &Path, manual: &Path) -> Result<()> {
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(Refusal::usage(format!(
            "{directory} is not a directory; create it with: mkdir -p {directory}"
        )));
    }
    for (name, page) in man_pages(command, manual)? {
        let path = directory.join(name);
        fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the file names and the texts of the pages, the command's own first.
fn man_pages(command: Command, manual: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut built = show_all_options(command);
    built.build();
    let mut pages = Vec::new();
    add_pages(&built, manual, &mut pages)?;
    Ok(pages)
}

/// Shows the options that `-h` hides, because a page has the text of every option. Removes the subcommand `help`,
/// because it has no page.
fn show_all_options(command: Command) -> Command {
    command
        .disable_help_subcommand(true)
        .mut_args(|argument| argument.hide_short_help(false))
        .mut_subcommands(show_all_options)
}

fn add_pages(
    command: &Command,
    manual: &Path,
    pages: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or("longhaul");
    pages.push((format!("{name}.1"), man_page(command, manual)?));
    let shown = |subcommand: &&Command| !subcommand.is_hide_set();
    for subcommand in command.get_subcommands().filter(shown) {
        add_pages(subcommand, manual, pages)?;
    }
    Ok(())
}

/// Renders one page: clap's sections, and those of [`ending`].
fn man_page(command: &Command, manual: &Path) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or("longhaul");
    let page = Man::new(command.clone())
        .title(name.to_uppercase())
        .manual("longhaul manual")
        .source(format!("longhaul {}", longhaul_command::release()));
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    if command
        .get_arguments()
        .any(|argument| !argument.is_hide_set())
    {
        page.render_options_section(&mut text)?;
    }
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    ending(command, manual).to_writer(&mut text)?;
    Ok(text)
}

/// Returns the sections that clap does not write: examples and notes, exit codes, and other pages.
fn ending(command: &Command, manual: &Path) -> Roff {
    let notes = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string);
    let notes = Notes::new(notes.as_deref().unwrap_or_default());
    let names = command.get_bin_name().unwrap_or("longhaul");
    let mut roff = Roff::new();
    add_examples(&mut roff, &notes.examples);
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(exit_status(&notes, names))]);
    add_other_pages(&mut roff, names, manual);
    roff
}

/// The text after the options, which a page has in several sections. SEE ALSO has the line about the manual.
struct Notes {
    examples: String,
    /// The exit codes, if the command has codes of its own.
    exit_codes: Option<String>,
}

impl Notes {
    fn new(text: &str) -> Self {
        let of_page = |paragraph: &&str| {
            !paragraph.starts_with("Manual: ") && !paragraph.starts_with(EXIT_CODES)
        };
        let paragraphs = || text.split("\n\n");
        let exit_codes = paragraphs().find_map(|paragraph| paragraph.strip_prefix(EXIT_CODES));
        Self {
            examples: paragraphs()
                .filter(of_page)
                .collect::<Vec<_>>()
                .join("\n\n"),
            exit_codes: exit_codes.map(|codes| codes.replace('\n', " ")),
        }
    }
}

/// The begin of a paragraph with exit codes.
const EXIT_CODES: &str = "Exit codes: ";

fn add_examples(roff: &mut Roff, examples: &str) {
    if examples.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES AND NOTES"]);
    // Lines keep their ends and indentation.
    roff.control("nf", []);
    let lines = examples.lines();
    roff.text(
        lines
            .map(|line| roman(format!("{line}\n")))
            .collect::<Vec<_>>(),
    );
    roff.control("fi", []);
}

/// Returns the exit codes of a command. `names` are its own and those of the commands above it.
fn exit_status(notes: &Notes, names: &str) -> String {
    match &notes.exit_codes {
        Some(codes) => codes.clone(),
        None if LAB_RUNS.contains(&names) => format!("{EXIT_STATUS} {UNDECIDED}"),
        None => EXIT_STATUS.to_owned(),
    }
}

const EXIT_STATUS: &str = "\
0: success. 1: failure at run time. 2: bad input; nothing was touched. 3: a right, a program or a feature of the \
kernel is missing.";

const UNDECIDED: &str = "4: a check of a lab run is undecided.";

/// Pages of the commands that run experiments.
const LAB_RUNS: [&str; 3] = ["longhaul lab", "longhaul lab run", "longhaul demo"];

/// Names the pages of the commands above, and the page of the manual.
fn add_other_pages(roff: &mut Roff, names: &str, manual: &Path) {
    roff.control("SH", ["SEE ALSO"]);
    let above = names.match_indices(' ').map(|(end, _)| &names[..end]);
    let above: Vec<_> = above
        .map(|names| format!("{}(1)", names.replace(' ', "-")))
        .collect();
    if !above.is_empty() {
        roff.text([roman(above.join(", "))]);
        roff.control("PP", []);
    }
    let name = names.split_once(' ').map_or("", |(_, name)| name);
    roff.text([roman(format!("Manual: {}", help::page_of(name, manual)))]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn pages() -> Vec<(String, String)> {
        let directory = Path::new("/usr/share/doc/longhaul");
        let command = help::complete(crate::Cli::command(), directory);
        let pages = man_pages(command, directory).unwrap();
        let text = |page| String::from_utf8(page).unwrap().replace('\\', "");
        pages
            .into_iter()
            .map(|(name, page)| (name, text(page)))
            .collect()
    }

    #[test]
    fn writes_a_page_for_each_command_and_its_subcommands() {
        let names: Vec<_> = pages().into_iter().map(|(name, _)| name).collect();
        for name in ["longhaul.1", "longhaul-relay.1", "longhaul-udt-send.1"] {
            assert!(
                names.iter().any(|page| page == name),
                "{name} is not in {names:?}"
            );
        }
        assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    }

    #[test]
    fn pages_have_all_examples_the_manual_and_the_exit_status() {
        let pages = pages();
        let (_, relay) = pages
            .iter()
            .find(|(name, _)| name == "longhaul-relay.1")
            .unwrap();
        for text in [
            "--admin 127.0.0.1:9100",
            "/usr/share/doc/longhaul/relay.md",
            "EXIT STATUS",
        ] {
            assert!(relay.contains(text), "{text} is not in {relay}");
        }
    }

    #[test]
    fn pages_have_the_text_of_every_option() {
        for (name, page) in pages() {
            let entries = page.split("\n.TP\n").skip(1);
            for entry in entries {
                let text = entry.lines().nth(1).unwrap_or_default();
                let is_text = !text.is_empty() && !text.starts_with('.');
                assert!(is_text, "{name} has no text for {entry}");
            }
        }
    }

    #[test]
    fn pages_name_only_pages_that_exist() {
        let pages = pages();
        for (name, page) in &pages {
            for (before, _) in page.match_indices("(1)").map(|(at, _)| page.split_at(at)) {
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
                let named = before.rsplit(|letter| !is_name(letter)).next().unwrap();
                let file = format!("{named}.1");
                assert!(
                    pages.iter().any(|(name, _)| *name == file),
                    "{name} names {named}"
                );
            }
        }
    }

    #[cfg(feature = "tap")]
    #[test]
    fn pages_name_the_commands_above_and_a_page_of_the_manual() {
        let pages = pages();
        for (name, other) in [
            ("longhaul", "README.md"),
            ("longhaul-relay", "longhaul(1)"),
            ("longhaul-relay", "/usr/share/doc/longhaul/relay.md"),
            ("longhaul-tap-capture", "longhaul(1), longhaul-tap(1)"),
            (
                "longhaul-tap-capture",
                "/usr/share/doc/longhaul/tap-capture.md",
            ),
        ] {
            let text = section(&pages, name, "\"SEE ALSO\"");
            assert!(text.contains(other), "{name}: {text}");
        }
    }

    #[cfg(feature = "lab")]
    #[test]
    fn exit_codes_are_those_of_the_command() {
        let pages = pages();
        let codes = |name| section(&pages, name, "\"EXIT STATUS\"");
        for name in ["longhaul-lab-run", "longhaul-demo"] {
            assert!(codes(name).contains("4: a check"), "{name}");
        }
        for name in ["longhaul", "longhaul-relay", "longhaul-doctor"] {
            assert!(!codes(name).contains("4: a check"), "{name}");
        }
        assert!(codes("longhaul-doctor").starts_with("0 nothing limits that path"));
        assert!(codes("longhaul-cc-load").starts_with("0 loaded"));
        assert!(codes("longhaul-run").starts_with("PROGRAM's"));
        for (name, page) in &pages {
            assert!(!page.contains("Exit codes:"), "{name}");
        }
    }

    /// Returns the text of one section of a page.
    #[cfg(feature = "tune")]
    fn section(pages: &[(String, String)], name: &str, title: &str) -> String {
        let file = format!("{name}.1");
        let (_, page) = pages.iter().find(|(name, _)| *name == file).unwrap();
        let (_, section) = page.split_once(&format!(".SH {title}\n")).unwrap();
        let section = section.split(".SH").next().unwrap();
        section.replace("*(Aq", "'")
    }

    #[test]
    fn name_sections_have_no_shell_command() {
        for (name, page) in pages() {
            let (_, below) = page.split_once(".SH NAME\n").unwrap();
            let line = below.lines().next().unwrap();
            assert!(!line.contains(" > "), "{name}: {line}");
        }
    }

    #[test]
    fn completes_subcommands_and_options_of_each_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = completions(crate::Cli::command(), shell).unwrap();
            assert!(
                script.contains("relay") && script.contains("socks5"),
                "{shell}"
            );
        }
    }
}
