// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scenarios that extend others: `extends = "nec-linux"` inherits everything from there, and the
//! file's own values have precedence. Tables are merged key by key, and arrays of named tables by
//! their names; everything else is replaced. `unset = ["check.slow"]` first removes a value of
//! the base.
//!
//! One range of offsets covers all files: the text of each file is parsed after as many blanks as
//! the texts before it have bytes. So an error in the merged table still has its file, line and
//! column.

use super::{Source, key_path, library, parameters::Parameters};
use crate::scenario::config_error::ConfigError;
use anyhow::Result;
use longhaul_command::exit::{Refusal, explain_integer_error};
use serde::de::DeserializeOwned;
use std::fmt::Display;
use toml::{
    Spanned, Table,
    de::{DeArray, DeTable, DeValue, Deserializer},
};

/// Most files in a chain of bases.
const DEPTH_MAX: usize = 8;
/// Key of the scenario to extend.
const EXTENDS: &str = "extends";
/// Key of the values of the base to remove.
const UNSET: &str = "unset";

/// File of a scenario with all files that it extends.
#[derive(Debug, Clone)]
pub(crate) struct ScenarioSources {
    /// The scenario itself first, the last base last. Never empty.
    files: Vec<File>,
}

#[derive(Debug, Clone)]
struct File {
    source: Source,
    /// Start of the file in the common offsets.
    start: usize,
    /// Text of the file after as many blanks as `start`.
    padded: String,
}

/// Problem at a byte of the common offsets.
struct Problem {
    at: usize,
    text: String,
}

impl ScenarioSources {
    /// Reads `source` and the files that it extends.
    ///
    /// # Errors
    /// Invalid TOML, a base that does not exist, or a chain of bases that is circular or too long.
    pub(crate) fn load(source: &Source) -> Result<Self> {
        let mut sources = Self { files: Vec::new() };
        let mut next = Some(source.clone());
        while let Some(source) = next {
            // The end of a text is a valid offset too.
            let start = sources.files.last().map_or(0, |file| file.padded.len() + 1);
            let padded = " ".repeat(start) + &source.text;
            sources.files.push(File {
                source,
                start,
                padded,
            });
            next = sources.base_of_last_file()?;
        }
        Ok(sources)
    }

    /// Source of the last file's base, if it has one.
    fn base_of_last_file(&self) -> Result<Option<Source>> {
        let last = &self.files[self.files.len() - 1];
        let table = self.parse(last)?.into_inner();
        let Some(value) = table.get(EXTENDS) else {
            let unset = table.get(UNSET).map(|value| value.span().start);
            return unset.map_or(Ok(None), |at| Err(self.refusal(at, "unset needs extends")));
        };
        let refused = |problem: &str| self.refusal(value.span().start, problem);
        let name = value.get_ref().as_str();
        let name =
            name.ok_or_else(|| refused("extends is the name of a scenario or the path of a file"))?;
        let base = library::find_base(&last.source, name).map_err(|problem| refused(&problem))?;
        if self
            .files
            .iter()
            .any(|file| is_same_file(&file.source, &base))
        {
            return Err(refused("these files extend each other in a circle"));
        }
        if self.files.len() == DEPTH_MAX {
            return Err(refused(&format!(
                "more than {DEPTH_MAX} files extend each other"
            )));
        }
        Ok(Some(base))
    }

