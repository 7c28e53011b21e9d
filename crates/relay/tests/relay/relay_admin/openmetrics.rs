// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strict parser of OpenMetrics 1.0 text, for the relay's kinds of metrics; it rejects everything
//! else.

use std::collections::{BTreeMap, BTreeSet};

/// Samples by name and labels, and kinds by family.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    samples: BTreeMap<String, f64>,
    kinds: BTreeMap<String, String>,
}

/// Metric family that the current line belongs to.
#[derive(Debug, Default)]
struct Family {
    name: String,
    kind: String,
    unit: String,
    has_samples: bool,
}

impl Exposition {
    /// # Panics
    ///
    /// If the text violates the specification.
    pub(crate) fn parse(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("ends in # EOF");
        assert!(!body.contains("# EOF"), "only one end");
        let (mut exposition, mut family) = (Self::default(), Family::default());
        for line in body.lines() {
            match line.strip_prefix("# ") {
                Some(metadata) => exposition.parse_metadata(metadata, &mut family),
                None => exposition.parse_sample(line, &mut family),
            }
        }
        exposition
    }

    fn parse_metadata(&mut self, line: &str, family: &mut Family) {
        let mut words = line.splitn(3, ' ');
        let [keyword, name, rest] = [words.next(), words.next(), words.next()].map(Option::unwrap);
        if name != family.name {
            *family = Family {
                name: name.to_owned(),
                ..Family::default()
            };
            check_name(name);
            let is_new = self.kinds.insert(name.to_owned(), String::new()).is_none();
            assert!(is_new, "{name} is in two places");
        }
        assert!(!family.has_samples, "{line} comes too late");
        match keyword {
            "HELP" => assert!(!rest.is_empty(), "{line}"),
            "TYPE" => {
                let types = ["counter", "gauge", "histogram", "info"];
                assert!(types.contains(&rest), "{line}");
                family.kind = rest.to_owned();
                self.kinds.insert(name.to_owned(), rest.to_owned());
            }
            "UNIT" => {
                assert!(name.ends_with(&format!("_{rest}")), "{line}");
                family.unit = rest.to_owned();
            }
            _ => panic!("{line}"),
        }
    }

    fn parse_sample(&mut self, line: &str, family: &mut Family) {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}').expect("closed")),
            None => (series, ""),
        };
        let suffixes = match family.kind.as_str() {
            "counter" => &["_total"][..],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_count", "_sum"],
            "gauge" => &[""],
            kind => panic!("{line}: in a family of type {kind:?}"),
        };
        let matches_family = |suffix: &&str| name == format!("{}{suffix}", family.name);
        assert!(suffixes.iter().any(matches_family), "{line}");
        check_labels(labels, line);
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value.is_finite(), "{line}");
        assert!(family.kind != "counter" || value >= 0.0, "{line}");
        let is_new = self.samples.insert(series.to_owned(), value).is_none();
        assert!(is_new, "{line} is there twice");
        family.has_samples = true;
    }

    /// Sum over all series of this name that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let has = |series: &&String| {
            let is_named = **series == name || series.starts_with(&format!("{name}{{"));
            is_named && labels.iter().all(|label| series.contains(label))
        };
        let found: Vec<_> = self
            .samples
            .iter()
            .filter(|(series, _)| has(series))
            .collect();
        assert!(!found.is_empty(), "no {name} with {labels:?} in {self:#?}");
        found.into_iter().map(|(_, value)| value).sum()
    }

    pub(crate) fn kind(&self, family: &str) -> &str {
        &self.kinds[family]
    }

    pub(crate) fn series(&self) -> BTreeSet<&str> {
        self.samples.keys().map(String::as_str).collect()
    }

    /// Names of all families.
    pub(crate) fn families(&self) -> impl Iterator<Item = &str> {
        self.kinds.keys().map(String::as_str)
    }
}

fn check_name(name: &str) {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    assert!(name.chars().all(fits), "{name}");
    for reserved in ["_total", "_info", "_count", "_sum", "_bucket", "_created"] {
        assert!(!name.ends_with(reserved), "{name}");
    }
}

/// `name="value",…` with `\\`, `\"` and `\n` as the only escapes.
fn check_labels(mut labels: &str, line: &str) {
    let mut seen = BTreeSet::new();
    while !labels.is_empty() {
        let (name, rest) = labels.split_once("=\"").expect(line);
        check_name(name);
        assert!(seen.insert(name), "{line}: {name} twice");
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect(line) {
                (end, '"') => break end,
                (_, '\\') => assert!(
                    matches!(chars.next(), Some((_, '\\' | '"' | 'n'))),
                    "{line}"
                ),
                _ => {}
            }
        };
        labels = &rest[end + 1..];
        if !labels.is_empty() {
            labels = labels.strip_prefix(',').expect(line);
        }
    }
}

#[test]
fn parse_rejects_invalid_text() {
    let good = "# HELP a_bytes A.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                a_bytes_total{x=\"1\\\"2\",y=\"\"} 1\n# EOF\n";
    assert_eq!(Exposition::parse(good).sum("a_bytes_total", &[]), 1.0);
    for (old, new) in [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF\n\n"),
        ("a_bytes_total{", "a_bytes{"),
        (" bytes\n", " seconds\n"),
        ("} 1\n", "} -1\n"),
        ("} 1\n", "} 1\na_bytes_total{x=\"1\\\"2\",y=\"\"} 2\n"),
        ("} 1\n", "} 1\n\n"),
        ("\\\"2", "\"2"),
        ("y=", "x="),
        ("counter", "unknown"),
    ] {
        let bad = good.replace(old, new);
        let outcome = std::panic::catch_unwind(|| Exposition::parse(&bad));
        assert!(outcome.is_err(), "{bad}");
    }
}
