// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scenario that stands on another: `base = "nec-linux"` takes everything from there, and what the file says
//! itself goes before. Tables are merged key by key, arrays of named tables by their names; everything else is
//! replaced. `without = ["check.slow"]` takes something out of the base first.
//!
//! One offset names a place in all files: each file's text is parsed behind as many blanks as the texts before it
//! have bytes. So an error in what was merged still knows its file, line and column.

use super::{
    Source, library,
    parameters::{Filled, fill_in},
};
use crate::scenario::fault::Fault;
use anyhow::Result;
use longhaul_command::exit::Refusal;
use serde::de::DeserializeOwned;
use std::fmt::Display;
use toml::{
    Spanned, Table,
    de::{DeArray, DeTable, DeValue, Deserializer},
};

/// Files that stand on each other.
const DEPTH_MAX: usize = 8;
/// Which file a scenario stands on.
const BASE: &str = "base";
/// What it does not take from there.
const WITHOUT: &str = "without";

/// A scenario's own file, and those that it stands on.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// The farthest base first, the scenario itself last. Never empty.
    sources: Vec<Source>,
}

/// The texts of a family with parameters in place.
pub(crate) struct Texts<'a> {
    files: Vec<File<'a>>,
}

struct File<'a> {
    source: &'a Source,
    filled: Filled,
    /// Where it begins in the offsets that all files share.
    begins: usize,
    /// The text behind so many blanks.
    padded: String,
}

/// Something wrong at a byte of the offsets that all files share.
struct Problem {
    at: usize,
    text: String,
}

impl Family {
    /// Finds the files that `source` stands on.
    ///
    /// # Errors
    /// A base that is not there, files that stand on each other in a circle or too deeply.
    pub(crate) fn gather(source: &Source) -> Result<Self> {
        let mut sources = vec![source.clone()];
        while let Some((at, base)) = base_of(&sources[0])? {
            let refused = |problem: &str| refusal(&sources[0], at, problem);
            let base = library::beside(&sources[0], &base).map_err(|problem| refused(&problem))?;
            if sources.iter().any(|one| same(one, &base)) {
                return Err(refused("these files stand on each other in a circle"));
            }
            if sources.len() == DEPTH_MAX {
                return Err(refused(&format!(
                    "more than {DEPTH_MAX} files stand on each other"
                )));
            }
            sources.insert(0, base);
        }
        Ok(Self { sources })
    }

    /// What results, as TOML: without comments, parameters left as they are.
    ///
    /// # Errors
    /// As of [`Texts::merged`].
    pub(crate) fn resolved(&self) -> Result<String> {
        let texts = self.plain();
        let all: Table = texts.read(texts.merged()?)?;
        let origins = self
            .sources
            .iter()
            .rev()
            .map(|source| source.origin.as_str());
        let origins = origins.collect::<Vec<_>>().join(", on ");
        Ok(format!("# {origins}\n\n{}", toml::to_string_pretty(&all)?))
    }

    /// The texts as they stand.
    pub(crate) fn plain(&self) -> Texts<'_> {
        Texts::of(
            self.sources
                .iter()
                .map(|source| (source, Filled::plain(&source.text))),
        )
    }

    /// The texts with the parameters' values in place.
    ///
    /// # Errors
    /// A placeholder that no parameter has, at its place.
    pub(crate) fn filled(&self, values: &Table) -> Result<Texts<'_>> {
        let mut filled = Vec::new();
        for source in &self.sources {
            let text = fill_in(&source.text, values).map_err(|error| refuse(source, &error))?;
            filled.push((source, text));
        }
        Ok(Texts::of(filled))
    }
}

