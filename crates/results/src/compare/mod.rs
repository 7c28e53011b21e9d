// SPDX-License-Identifier: MIT OR Apache-2.0
//! `longhaul lab compare`: compares two results cell by cell and marks significant differences.

mod comparison;
mod page;
mod rule;
mod text;

pub use rule::describe_significance_rule;

use crate::result::LabResult;
use anyhow::{Context, Result};
use longhaul_command::{console::escaped_lines, outln};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Configuration of a comparison.
#[derive(Debug)]
pub struct Config {
    /// Baseline and candidate: directories of results, or result files.
    pub results: [PathBuf; 2],
    /// Lists every metric of every cell, not only the main metric and differences.
    pub all: bool,
    /// Prints the comparison as JSON.
    pub json: bool,
    /// Path for an offline page with both results.
    pub html: Option<PathBuf>,
}

/// Runs the command.
pub fn run(config: &Config) -> Result<()> {
    let paths = config.results.each_ref();
    let [baseline, candidate] = paths.map(|path| read(path));
    let [baseline_name, candidate_name] = paths.map(|path| path.display().to_string());
    let comparison = comparison::compare(&baseline_name, &baseline?, &candidate_name, &candidate?)?;
    if let Some(page) = &config.html {
        fs::write(page, page::html(&comparison))
            .with_context(|| format!("cannot write {}", page.display()))?;
    }
    if config.json {
        outln!("{}", serde_json::to_string_pretty(&comparison)?);
    } else {
        outln!("{}", escaped_lines(&text::render(&comparison, config.all)));
    }
    Ok(())
}

/// Reads a result from a directory, or from a file.
fn read(path: &Path) -> Result<LabResult> {
    let file = if path.is_dir() {
        path.join("result.json")
    } else {
        path.to_owned()
    };
    LabResult::read(&file)
}

#[cfg(test)]
mod tests {
    use super::{comparison::compare, rule::Verdict, *};
    use crate::result::{Cell, Check};
    use longhaul_command::exit::Refusal;
    use serde_json::json;

    /// Returns a result with a cell for each delay, with these goodputs in Mbit/s.
    pub(super) fn result(cells: &[(&str, &[f64])]) -> LabResult {
        let cell = |(delay, rates): &(&str, &[f64])| {
            let run = |rate: &f64| json!({ "goodput_bps": rate * 1e6, "retransmits": 3.0 });
            let mut cell: Cell = serde_json::from_value(json!({
                "parameters": { "delay": delay, "loss": 0.0 }, "metrics": {},
                "runs": rates.iter().map(run).collect::<Vec<_>>(),
            }))
            .unwrap();
            cell.summarise();
            cell
        };
        LabResult {
            scenario: "nec-linux".to_owned(),
            seed: 7,
            resolved: json!({ "parameters": { "size": "1GB" } }),
            cells: cells.iter().map(cell).collect(),
            ..LabResult::default()
        }
    }

    fn two_results() -> (LabResult, LabResult) {
        let a = result(&[
            ("1ms", &[400.0, 410.0, 405.0]),
            ("5ms", &[80.0, 82.0, 81.0]),
            ("9ms", &[1.0]),
        ]);
        let mut b = result(&[
            ("5ms", &[60.0, 61.0, 62.0]),
            ("1ms", &[401.0, 409.0, 404.0]),
            ("20ms", &[1.0]),
        ]);
        b.seed = 8;
        b.resolved["parameters"]["size"] = json!("2GB");
        // The same value as 0.0: some tools write it as 0.
        b.cells[0].parameters["loss"] = json!(0);
        (a, b)
    }

    #[test]
    fn matches_cells_by_parameters() {
        let (a, b) = two_results();
        let comparison = compare("a", &a, "b", &b).unwrap();
        let verdicts: Vec<_> = comparison
            .cells
            .iter()
            .map(|cell| {
                (
                    cell.parameters["delay"].as_str().unwrap(),
                    cell.metrics["goodput_bps"].verdict,
                )
            })
            .collect();
        assert_eq!(
            verdicts,
            [("1ms", Verdict::NotSignificant), ("5ms", Verdict::Lower)]
        );
        assert_eq!(
            (
                comparison.baseline_only_cells.len(),
                comparison.candidate_only_cells.len()
            ),
            (1, 1)
        );
        let names: Vec<&str> = comparison
            .settings
            .iter()
            .map(|setting| setting.name.as_str())
            .collect();
        assert_eq!(names, ["seed", "parameters.size"]);
    }