    fn parse<'f>(&self, file: &'f File) -> Result<Spanned<DeTable<'f>>> {
        DeTable::parse(&file.padded).map_err(|error| self.parse_error(&error))
    }

    /// Merges all files into one table. Parameters are not yet filled in.
    ///
    /// # Errors
    /// A path in `unset` that no base has.
    pub(crate) fn merged(&self) -> Result<Spanned<DeTable<'_>>> {
        let mut merged = DeTable::new();
        for file in self.files.iter().rev() {
            let mut own = self.parse(file)?.into_inner();
            own.remove(EXTENDS);
            let removed = own
                .remove(UNSET)
                .map_or(Ok(()), |unset| remove_paths(&mut merged, &unset));
            removed.map_err(|problem| self.refusal(problem.at, &problem.text))?;
            merge(&mut merged, own);
        }
        // A missing top-level key is reported in the scenario's own file.
        Ok(Spanned::new(0..0, merged))
    }

    /// Fills in the values of parameters.
    ///
    /// # Errors
    /// A placeholder without a parameter, with its position.
    pub(crate) fn filled<'t>(
        &'t self,
        merged: &Spanned<DeTable<'t>>,
        parameters: &'t Parameters,
    ) -> Result<Spanned<DeTable<'t>>> {
        let mut filled = merged.clone();
        parameters.fill_in(filled.get_mut()).map_err(|error| {
            let text = &self.file_at(error.span.start).padded[error.span.clone()];
            let inside = text.find(&error.placeholder).unwrap_or(0);
            self.refusal(error.span.start + inside, &error)
        })?;
        Ok(filled)
    }

    /// Returns the merged scenario as TOML, without comments and with parameters not filled in.
    ///
    /// # Errors
    /// Those of [`Self::merged`].
    pub(crate) fn resolved(&self) -> Result<String> {
        let all: Table = self.read(self.merged()?)?;
        let origins = self.files.iter().map(|file| file.source.origin.as_str());
        let origins = origins.collect::<Vec<_>>().join(", on ");
        Ok(format!("# {origins}\n\n{}", toml::to_string_pretty(&all)?))
    }

    /// Deserializes the merged table as a `T`.
    ///
    /// # Errors
    /// A mismatch with `T`, with file, line and column.
    pub(crate) fn read<T: DeserializeOwned>(&self, merged: Spanned<DeTable<'_>>) -> Result<T> {
        T::deserialize(Deserializer::from(merged)).map_err(|error| self.parse_error(&error))
    }

    fn parse_error(&self, error: &toml::de::Error) -> anyhow::Error {
        let at = error.span().map_or(0, |span| span.start);
        self.refusal(
            at,
            &explain_integer_error(error.message()).replace('\n', " "),
        )
    }

    /// Refuses the scenario for an error, with its position. A value from a parameter has the
    /// position of its placeholder.
    pub(crate) fn refuse(&self, error: &ConfigError) -> anyhow::Error {
        match self.merged() {
            Ok(merged) => self.refusal(error.offset(&merged), error),
            Err(error) => error,
        }
    }

    /// Returns a refusal at byte `at` of the common offsets.
    pub(crate) fn refusal(&self, at: usize, problem: &(impl Display + ?Sized)) -> anyhow::Error {
        Refusal::usage(format!("{}: {problem}", self.line_and_column(at)))
    }

    /// File, line and column at byte `at` of the common offsets.
    fn line_and_column(&self, at: usize) -> String {
        let File {
            source,
            start,
            padded,
        } = self.file_at(at);
        let before = &padded[*start..at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("{}: line {line}, column {column}", source.origin)
    }

    fn file_at(&self, at: usize) -> &File {
        let next = self.files.partition_point(|file| file.start <= at);
        &self.files[next.saturating_sub(1)]
    }
}

fn is_same_file(one: &Source, other: &Source) -> bool {
    let file = |source: &Source| {
        source
            .path
            .as_ref()
            .and_then(|path| path.canonicalize().ok())
    };
    match (file(one), file(other)) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.name == other.name,
        _ => false,
    }
}

/// Merges tables key by key.
fn merge<'a>(base: &mut DeTable<'a>, own: DeTable<'a>) {
    for (key, value) in own {
        match base.get_mut(key.get_ref().as_ref()) {
            Some(old) => combine(old, value),
            None => drop(base.insert(key, value)),
        }
    }
}

fn combine<'a>(old: &mut Spanned<DeValue<'a>>, new: Spanned<DeValue<'a>>) {
    let span = new.span();
    match (old.get_mut(), new.into_inner()) {
        (DeValue::Table(base), DeValue::Table(own)) => merge(base, own),
        (DeValue::Array(base), DeValue::Array(own)) if has_names(base) && has_names(&own) => {
            merge_named(base, own);
        }
        (_, new) => *old = Spanned::new(span, new),
    }
}

/// Whether an array consists of tables with a name.
fn has_names(array: &DeArray<'_>) -> bool {
    !array.is_empty() && array.iter().all(|one| name(one).is_some())
}

fn name<'v>(value: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    value.get_ref().as_table()?.get("name")?.get_ref().as_str()
}

/// Merges arrays of named tables by name. New elements are appended.
fn merge_named<'a>(base: &mut DeArray<'a>, own: DeArray<'a>) {
    for value in own {
        match base.iter_mut().find(|old| name(old) == name(&value)) {
            Some(old) => combine(old, value),
            None => base.push(value),
        }
    }
}