impl<'a> Texts<'a> {
    fn of(texts: impl IntoIterator<Item = (&'a Source, Filled)>) -> Self {
        let mut begins = 0;
        let file = |(source, filled): (&'a Source, Filled)| {
            let file = File {
                source,
                begins,
                padded: " ".repeat(begins) + &filled.text,
                filled,
            };
            // The end of a text is a place too.
            begins = file.padded.len() + 1;
            file
        };
        Self {
            files: texts.into_iter().map(file).collect(),
        }
    }

    /// All files as one table.
    ///
    /// # Errors
    /// What is no TOML; `without` that names what no base has.
    pub(crate) fn merged(&self) -> Result<Spanned<DeTable<'_>>> {
        let mut merged: Option<Spanned<DeTable<'_>>> = None;
        for file in &self.files {
            let parsed = DeTable::parse(&file.padded);
            let mut own = parsed.map_err(|error| self.misread(&error))?;
            own.get_mut().remove(BASE);
            let without = own.get_mut().remove(WITHOUT);
            merged = Some(match merged {
                None => own,
                Some(base) => on_top(base, own, without)
                    .map_err(|problem| self.refusal(problem.at, &problem.text))?,
            });
        }
        // What is missing as a whole is missing in the scenario's own file.
        let own = self.files.last().map_or(0, |file| file.begins);
        let table = merged.map(Spanned::into_inner).unwrap_or_default();
        Ok(Spanned::new(own..own, table))
    }

    /// All files, read as a `T`.
    ///
    /// # Errors
    /// As of [`Texts::merged`], and what is no `T`; every error names file, line and column.
    pub(crate) fn read<T: DeserializeOwned>(&self, merged: Spanned<DeTable<'_>>) -> Result<T> {
        T::deserialize(Deserializer::from(merged)).map_err(|error| self.misread(&error))
    }

    fn misread(&self, error: &toml::de::Error) -> anyhow::Error {
        let at = error.span().map_or(0, |span| span.start);
        self.refusal(at, &error.message().replace('\n', " "))
    }

    /// Refuses the scenario for what is wrong with it, at its place.
    pub(crate) fn refuse(&self, fault: &Fault) -> anyhow::Error {
        match self.merged() {
            Ok(merged) => self.refusal(fault.place(&merged), fault),
            Err(error) => error,
        }
    }

    /// Refuses what stands at byte `at`.
    pub(crate) fn refusal(&self, at: usize, problem: &impl Display) -> anyhow::Error {
        let next = self.files.partition_point(|file| file.begins <= at);
        let file = &self.files[next.saturating_sub(1)];
        refusal(file.source, file.filled.original(at - file.begins), problem)
    }
}

/// The `base` of a file and the byte where it stands.
fn base_of(source: &Source) -> Result<Option<(usize, String)>> {
    let parsed = DeTable::parse(&source.text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        refusal(source, at, &error.message().replace('\n', " "))
    })?;
    let Some(value) = parsed.get_ref().get(BASE) else {
        return match parsed.get_ref().get(WITHOUT) {
            Some(value) => Err(refusal(source, value.span().start, &"without needs a base")),
            None => Ok(None),
        };
    };
    let at = value.span().start;
    match value.get_ref().as_str() {
        Some(base) => Ok(Some((at, base.to_owned()))),
        None => Err(refusal(
            source,
            at,
            &"base is the name of a scenario or the path of a file",
        )),
    }
}

fn same(one: &Source, other: &Source) -> bool {
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

/// `base` without what is not wanted of it, and `own` on top.
fn on_top<'a>(
    mut base: Spanned<DeTable<'a>>,
    own: Spanned<DeTable<'a>>,
    without: Option<Spanned<DeValue<'a>>>,
) -> Result<Spanned<DeTable<'a>>, Problem> {
    without.map_or(Ok(()), |without| take_out(base.get_mut(), &without))?;
    merge(base.get_mut(), own.into_inner());
    Ok(base)
}

/// Key by key.
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
        (DeValue::Array(base), DeValue::Array(own)) if named(base) && named(&own) => {
            merge_named(base, own);
        }
        (_, new) => *old = Spanned::new(span, new),
    }
}

/// Whether an array has tables that all have a name.
fn named(array: &DeArray<'_>) -> bool {
    !array.is_empty() && array.iter().all(|one| name(one).is_some())
}

fn name<'v>(value: &'v Spanned<DeValue<'_>>) -> Option<&'v str> {
    value.get_ref().as_table()?.get("name")?.get_ref().as_str()
}

