// SPDX-License-Identifier: MIT OR Apache-2.0
//! Title templates with results: `"Relays make it {goodput_bps{relays=true} /
//! goodput_bps{relays=false} :x} faster"`. Braces hold an expression over the medians of cells, as
//! in a check, and after a colon its format.

use super::expression::Expression;
use longhaul_report::metric::{Metric, format_factor, format_percent};

/// Formats of a number, after the colon.
const FORMATS: [&str; 8] = ["x", "%", "bps", "pps", "s", "us", "bytes", "count"];

/// Part of a title.
enum TitlePart<'a> {
    Words(&'a str),
    Number {
        expression: Expression,
        format: Option<&'a str>,
    },
}

/// Refuses an invalid template. `check` is called for every expression in it.
pub(crate) fn check(
    title: &str,
    check: impl Fn(&Expression) -> Result<(), String>,
) -> Result<(), String> {
    let expressions = parts(title)?.into_iter().filter_map(|part| match part {
        TitlePart::Words(_) => None,
        TitlePart::Number { expression, .. } => Some(expression),
    });
    expressions
        .into_iter()
        .try_for_each(|expression| check(&expression))
}

/// Returns the title with its numbers; `None` if one is missing, for example if only some cells
/// were run.
pub(crate) fn fill_in(title: &str, value: impl Fn(&Expression) -> Option<f64>) -> Option<String> {
    let printed = |part: TitlePart<'_>| match part {
        TitlePart::Words(words) => Some(words.to_owned()),
        TitlePart::Number { expression, format } => {
            Some(print(value(&expression)?, &expression, format))
        }
    };
    let parts = parts(title).unwrap_or_default();
    parts.into_iter().map(printed).collect()
}

fn print(number: f64, expression: &Expression, format: Option<&str>) -> String {
    let as_metric = |name: &str| Metric::of(name).format(number);
    match (format, expression) {
        (Some("x"), _) => format_factor(number),
        (Some("%"), _) => format_percent(number),
        (Some(unit), _) => as_metric(&format!("value_{unit}")),
        (None, Expression::Metric { name, .. }) => as_metric(name),
        (None, _) => as_metric("value_ratio"),
    }
}

fn parts(title: &str) -> Result<Vec<TitlePart<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = title;
    while let Some(start) = rest.find('{') {
        let end = closing_brace(&rest[start..]).ok_or("'{' without '}'")? + start;
        parts.push(TitlePart::Words(&rest[..start]));
        parts.push(number(&rest[start + 1..end])?);
        rest = &rest[end + 1..];
    }
    parts.push(TitlePart::Words(rest));
    Ok(parts)
}

/// Offset of the brace that closes the first one of `text`.
fn closing_brace(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    let ends = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    };
    text.find(ends)
}

fn number(text: &str) -> Result<TitlePart<'_>, String> {
    let split = text
        .rsplit_once(':')
        .filter(|(_, format)| !format.contains('}'));
    let (expression, format) = match split {
        Some((expression, format)) => (expression, Some(format.trim())),
        None => (text, None),
    };
    if let Some(unknown) = format.filter(|format| !FORMATS.contains(format)) {
        let known = FORMATS.join(", ");
        return Err(format!(
            "{unknown:?} is not a number format (there are: {known})"
        ));
    }
    let expression = Expression::parse(expression).map_err(|error| error.to_string())?;
    Ok(TitlePart::Number { expression, format })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(title: &str) -> String {
        let look_up = |name: &str, cell: &[(String, String)]| match (name, cell) {
            ("goodput_bps", []) => Ok(4e8),
            ("goodput_bps", [(_, relays)]) if relays == "true" => Ok(2.28e9),
            _ => Err(()),
        };
        fill_in(title, |expression| expression.value(&look_up).ok()).unwrap_or_default()
    }

    #[test]
    fn numbers_are_printed_in_their_unit() {
        assert_eq!(filled("{goodput_bps} alone"), "400 Mbit/s alone");
        assert_eq!(
            filled("relays: {goodput_bps{relays=true} / goodput_bps :x} faster"),
            "relays: 5.7× faster"
        );
        assert_eq!(
            filled("{goodput_bps / goodput_bps{relays=true}:%}"),
            "17.5 %"
        );
        assert_eq!(filled("{8e9 / goodput_bps :s}"), "20 s");
        assert_eq!(filled("{goodput_bps / 4e8}"), "1");
        assert_eq!(filled("{goodput_bps} and {nothing}"), "");
        assert_eq!(filled("no number"), "no number");
    }

    #[test]
    fn refuses_invalid_templates() {
        let refused = |title: &str| check(title, |_| Ok(())).is_err();
        assert!(refused("{goodput_bps"));
        assert!(refused("{}"));
        assert!(refused("{goodput_bps :furlong}"));
        assert!(!refused("{goodput_bps{a=b} :x} and {goodput_bps}"));
        assert!(check("{a}", |_| Err("unknown".to_owned())).is_err());
    }
}
