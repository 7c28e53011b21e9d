// SPDX-License-Identifier: MIT OR Apache-2.0
//! Description of a formula: its source, and the range in which it holds.

/// A published formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formula {
    /// Name in a table, such as `Mathis`.
    pub name: &'static str,
    /// Equation in plain text.
    pub equation: &'static str,
    /// Paper or RFC, with section or equation where it has a number.
    pub source: &'static str,
    /// Range in which it holds, in words. The code checks the range and reports a path outside it.
    pub range: &'static str,
}

/// Value of a formula, and whether the path is within the formula's range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Value in the unit that the function states.
    pub value: f64,
    /// Reason why the path is outside the formula's range; `None` within it.
    pub outside: Option<&'static str>,
}

impl Estimate {
    /// Returns `value` with the first reason whose condition holds.
    #[must_use]
    pub fn checked(value: f64, reasons: &[(bool, &'static str)]) -> Self {
        let found = reasons.iter().find(|(holds, _)| *holds);
        Self {
            value,
            outside: found.map(|(_, reason)| *reason),
        }
    }
}

/// Loss beyond which timeouts matter more than the square-root law.
pub(super) const LOSS_MAX: f64 = 0.01;

/// Returns the conditions under which a formula of loss alone does not hold, with the reasons.
pub(super) fn loss_reasons(loss: f64) -> [(bool, &'static str); 2] {
    [
        (loss <= 0.0, "without loss its result is infinite"),
        (
            loss > LOSS_MAX,
            "beyond 1 % loss, time-outs, which it leaves out",
        ),
    ]
}
