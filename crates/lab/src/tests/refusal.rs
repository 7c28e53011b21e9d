// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refusals of invalid scenarios: each has file, line and column of the invalid value.

use super::{
    claim_slips::{OF_CLAIMS, OF_VIEWS},
    slips::{OF_FLOWS, OF_PARAMETERS, OF_PROGRAMS, OF_THE_TESTBED, Slip, TEXT},
};
use crate::{
    run, simulated,
    source::{Book, Choices, Source},
};

/// Marks the invalid value in a test case.
const MARK: char = '¦';

fn open(text: String) -> anyhow::Result<Book> {
    let source = Source {
        name: "t".to_owned(),
        origin: "t.toml".to_owned(),
        text,
        path: None,
    };
    Book::open(&source, &Choices::default())
}

/// Returns the text without its mark, and the mark's position as in messages.
fn marked(text: &str) -> (String, String) {
    let before = text.split(MARK).next().unwrap();
    let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
    let place = format!("t.toml: line {line}, column {column}: ");
    (text.replace(MARK, ""), place)
}

#[test]
fn every_refusal_has_a_position() {
    open(TEXT.to_owned()).unwrap();
    let slips = [OF_PARAMETERS, OF_THE_TESTBED, OF_FLOWS, OF_CLAIMS, OF_VIEWS];
    let slips = slips.into_iter().flatten();
    let misplaced = slips.filter_map(|slip| misplaced(TEXT, slip, |_| Ok(())));
    assert_eq!(misplaced.collect::<String>(), "");
}

/// Returns a description if the refusal of a case has the wrong position or message. The case is
/// refused when the scenario is opened, or else by `check`.
fn misplaced(
    right_text: &str,
    (right, wrong, said): &Slip,
    check: fn(&Book) -> anyhow::Result<()>,
) -> Option<String> {
    assert!(right_text.contains(right), "{right}");
    let (text, place) = marked(&right_text.replacen(right, wrong, 1));
    let refused = open(text).and_then(|book| check(&book));
    let error = refused.map_or_else(|error| error.to_string(), |()| "nothing".to_owned());
    let good = error.starts_with(&place) && error.contains(said);
    (!good).then(|| format!("{wrong}\n  wanted: {place}{said}\n  found: {error}\n"))
}

#[test]
fn refusals_of_program_limits_have_a_position() {
    // Only the flow, whose program each case replaces.
    let text = TEXT.replace("\nsize = '${size}'", "");
    let text = text.split("[derived]").next().unwrap();
    let text = text.replace("'curl'", "'curl'\nsize = '1GB'");
    let alone = text.replace("\nsize = '1GB'\nfrom = '${from}'", "\nfrom = '${from}'");
    let misplaced = OF_PROGRAMS.iter().filter_map(|slip| {
        let text = if slip.0 == "'curl'" { &alone } else { &text };
        misplaced(text, slip, run::possible)
    });
    assert_eq!(misplaced.collect::<String>(), "");
    // Limits of programs do not apply under simulated time.
    let simulated = alone.replace("'curl'", "'iperf3'\nduration = '1500ms'");
    let mut book = open(simulated).unwrap();
    for cell in &mut book.cells {
        cell.scenario.simulate = true;
        cell.short.simulate = true;
    }
    crate::check::program_limits::check(&book).unwrap();
    // But the limit of a run does.
    for cell in &mut book.cells {
        cell.scenario.limit = longhaul_units::Time::from_secs(1);
    }
    let error = crate::check::program_limits::check(&book)
        .unwrap_err()
        .to_string();
    assert!(error.contains("limit, the longest"), "{error}");
}

/// A wrong value of a parameter is reported where it is used, not where it is set.
#[test]
fn wrong_cell_value_is_reported_where_it_is_used() {
    let text = TEXT.replace("{ from = 'b' }\n[hosts", "{ from = 'nobody' }\n[hosts");
    let (text, place) = marked(&text.replace("'${from}'", "¦'${from}'"));
    let error = open(text).unwrap_err().to_string();
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("in the cell \"from=nobody\": flow \"get\": "),
        "{error}"
    );
}

#[test]
fn refusals_of_simulation_have_a_position() {
    let (text, place) = marked(&TEXT.replace("'curl'", "¦'curl'"));
    let mut book = open(text).unwrap();
    simulated::check(&book).unwrap();
    book.simulate();
    let error = simulated::check(&book).unwrap_err().to_string();
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("can't be simulated: flow \"get\" is program \"curl\""),
        "{error}"
    );
}
