// SPDX-License-Identifier: MIT OR Apache-2.0
//! Old names of flags, subcommands, values and keys of TOML files. They work for one version, and each use prints a
//! warning with the new name.
//!
//! Old names on the command line are hidden aliases of clap, such as `#[arg(long = "filter", alias = "only")]`. Each
//! file format has a table of [`RenamedKey`]s.

use crate::{errln, logging};
use clap::{Arg, Command};
use parking_lot::Mutex;
use std::{collections::BTreeSet, ffi::OsString, path::Path};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Old names of which this process has warned, each with its new name.
static WARNED: Mutex<BTreeSet<(String, String)>> = Mutex::new(BTreeSet::new());

/// Warns once, on standard error, that the name `old` is now `new`. The warning is a log line if the log is for a
/// program: JSON, or the journal.
pub fn warn(old: &str, new: &str) {
    if !WARNED.lock().insert((old.to_owned(), new.to_owned())) {
        return;
    }
    if logging::is_for_programs() {
        tracing::warn!("{old} is now {new}; the next version rejects the old name");
    } else {
        errln!("longhaul: warning: {old} is now {new}; the next version rejects the old name");
    }
}

/// Warns of an old key in a file, with the file's path and the line. `text` is the content of the file.
pub fn warn_of_key(file: &Path, text: &str, key: &OldKey) {
    let line = text[..key.offset].matches('\n').count() + 1;
    let old = format!("{}:{line}: {}", file.display(), key.rename.old);
    warn(&old, key.rename.new);
}

/// Warns of each old name on the command line. The first of `args` is the program's name.
pub fn warn_of_args(mut command: Command, args: impl IntoIterator<Item = OsString>) {
    // Before `build`, subcommands do not have the global flags.
    command.build();
    let args = args.into_iter().skip(1);
    let args: Vec<String> = args.map(|arg| arg.to_string_lossy().into_owned()).collect();
    for (old, new) in old_names(&command, &args) {
        warn(&old, &new);
    }
}

/// Returns each old name among the arguments, with its new name. Arguments after `--`, and arguments of a
/// program that the command runs, are skipped.
fn old_names(command: &Command, args: &[String]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut command = command;
    let mut path = String::new();
    let mut args = args.iter();
    while let Some(arg) = args.next().filter(|arg| *arg != "--") {
        if let Some(flag) = arg.strip_prefix("--") {
            let (name, attached) = split_flag(flag);
            let Some(arg) = find_flag(command, name) else {
                continue;
            };
            found.extend(old_flag(arg, name));
            let value = attached.or_else(|| {
                takes_value(arg)
                    .then(|| args.next())
                    .flatten()
                    .map(String::as_str)
            });
            found.extend(value.and_then(|value| old_value(arg, value)));
        } else if let Some(subcommand) = command.find_subcommand(arg) {
            found.extend(old_subcommand(&path, subcommand, arg));
            path += &format!("{} ", subcommand.get_name());
            command = subcommand;
        } else if !arg.starts_with('-')
            && command.get_positionals().any(Arg::is_trailing_var_arg_set)
        {
            break;
        }
    }
    found
}

/// Splits `name=value` or `name`.
fn split_flag(flag: &str) -> (&str, Option<&str>) {
    match flag.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (flag, None),
    }
}

fn find_flag<'c>(command: &'c Command, name: &str) -> Option<&'c Arg> {
    let is_named = |arg: &&Arg| arg.get_long() == Some(name) || is_hidden_alias(arg, name);
    command.get_arguments().find(is_named)
}

fn is_hidden_alias(arg: &Arg, name: &str) -> bool {
    let visible = arg.get_visible_aliases().unwrap_or_default();
    let all = arg.get_all_aliases().unwrap_or_default();
    all.contains(&name) && !visible.contains(&name)
}

