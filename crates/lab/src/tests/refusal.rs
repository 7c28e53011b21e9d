// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person reads who wrote something wrong: file, line and column of the value at fault, whatever it is.

use super::{
    claim_slips::{OF_CLAIMS, OF_VIEWS},
    slips::{OF_FLOWS, OF_PARAMETERS, OF_PROGRAMS, OF_THE_TESTBED, Slip, TEXT},
};
use crate::{
    run, simulated,
    source::{Book, Choices, Source},
};

/// Stands before the value at fault.
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

/// The text without its mark, and the place where that stood, as errors name it.
fn marked(text: &str) -> (String, String) {
    let before = text.split(MARK).next().unwrap();
    let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
    let place = format!("t.toml: line {line}, column {column}: ");
    (text.replace(MARK, ""), place)
}

#[test]
fn every_value_at_fault_has_its_place() {
    open(TEXT.to_owned()).unwrap();
    let slips = [OF_PARAMETERS, OF_THE_TESTBED, OF_FLOWS, OF_CLAIMS, OF_VIEWS];
    let slips = slips.into_iter().flatten();
    let misplaced = slips.filter_map(|slip| misplaced(TEXT, slip, |_| Ok(())));
    assert_eq!(misplaced.collect::<String>(), "");
}

/// What is wrong with the refusal of a slip, by opening the scenario or then by `check`.
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
fn what_a_program_cannot_take_has_its_place() {
    // Nothing but the flow, which becomes each program's.
    let text = TEXT.replace("\nsize = '${size}'", "");
    let text = text.split("[derived]").next().unwrap();
    let text = text.replace("'curl'", "'curl'\nsize = '1GB'");
    let alone = text.replace("\nsize = '1GB'\nfrom = '${from}'", "\nfrom = '${from}'");
    let misplaced = OF_PROGRAMS.iter().filter_map(|slip| {
        let text = if slip.0 == "'curl'" { &alone } else { &text };
        misplaced(text, slip, run::possible)
    });
    assert_eq!(misplaced.collect::<String>(), "");
    // Under simulated time no program is asked.
    let simulated = alone.replace("'curl'", "'iperf3'\nduration = '1500ms'");
    let mut book = open(simulated).unwrap();
    for cell in &mut book.cells {
        cell.scenario.simulate = true;
        cell.short.simulate = true;
    }
    crate::check::program_limits::check(&book).unwrap();
    // But a run waits as long as the scenario says.
    for cell in &mut book.cells {
        cell.scenario.limit = longhaul_units::Time::from_secs(1);
    }
    let error = crate::check::program_limits::check(&book)
        .unwrap_err()
        .to_string();
    assert!(error.contains("limit, the longest"), "{error}");
}

/// Not where the parameter is set: what is wrong with a value is said by what uses it.
#[test]
fn a_value_of_a_cell_is_at_fault_where_it_is_used() {
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
fn what_cannot_be_simulated_has_its_place_too() {
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
