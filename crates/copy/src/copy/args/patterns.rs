// SPDX-License-Identifier: MIT OR Apache-2.0
//! Patterns of `--exclude` and `--include`, in the order of the command line. The last match decides.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, error::Error};
use longhaul_store::tree::filter::Rule;

/// Constructor of a rule from a pattern.
type RuleConstructor = fn(String) -> Rule;

const KINDS: [(&str, RuleConstructor, &str); 2] = [
    (
        "exclude",
        Rule::Exclude,
        "Leave out entries that match, in the syntax of .gitignore; repeatable. The last pattern that matches decides",
    ),
    (
        "include",
        Rule::Include,
        "Copy entries that match, even if an earlier pattern excludes them. If the first pattern is an --include, nothing else is copied",
    ),
];

/// Rules of all patterns, in order.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    pub(crate) rules: Vec<Rule>,
}

impl Args for Patterns {
    fn augment_args(command: Command) -> Command {
        command.args(KINDS.map(|(name, _, help)| {
            let repeatable = Arg::new(name).long(name).action(ArgAction::Append);
            repeatable.value_name("PATTERN").help(help)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Patterns {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut rules: Vec<(usize, Rule)> = KINDS
            .into_iter()
            .flat_map(|(name, kind, _)| positioned_rules(matches, name, kind))
            .collect();
        rules.sort_by_key(|(position, _)| *position);
        Ok(Self {
            rules: rules.into_iter().map(|(_, rule)| rule).collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the rules of one option, each with its position on the command line.
fn positioned_rules(
    matches: &ArgMatches,
    name: &str,
    kind: RuleConstructor,
) -> impl Iterator<Item = (usize, Rule)> {
    let positions = matches.indices_of(name).into_iter().flatten();
    let patterns = matches.get_many::<String>(name).into_iter().flatten();
    let rules = patterns.cloned().map(kind);
    positions.zip(rules).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_the_order_of_the_command_line() {
        let words = "copy --include=a --exclude b --include c --exclude=d";
        let command = Patterns::augment_args(Command::new("copy"));
        let matches = command.get_matches_from(words.split(' '));
        let expected = [
            Rule::Include("a".into()),
            Rule::Exclude("b".into()),
            Rule::Include("c".into()),
            Rule::Exclude("d".into()),
        ];
        assert_eq!(
            Patterns::from_arg_matches(&matches).unwrap().rules,
            expected
        );
    }
}
