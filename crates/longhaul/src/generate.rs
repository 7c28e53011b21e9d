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
    /// Print the completions of a shell: longhaul generate completions bash > /etc/bash_completion.d/longhaul
    Completions {
        /// Shell that the completions are for
        shell: Shell,
    },
}

/// Runs `longhaul generate` for this command line.
///
/// # Errors
/// The directory of the man pages does not exist or is not writable.
pub(crate) fn run(args: Args, command: Command) -> Result<()> {
    match args.kind {
        Kind::Man { directory, manual } => {
            write_man_pages(&help::complete(command, &manual), &directory)
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

/// Writes a page for the command and for each of its subcommands.
fn write_man_pages(command: &Command, directory: &Path) -> Result<()> {
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(Refusal::usage(format!(
            "{directory} is not a directory; create it with: mkdir -p {directory}"
        )));
    }
    for (name, page) in man_pages(command)? {
        let path = directory.join(name);
        fs::write(&path, page).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Returns the file names and the texts of the pages, the command's own first.
fn man_pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut built = command.clone();
    built.build();
    let mut pages = Vec::new();
    add_pages(&built, &mut pages)?;
    Ok(pages)
}

fn add_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or("longhaul");
    pages.push((format!("{name}.1"), man_page(command)?));
    let shown =
        |subcommand: &&Command| !subcommand.is_hide_set() && subcommand.get_name() != "help";
    for subcommand in command.get_subcommands().filter(shown) {
        add_pages(subcommand, pages)?;
    }
    Ok(())
}

/// Renders one page: clap's sections, the examples, and the exit codes that all commands share.
fn man_page(command: &Command) -> io::Result<Vec<u8>> {
    let name = command.get_display_name().unwrap_or("longhaul").to_owned();
    let examples = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(ToString::to_string);
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
    ending(examples.as_deref()).to_writer(&mut text)?;
    Ok(text)
}

fn ending(examples: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    if let Some(examples) = examples {
        roff.control("SH", ["EXAMPLES AND NOTES"]);
        // Lines keep their ends and indentation.
        roff.control("nf", []);
        roff.text(
            examples
                .lines()
                .map(|line| roman(format!("{line}\n")))
                .collect::<Vec<_>>(),
        );
        roff.control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman(EXIT_STATUS)]);
    roff
}

const EXIT_STATUS: &str = "\
0: success. 1: failure at run time. 2: bad input; nothing was touched. 3: a right, a program or a feature of the \
kernel is missing. 4: a check of a lab run is undecided.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn pages() -> Vec<(String, String)> {
        let directory = Path::new("/usr/share/doc/longhaul");
        let pages = man_pages(&help::complete(crate::Cli::command(), directory)).unwrap();
        let text = |page| String::from_utf8(page).unwrap();
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
            assert!(
                relay.replace('\\', "").contains(text),
                "{text} is not in {relay}"
            );
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