/// Removes every path of `unset` from `base`.
fn remove_paths(base: &mut DeTable<'_>, unset: &Spanned<DeValue<'_>>) -> Result<(), Problem> {
    let wrong = |value: &Spanned<DeValue<'_>>, text: String| Problem {
        at: value.span().start,
        text,
    };
    let list = unset.get_ref().as_array();
    let list = list.ok_or_else(|| {
        wrong(
            unset,
            format!("{UNSET} is a list, such as {UNSET} = [\"matrix.loss\"]"),
        )
    })?;
    for value in list {
        let path = value.get_ref().as_str().unwrap_or_default();
        let keys = key_path::split(path);
        if !remove(base, &keys) {
            return Err(wrong(value, format!("the base has no {path:?}")));
        }
    }
    Ok(())
}

/// Removes the value at `path`, and returns whether it existed.
fn remove(table: &mut DeTable<'_>, path: &[String]) -> bool {
    match path {
        [] => false,
        [last] => table.remove(last.as_str()).is_some(),
        [first, rest @ ..] => {
            table
                .get_mut(first.as_str())
                .is_some_and(|value| match value.get_mut() {
                    DeValue::Table(table) => remove(table, rest),
                    DeValue::Array(array) => remove_named(array, rest),
                    _ => false,
                })
        }
    }
}