    #[test]
    fn lists_differences_of_scenarios() {
        let (mut a, mut b) = two_results();
        let link = |delay| json!({ "name": "wan", "delay": delay, "endpoints": ["a", "b"] });
        let flow = |size| json!({ "name": "get", "size": size });
        a.resolved["links"] = json!([link("5ms")]);
        b.resolved["links"] = json!([link("15ms"), { "name": "lan" }]);
        // Not listed, because it follows from the parameter `size`.
        a.resolved["flows"] = json!([flow("1GB")]);
        b.resolved["flows"] = json!([flow("2GB")]);
        let comparison = compare("a", &a, "b", &b).unwrap();
        let settings = comparison.settings.iter();
        let differences: Vec<_> = settings
            .map(|one| (&*one.name, &*one.baseline, &*one.candidate))
            .collect();
        let expected = [
            ("seed", "7", "8"),
            ("parameters.size", "1GB", "2GB"),
            ("links.lan", "", "given"),
            ("links.wan.delay", "5ms", "15ms"),
        ];
        assert_eq!(differences, expected);
    }

    #[test]
    fn mentions_simulated_and_overloaded_runs_without_verdict() {
        let (a, mut b) = two_results();
        b.cells[1].simulated = true;
        for run in &mut b.cells[0].runs {
            run.overload = Some("emulator late".to_owned());
        }
        let comparison = compare("a", &a, "b", &b).unwrap();
        assert!(comparison.baseline.caveats().is_empty());
        assert_eq!(
            comparison.candidate.caveats(),
            [
                "simulated, not run on sockets: the cell delay 1ms, loss 0 %"
                    .replace("1ms", "1 ms"),
                "emulator late in 3 of 7 runs".to_owned()
            ]
        );
        let verdicts: Vec<Verdict> = comparison
            .cells
            .iter()
            .map(|cell| cell.metrics["goodput_bps"].verdict)
            .collect();
        assert_eq!(verdicts, [Verdict::NotSignificant, Verdict::Overloaded]);
        let text = text::render(&comparison, false);
        for expected_text in [
            "candidate: simulated, not run on sockets: the cell",
            "candidate: emulator late in 3 of 7 runs",
            "? emulator late",
            "expect up to 0.2 false positives",
        ] {
            assert!(text.contains(expected_text), "{expected_text}: {text}");
        }
    }

    #[test]
    fn keeps_checks_of_one_side() {
        let check = |name: &str, pass| Check {
            name: name.to_owned(),
            pass,
            ..Check::default()
        };
        let (mut a, mut b) = two_results();
        a.checks = vec![check("both", true), check("ours", false)];
        b.checks = vec![check("theirs", true), check("both", false)];
        let comparison = compare("a", &a, "b", &b).unwrap();
        let found: Vec<_> = comparison
            .checks
            .iter()
            .map(|check| (check.name.as_str(), check.baseline, check.candidate))
            .collect();
        assert_eq!(
            found,
            [
                ("both", Some(true), Some(false)),
                ("ours", Some(false), None),
                ("theirs", None, Some(true)),
            ]
        );
    }

    #[test]
    fn refuses_results_without_common_cell() {
        let (a, b) = (result(&[("1ms", &[1.0])]), result(&[("2ms", &[1.0])]));
        let refused = compare("a", &a, "b", &b).unwrap_err();
        assert!(matches!(refused.downcast_ref(), Some(Refusal::Usage(_))));
    }

    #[test]
    fn marks_differences_in_the_table() {
        let (a, b) = two_results();
        let comparison = compare("out/a", &a, "out/b", &b).unwrap();
        insta::assert_snapshot!(text::render(&comparison, false));
    }
}