/// Returns each old name of a command's flags, without dashes, with its new name.
#[must_use]
pub fn renamed_flags(command: &Command) -> Vec<(String, String)> {
    let renamed = |arg: &Arg| {
        let new = arg.get_long().unwrap_or_default().to_owned();
        let old = arg.get_all_aliases().unwrap_or_default().into_iter();
        let old = old.filter(|name| is_hidden_alias(arg, name));
        let pairs = old.map(|old| (old.to_owned(), new.clone()));
        pairs.collect::<Vec<_>>()
    };
    command.get_arguments().flat_map(renamed).collect()
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_num_args()
        .is_some_and(|range| range.min_values() > 0)
        || (arg.get_num_args().is_none() && arg.get_action().takes_values())
}

fn old_flag(arg: &Arg, name: &str) -> Option<(String, String)> {
    let new = arg.get_long().filter(|_| is_hidden_alias(arg, name))?;
    Some((format!("--{name}"), format!("--{new}")))
}

fn old_value(arg: &Arg, value: &str) -> Option<(String, String)> {
    let flag = arg.get_long()?;
    let possible = arg.get_possible_values();
    let new = possible
        .iter()
        .find(|possible| possible.get_name() != value && possible.matches(value, false))?;
    Some((
        format!("--{flag} {value}"),
        format!("--{flag} {}", new.get_name()),
    ))
}

/// Returns the old name of a subcommand with its new name, if `name` is old. `path` has the names of the outer
/// subcommands, each followed by a space.
fn old_subcommand(path: &str, subcommand: &Command, name: &str) -> Option<(String, String)> {
    let is_visible = subcommand.get_visible_aliases().any(|alias| alias == name);
    let is_old = subcommand.get_name() != name && !is_visible;
    let new = subcommand.get_name();
    is_old.then(|| (format!("{path}{name}"), format!("{path}{new}")))
}

/// A key of a TOML file that was renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenamedKey {
    /// Path of the key's table, such as `relay.*.limits`. It has the new names of tables. An asterisk matches any key.
    /// An array of tables is written like a table. An empty path is the top level of the file.
    pub table: &'static str,
    /// Name in earlier versions.
    pub old: &'static str,
    /// Name from this version on.
    pub new: &'static str,
}

/// An old key that a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldKey {
    /// Byte offset of the key in the file.
    pub offset: usize,
    /// The key's old and new name.
    pub rename: RenamedKey,
}

/// Renames the old keys of a file, in the order of `renames`, and returns them. If a table has both the old and the new
/// key, the old key stays. Parsing the file then fails with the position of the old key.
pub fn rename_keys(file: &mut DeTable<'_>, renames: &[RenamedKey]) -> Vec<OldKey> {
    let mut found = Vec::new();
    for &renamed in renames {
        let path: Vec<&str> = renamed
            .table
            .split('.')
            .filter(|key| !key.is_empty())
            .collect();
        rename_in_table(file, &path, &mut |table| {
            found.extend(rename_key(table, renamed));
        });
    }
    found
}

/// Applies `rename` to each table at a path.
fn rename_in_table<'t>(
    table: &mut DeTable<'t>,
    path: &[&str],
    rename: &mut impl FnMut(&mut DeTable<'t>),
) {
    let Some((first, rest)) = path.split_first() else {
        return rename(table);
    };
    for (key, value) in table.iter_mut() {
        if *first == "*" || key.get_ref() == first {
            rename_in_value(value.get_mut(), rest, rename);
        }
    }
}

fn rename_in_value<'t>(
    value: &mut DeValue<'t>,
    path: &[&str],
    rename: &mut impl FnMut(&mut DeTable<'t>),
) {
    match value {
        DeValue::Table(table) => rename_in_table(table, path, rename),
        DeValue::Array(array) => {
            for value in array.iter_mut() {
                rename_in_value(value.get_mut(), path, rename);
            }
        }
        _ => {}
    }
}

