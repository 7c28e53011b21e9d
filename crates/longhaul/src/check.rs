// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul check`: checks the commands that a lab will start, without starting them. It prints the options of each
//! first. Then each line of standard input is a JSON array, a command and its flags, and each line of standard output is
//! the answer.

use anyhow::Result;
use clap::{
    Arg, Args, Command, Error,
    error::{ContextKind, ContextValue},
};
use longhaul_command::{exit::Refusal, outln};
use longhaul_lab::command_check::{Answer, Refused};
use longhaul_tuning::decp;
use std::{collections::BTreeMap, io};

/// Runs `longhaul check`.
pub(crate) fn run() -> Result<()> {
    let all = BTreeMap::from([
        ("decp", options::<decp::Args>()),
        ("link", options::<longhaul_link::Args>()),
        ("relay", options::<longhaul_relay::Args>()),
    ]);
    outln!("{}", serde_json::to_string(&all)?);
    for line in io::stdin().lines() {
        let words: Vec<String> = serde_json::from_str(&line?)?;
        outln!("{}", serde_json::to_string(&check(&words))?);
    }
    Ok(())
}

/// Returns the names of a command's options, as typed after `--`.
fn options<A: Args>() -> Vec<String> {
    let command = A::augment_args(Command::new("check"));
    let names = command.get_arguments().filter_map(Arg::get_long);
    names.map(str::to_owned).collect()
}

fn check(words: &[String]) -> Answer {
    match words.first().map(String::as_str) {
        Some("decp") => answer(words, |args| decp::check(args).map(|()| Vec::new())),
        Some("link") => answer(words, |args| {
            longhaul_link::check(args).map(|()| Vec::new())
        }),
        Some("relay") => answer(words, longhaul_relay::check),
        _ => Err(Refused {
            option: None,
            problem: "it checks decp, link and relay only".to_owned(),
        }),
    }
}

fn answer<A: Args, T>(words: &[String], check: impl FnOnce(&A) -> Result<T>) -> Result<T, Refused> {
    let matches = A::augment_args(Command::new("check")).try_get_matches_from(words);
    let args = matches.and_then(|matches| A::from_arg_matches(&matches));
    check(&args.map_err(|error| refused_flag(&error))?).map_err(|error| refused(&error))
}

/// Returns the refusal of flags that cannot be parsed.
fn refused_flag(error: &Error) -> Refused {
    // `--delay <TIME>`, or the words of the command line.
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => text.trim_start_matches("--").split([' ', '=']).next(),
        _ => None,
    };
    Refused {
        option: option.map(str::to_owned),
        problem: first_paragraph(&error.to_string()),
    }
}

/// Returns the first paragraph of clap's message in one line, without the prefix `error: `: what is wrong, and then the
/// values that are possible or the options that are missing.
fn first_paragraph(message: &str) -> String {
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let lines = message.lines().take_while(|line| !line.trim().is_empty());
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn refused(error: &anyhow::Error) -> Refused {
    let option = match error.downcast_ref() {
        Some(Refusal::Option(name, _)) => Some(name.clone()),
        _ => None,
    };
    let problem = error.to_string();
    Refused { option, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        check(&words).unwrap_err().problem
    }

    #[test]
    fn names_missing_options_and_possible_values() {
        let missing = problem(&["decp"]);
        assert!(missing.contains("not provided: --filter"), "{missing}");
        let invalid = problem(&["relay", "--mode", "foo"]);
        assert!(invalid.contains("possible values: "), "{invalid}");
    }
}