/// By name; new ones at the end.
fn merge_named<'a>(base: &mut DeArray<'a>, own: DeArray<'a>) {
    for value in own {
        match base.iter_mut().find(|old| name(old) == name(&value)) {
            Some(old) => combine(old, value),
            None => base.push(value),
        }
    }
}

/// Takes every path of `without` out of `base`.
fn take_out(base: &mut DeTable<'_>, without: &Spanned<DeValue<'_>>) -> Result<(), Problem> {
    let wrong = |value: &Spanned<DeValue<'_>>, text: String| Problem {
        at: value.span().start,
        text,
    };
    let list = without.get_ref().as_array();
    let list = list.ok_or_else(|| {
        wrong(
            without,
            format!("want a list such as {WITHOUT} = [\"vary.loss\"]"),
        )
    })?;
    for value in list {
        let path = value.get_ref().as_str().unwrap_or_default();
        if !remove(base, &segments(path)) {
            return Err(wrong(value, format!("the base has no {path:?}")));
        }
    }
    Ok(())
}

/// `check."at least 6"` as its parts: points in quotes belong to a name.
fn segments(path: &str) -> Vec<String> {
    let mut quoted = false;
    let ends = |c: char| {
        quoted ^= c == '"';
        c == '.' && !quoted
    };
    path.split(ends).map(|part| part.replace('"', "")).collect()
}

/// Whether there was something at `path`, which is now gone.
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

