// SPDX-License-Identifier: MIT OR Apache-2.0
//! `diff.json`: the figures of both sides, as `super::compare` returns them.

use super::compare::{self, Figure};
use super::side::Side;
use crate::report::SCHEMA;
use serde::Serialize;

/// Content of `diff.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// Version of the format, that of `result.json`.
    pub(super) schema: u32,
    pub(super) a: ComparedDirection,
    pub(super) b: ComparedDirection,
    /// Names of the figures that differ significantly, largest weight first.
    pub(super) significant: Vec<&'static str>,
    /// Figures that at least one side has.
    pub(super) figures: Vec<Figure>,
}

/// Identity of a compared direction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ComparedDirection {
    /// Path, as on the command line.
    pub(super) source: String,
    /// Number of the flow in the result.
    pub(super) flow: u64,
    /// Source, sender and receiver as text for users.
    pub(super) name: String,
    /// Verdict about its limits.
    pub(super) verdict: String,
}

impl Comparison {
    pub(super) fn new(a: &Side<'_>, b: &Side<'_>) -> Self {
        let figures = compare::compare_figures(a.direction(), b.direction());
        Self {
            schema: SCHEMA,
            a: ComparedDirection::new(a),
            b: ComparedDirection::new(b),
            significant: compare::significant_figures(&figures)
                .iter()
                .map(|figure| figure.name)
                .collect(),
            figures,
        }
    }

    /// Returns whether the figure differs significantly.
    pub(super) fn is_significant(&self, figure: &Figure) -> bool {
        self.significant.contains(&figure.name)
    }
}

impl ComparedDirection {
    fn new(side: &Side<'_>) -> Self {
        Self {
            source: side.source.clone(),
            flow: side.flow.number,
            name: side.name(),
            verdict: side.direction().verdict.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixtures;
    use longhaul_flow::record::Direction;
    use std::path::Path;

    fn compared(change: impl Fn(&mut Direction)) -> Comparison {
        let a = fixtures::report();
        let mut b = a.clone();
        change(&mut b.analysis.flows[0].upload);
        let side = |path, of| Side::select(Path::new(path), of, None).unwrap();
        Comparison::new(&side("a", &a), &side("b", &b))
    }

    fn figure(comparison: &Comparison, name: &str) -> Figure {
        let mut figures = comparison.figures.iter().copied();
        figures.find(|figure| figure.name == name).unwrap()
    }

    #[test]
    fn doubled_goodput_is_significant() {
        let found = compared(|upload| {
            upload.data.unique_bytes *= 2;
            upload.acks.acked_bytes *= 2;
        });
        assert_eq!(figure(&found, "goodput_bps").ratio, Some(2.0));
        assert!(found.is_significant(&figure(&found, "goodput_bps")));
        assert!(!found.is_significant(&figure(&found, "duration_s")));
        assert_eq!(found.significant, ["goodput_bps", "payload_bytes"]);
    }

    #[test]
    fn refuses_unknown_flow() {
        let finished = fixtures::report();
        let error = Side::select(Path::new("out"), &finished, Some(99))
            .err()
            .unwrap();
        assert!(error.to_string().starts_with("out: no flow 99"), "{error}");
        let second = Side::select(Path::new("out"), &finished, Some(7)).unwrap();
        assert_eq!(second.flow.number, 7);
    }
}