fn rename_key(table: &mut DeTable<'_>, renamed: RenamedKey) -> Option<OldKey> {
    if table.contains_key(renamed.new) {
        return None;
    }
    let (key, value) = table.remove_entry(renamed.old)?;
    let offset = key.span().start;
    table.insert(Spanned::new(key.span(), renamed.new.into()), value);
    Some(OldKey {
        offset,
        rename: renamed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{ArgAction, builder::PossibleValue};

    fn command() -> Command {
        let filter = Arg::new("filter")
            .long("filter")
            .alias("only")
            .visible_alias("where");
        let order = [
            PossibleValue::new("no").alias("keep"),
            PossibleValue::new("yes").alias("switch"),
        ];
        let reordering = Arg::new("order")
            .long("reordering")
            .alias("order")
            .value_parser(order);
        let restart = Arg::new("restart")
            .long("restart")
            .alias("fresh")
            .action(ArgAction::SetTrue);
        let validate = Command::new("validate")
            .alias("check")
            .args([filter, reordering, restart]);
        let program = Arg::new("program").num_args(1..).trailing_var_arg(true);
        let run = Command::new("run")
            .arg(program)
            .arg(Arg::new("cc").long("cc").alias("only"));
        Command::new("longhaul").subcommands([validate, run])
    }

    fn found(line: &str) -> Vec<String> {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let found = old_names(&command(), &args).into_iter();
        found.map(|(old, new)| format!("{old} → {new}")).collect()
    }

    #[test]
    fn finds_old_flags_subcommands_and_values() {
        assert_eq!(
            found("check --only=a --order keep --fresh"),
            [
                "--fresh → --restart",
                "--only → --filter",
                "--order → --reordering",
                "--reordering keep → --reordering no",
                "check → validate"
            ]
        );
        assert_eq!(
            found("validate --where a --reordering no --restart"),
            [""; 0]
        );
    }

    #[test]
    fn lists_old_flags_of_a_command() {
        let command = command();
        let validate = command.find_subcommand("validate").unwrap();
        let names = [
            ("only", "filter"),
            ("order", "reordering"),
            ("fresh", "restart"),
        ];
        let names = names.map(|(old, new)| (old.to_owned(), new.to_owned()));
        assert_eq!(renamed_flags(validate), names);
    }

    #[test]
    fn finds_old_flags_after_a_global_flag() {
        let level = Arg::new("level").long("log-level").global(true);
        let mut command = command().arg(level);
        command.build();
        let args = ["run", "--log-level", "info", "--only", "bbr", "true"].map(str::to_owned);
        let found = old_names(&command, &args);
        assert_eq!(found, [("--only".to_owned(), "--cc".to_owned())].into());
    }

    #[test]
    fn ignores_values_and_arguments_of_other_programs() {
        assert_eq!(found("run --cc check curl --only"), [""; 0]);
        assert_eq!(found("validate -- --only"), [""; 0]);
    }

    const RENAMES: [RenamedKey; 3] = [
        RenamedKey {
            table: "",
            old: "vary",
            new: "matrix",
        },
        RenamedKey {
            table: "links",
            old: "like",
            new: "same_as",
        },
        RenamedKey {
            table: "relays.*",
            old: "when",
            new: "enabled",
        },
    ];

    #[test]
    fn renames_keys_with_their_positions() {
        let text = "vary.x = [1]\nlinks = [{ like = 'a' }, { same_as = 'b', like = 'c' }]\n[relays.r]\nwhen = true\n";
        let mut file = DeTable::parse(text).unwrap().into_inner();
        let found = rename_keys(&mut file, &RENAMES);
        let found: Vec<_> = found
            .iter()
            .map(|key| (key.offset, key.rename.new))
            .collect();
        assert_eq!(
            found,
            [
                (0, "matrix"),
                (24, "same_as"),
                (text.find("when").unwrap(), "enabled")
            ]
        );
        let second = &file["links"].get_ref().as_array().unwrap()[1];
        assert!(second.get_ref().as_table().unwrap().contains_key("like"));
    }
}