/// Refuses what stands at byte `at` of a file.
fn refusal(source: &Source, at: usize, problem: &(impl Display + ?Sized)) -> anyhow::Error {
    let before = &source.text[..at.min(source.text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    refuse(source, &format!("line {line}, column {column}: {problem}"))
}

/// Refuses something about a file.
fn refuse(source: &Source, problem: &(impl Display + ?Sized)) -> anyhow::Error {
    Refusal::usage(format!("{}: {problem}", source.origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r#"title = "base"
question = "q"
[vary]
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
want = ">= 6.5"
every = { loss = 0.1 }
[[paper]]
figures = { a = 1 }
[sysctl]
"net.ipv4.tcp_rmem" = "1 2 3"
"#;

    /// Files in a folder, by name.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn gather(folder: &tempfile::TempDir, name: &str) -> Result<Family> {
        let path = folder.path().join(name);
        let mut source = library::find(path.to_str().unwrap())?;
        source.origin = name.to_owned();
        Family::gather(&source)
    }

    /// What results of a file over BASE, or the error, without the folder.
    fn over(own: &str) -> Result<Table, String> {
        let folder = folder(&[("base.toml", BASE), ("own.toml", own)]);
        let read = || {
            let family = gather(&folder, "own.toml")?;
            let texts = family.plain();
            texts.read(texts.merged()?)
        };
        read().map_err(|error: anyhow::Error| {
            let here = format!("{}/", folder.path().display());
            error.to_string().replace(&here, "")
        })
    }

    #[test]
    fn tables_merge_by_key_and_arrays_by_name() {
        let own = "base = 'base.toml'\ntitle = 'own'\n[vary]\nloss = [0.5]\n\
                   [[links]]\nname = 'wan'\ndelay = '9ms'\n[[links]]\nname = 'far'\n\
                   [[check]]\nname = 'at least 6.5'\nwant = '>= 7'\n[[paper]]\nfigures = { b = 2 }";
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
        let keys: Vec<&String> = merged["vary"].as_table().unwrap().keys().collect();
        assert_eq!(keys, ["loss", "delay"], "the order of the base stays");
    }

    #[test]
    fn something_of_the_base_is_left_out() {
        let own = "base = 'base.toml'\nwithout = ['vary.delay', 'links.lan', 'links.wan.rate', 'paper', \
                   'check.\"at least 6.5\".every', 'sysctl.\"net.ipv4.tcp_rmem\"']";
        let merged = over(own).unwrap();
        let has = |path: &str| {
            let mut table = DeTable::parse("").unwrap().into_inner();
            let text = toml::to_string(&merged).unwrap();
            merge(&mut table, DeTable::parse(&text).unwrap().into_inner());
            remove(&mut table, &segments(path))
        };
        assert!(has("vary.loss") && has("links.wan.delay") && has("check.\"at least 6.5\".want"));
        for gone in [
            "vary.delay",
            "links.lan",
            "links.wan.rate",
            "paper",
            "check.\"at least 6.5\".every",
        ] {
            assert!(!has(gone), "{gone}");
        }
        assert_eq!(merged["sysctl"].as_table().unwrap().len(), 0);
    }

    #[test]
    fn a_file_further_up_gives_what_nobody_changed() {
        let files = [
            ("base.toml", BASE),
            ("middle.toml", "base = 'base.toml'\nquestion = 'middle'\n"),
            ("own.toml", "base = 'middle.toml'\ntitle = 'own'\n"),
        ];
        let folder = folder(&files);
        let family = gather(&folder, "own.toml").unwrap();
        assert_eq!(family.sources.len(), 3);
        let texts = family.plain();
        let merged: Table = texts.read(texts.merged().unwrap()).unwrap();
        assert_eq!(
            (merged["title"].as_str(), merged["question"].as_str()),
            (Some("own"), Some("middle"))
        );
        assert!(merged.contains_key("links"));
    }

    #[test]
    fn a_built_in_scenario_is_a_base() {
        let folder = folder(&[("own.toml", "base = 'nec-dvd'\n")]);
        let family = gather(&folder, "own.toml").unwrap();
        assert_eq!(family.sources[0].origin, "nec-dvd (built in)");
        let resolved: Table = toml::from_str(&family.resolved().unwrap()).unwrap();
        assert!(resolved.contains_key("links") && !resolved.contains_key("base"));
    }

    #[test]
    fn errors_name_the_file_that_is_wrong() {
        let wrong = [
            "base = 'base.toml'\nwithout = ['vary.los']\n",
            "base = 'base.toml'\nwithout = 'vary.loss'\n",
            "base = 'nothing.toml'\n",
            "title = 't'\nbase = 7\n",
            "without = []\n",
            "base = 'base.toml'\n[vary\n",
            "base = 'own.toml'\n",
        ];
        let errors: Vec<String> = wrong.iter().map(|own| over(own).unwrap_err()).collect();
        let listed = |error: &String| error.split("; built in").next().unwrap().to_owned();
        let errors: Vec<String> = errors.iter().map(listed).collect();
        insta::assert_snapshot!(errors.join("\n"));
    }

    #[test]
    fn circles_and_towers_are_refused() {
        let folder = folder(&[
            ("a.toml", "base = 'b.toml'\n"),
            ("b.toml", "\nbase = './a.toml'\n"),
        ]);
        let error = gather(&folder, "a.toml").unwrap_err().to_string();
        assert!(
            error.contains("b.toml: line 2, column 8: these files stand on each other in a circle"),
            "{error}"
        );
        let tower = |floors: usize| {
            let folder = self::folder(&[("0.toml", "")]);
            for n in 1..floors {
                let text = format!("base = '{}.toml'", n - 1);
                std::fs::write(folder.path().join(format!("{n}.toml")), text).unwrap();
            }
            gather(&folder, &format!("{}.toml", floors - 1)).map(|_| ())
        };
        assert!(tower(DEPTH_MAX).is_ok());
        assert!(tower(DEPTH_MAX + 1).is_err());
    }

    #[test]
    fn a_place_in_a_base_survives_what_was_put_in() {
        let base = "a = \"${x}\"\nb = { c = \"${x}\", d = 1 }\n";
        let folder = folder(&[
            ("base.toml", base),
            ("own.toml", "base = 'base.toml'\ne = \"${x}\"\nf = true\n"),
        ]);
        let family = gather(&folder, "own.toml").unwrap();
        let values = toml::from_str("x = 'something long'").unwrap();
        let texts = family.filled(&values).unwrap();
        let merged = texts.merged().unwrap();
        let d = merged.get_ref()["b"].get_ref()["d"].span().start;
        let f = merged.get_ref()["f"].span().start;
        let place = |at| texts.refusal(at, &"x").to_string();
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