fn remove_named(array: &mut DeArray<'_>, path: &[String]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    let wanted = |value: &Spanned<DeValue<'_>>| name(value) == Some(first.as_str());
    match rest {
        [] => {
            let before = array.len();
            let kept: DeArray<'_> = std::mem::replace(array, DeArray::new())
                .into_iter()
                .filter(|one| !wanted(one))
                .collect();
            *array = kept;
            array.len() < before
        }
        rest => array
            .iter_mut()
            .find(|one| wanted(one))
            .is_some_and(|one| match one.get_mut() {
                DeValue::Table(table) => remove(table, rest),
                _ => false,
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"title = "base"
question = "q"
[matrix]
loss = [0.0, 0.1]
delay = ["1ms"]
[[links]]
name = "wan"
rate = "1gbit"
delay = "${delay}"
[[links]]
name = "lan"
kind = "veth"
[[check]]
name = "at least 6.5"
threshold = ">= 6.5"
for_each = { loss = 0.1 }
[[reference]]
figures = { a = 1 }
[sysctl]
"net.ipv4.tcp_rmem" = "1 2 3"
"#;

    /// Creates files in a directory, by name.
    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        directory
    }

    fn load(directory: &tempfile::TempDir, name: &str) -> Result<ScenarioSources> {
        let path = directory.path().join(name);
        let mut source = library::find(path.to_str().unwrap())?;
        source.origin = name.to_owned();
        ScenarioSources::load(&source)
    }

    /// Merges a file with BASE, or returns the error without the directory.
    fn over(own: &str) -> Result<Table, String> {
        let directory = directory(&[("base.toml", BASE), ("own.toml", own)]);
        let read = || {
            let sources = load(&directory, "own.toml")?;
            sources.read(sources.merged()?)
        };
        read().map_err(|error: anyhow::Error| {
            let here = format!("{}/", directory.path().display());
            error.to_string().replace(&here, "")
        })
    }

    #[test]
    fn tables_merge_by_key_and_arrays_by_name() {
        let own = "extends = 'base.toml'\ntitle = 'own'\n[matrix]\nloss = [0.5]\n\
                   [[links]]\nname = 'wan'\ndelay = '9ms'\n[[links]]\nname = 'far'\n\
                   [[check]]\nname = 'at least 6.5'\nthreshold = '>= 7'\n[[reference]]\nfigures = { b = 2 }";
        let merged = over(own).unwrap();
        let expected: Table = toml::from_str(
            &BASE
                .replace("title = \"base\"", "title = \"own\"")
                .replace("loss = [0.0, 0.1]", "loss = [0.5]")
                .replace("${delay}", "9ms")
                .replace("[[check]]", "[[links]]\nname = 'far'\n[[check]]")
                .replace(">= 6.5", ">= 7")
                .replace("a = 1", "b = 2"),
        )
        .unwrap();
        assert_eq!(merged, expected);
        let keys: Vec<&String> = merged["matrix"].as_table().unwrap().keys().collect();
        assert_eq!(keys, ["loss", "delay"], "the order of the base stays");
    }

    #[test]
    fn unset_removes_values_of_the_base() {
        let own = "extends = 'base.toml'\nunset = ['matrix.delay', 'links.lan', 'links.wan.rate', 'reference', \
                   'check.\"at least 6.5\".for_each', 'sysctl.\"net.ipv4.tcp_rmem\"']";
        let merged = over(own).unwrap();
        let has = |path: &str| {
            let mut table = DeTable::parse("").unwrap().into_inner();
            let text = toml::to_string(&merged).unwrap();
            merge(&mut table, DeTable::parse(&text).unwrap().into_inner());
            remove(&mut table, &key_path::split(path))
        };
        assert!(
            has("matrix.loss") && has("links.wan.delay") && has("check.\"at least 6.5\".threshold")
        );
        for gone in [
            "matrix.delay",
            "links.lan",
            "links.wan.rate",
            "reference",
            "check.\"at least 6.5\".for_each",
        ] {
            assert!(!has(gone), "{gone}");
        }
        assert_eq!(merged["sysctl"].as_table().unwrap().len(), 0);
    }

    #[test]
    fn values_are_inherited_over_two_levels() {
        let files = [
            ("base.toml", BASE),
            (
                "middle.toml",
                "extends = 'base.toml'\nquestion = 'middle'\n",
            ),
            ("own.toml", "extends = 'middle.toml'\ntitle = 'own'\n"),
        ];
        let directory = directory(&files);
        let sources = load(&directory, "own.toml").unwrap();
        assert_eq!(sources.files.len(), 3);
        let merged: Table = sources.read(sources.merged().unwrap()).unwrap();
        assert_eq!(
            (merged["title"].as_str(), merged["question"].as_str()),
            (Some("own"), Some("middle"))
        );
        assert!(merged.contains_key("links"));
    }

    #[test]
    fn built_in_scenario_can_be_a_base() {
        let directory = directory(&[("own.toml", "extends = 'nec-dvd'\n")]);
        let sources = load(&directory, "own.toml").unwrap();
        assert_eq!(sources.files[1].source.origin, "nec-dvd (built in)");
        let resolved: Table = toml::from_str(&sources.resolved().unwrap()).unwrap();
        assert!(resolved.contains_key("links") && !resolved.contains_key("extends"));
    }

    #[test]
    fn errors_name_the_file_that_is_wrong() {
        let wrong = [
            "extends = 'base.toml'\nunset = ['matrix.los']\n",
            "extends = 'base.toml'\nunset = 'matrix.loss'\n",
            "extends = 'nothing.toml'\n",
            "title = 't'\nextends = 7\n",
            "unset = []\n",
            "extends = 'base.toml'\n[matrix\n",
            "extends = 'own.toml'\n",
        ];
        let errors: Vec<String> = wrong.iter().map(|own| over(own).unwrap_err()).collect();
        let listed = |error: &String| error.split("; built in").next().unwrap().to_owned();
        let errors: Vec<String> = errors.iter().map(listed).collect();
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn refuses_circular_and_too_long_chains() {
        let directory = directory(&[
            ("a.toml", "extends = 'b.toml'\n"),
            ("b.toml", "\nextends = './a.toml'\n"),
        ]);
        let error = load(&directory, "a.toml").unwrap_err().to_string();
        assert!(
            error.contains("b.toml: line 2, column 11: these files extend each other in a circle"),
            "{error}"
        );
        let tower = |floors: usize| {
            let directory = self::directory(&[("0.toml", "")]);
            for n in 1..floors {
                let text = format!("extends = '{}.toml'", n - 1);
                std::fs::write(directory.path().join(format!("{n}.toml")), text).unwrap();
            }
            load(&directory, &format!("{}.toml", floors - 1)).map(|_| ())
        };
        assert!(tower(DEPTH_MAX).is_ok());
        assert!(tower(DEPTH_MAX + 1).is_err());
    }

    #[test]
    fn positions_are_kept_when_parameters_are_filled_in() {
        let base = "a = \"${x}\"\nb = { c = \"${x}\", d = 1 }\n";
        let directory = directory(&[
            ("base.toml", base),
            (
                "own.toml",
                "extends = 'base.toml'\ne = \"${x}\"\nf = true\n",
            ),
        ]);
        let sources = load(&directory, "own.toml").unwrap();
        let values = toml::from_str("x = 'something long'").unwrap();
        let parameters = Parameters::of(&values);
        let merged = sources.filled(&sources.merged().unwrap(), &parameters);
        let merged = merged.unwrap();
        let d = merged.get_ref()["b"].get_ref()["d"].span().start;
        let f = merged.get_ref()["f"].span().start;
        let place = |at| sources.refusal(at, &"x").to_string();
        assert!(
            place(d).ends_with("base.toml: line 2, column 23: x"),
            "{}",
            place(d)
        );
        assert!(
            place(f).ends_with("own.toml: line 3, column 5: x"),
            "{}",
            place(f)
        );
    }
}
