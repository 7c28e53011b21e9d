// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as printed for people: three significant digits, and the unit that keeps them short.

/// Formats `x` with three significant digits, or as an integer if that has more. Drops zeros at the end of a fraction.
///
/// ```
/// assert_eq!(longhaul_units::rounding::format_3_digits(0.012345), "0.0123");
/// assert_eq!(longhaul_units::rounding::format_3_digits(91.04), "91");
/// ```
#[must_use]
pub fn format_3_digits(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let before_point = x.abs().log10().floor() as i32 + 1;
    let decimals = (3 - before_point).clamp(0, 9) as usize;
    let text = format!("{x:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Formats `value` in the largest of `units` in which it is at least 1. Returns the number, with three digits, and the
/// unit's name. Each unit is a scale and a name. The smallest unit comes first, and also serves for smaller values.
#[must_use]
pub fn format_with_unit<'a>(value: f64, units: &[(f64, &'a str)]) -> (String, &'a str) {
    // From 999.5 on, the number would round to 1000 of the smaller unit.
    let (scale, name) = units
        .iter()
        .rfind(|(scale, _)| value.abs() >= scale * 0.9995)
        .unwrap_or(&units[0]);
    (format_3_digits(value / scale), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_three_digits_of_any_magnitude() {
        for (value, printed) in [
            (0.0, "0"),
            (1234.0, "1234"),
            (99.96, "100"),
            (9.996, "10"),
            (-2.5, "-2.5"),
            (0.000_123_45, "0.000123"),
        ] {
            assert_eq!(format_3_digits(value), printed);
        }
    }

    #[test]
    fn carries_a_thousand_into_the_next_unit() {
        let units = [(1.0, "B"), (1e3, "KB")];
        assert_eq!(format_with_unit(999.6, &units), ("1".to_owned(), "KB"));
        assert_eq!(format_with_unit(999.4, &units), ("999".to_owned(), "B"));
        assert_eq!(format_with_unit(0.0, &units), ("0".to_owned(), "B"));
        assert_eq!(format_with_unit(5e6, &units), ("5000".to_owned(), "KB"));
    }
}
