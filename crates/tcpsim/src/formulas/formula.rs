// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a formula says of itself: where it is from and where it holds.

/// A published formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Formula {
    /// Its name in a table: `Mathis`.
    pub name: &'static str,
    /// The equation in plain text.
    pub equation: &'static str,
    /// Paper or RFC, with section or equation where it has a number.
    pub source: &'static str,
    /// Where it holds, in words; the code checks it and says when a path is outside.
    pub range: &'static str,
}

/// A value that a formula gave, and whether it was asked within its range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// In the unit that the function states.
    pub value: f64,
    /// Why the path is outside of the formula's range; `None` is within.
    pub outside: Option<&'static str>,
}

impl Answer {
    /// `value`, with the reason against it whose condition holds first.
    #[must_use]
    pub fn checked(value: f64, reasons: &[(bool, &'static str)]) -> Self {
        let found = reasons.iter().find(|(holds, _)| *holds);
        Self {
            value,
            outside: found.map(|(_, reason)| *reason),
        }
    }
}

/// Loss beyond which time-outs matter more than the law.
pub(super) const LOSS_MAX: f64 = 0.01;

/// What keeps a formula of losses alone from an answer at this one.
pub(super) fn loss_reasons(loss: f64) -> [(bool, &'static str); 2] {
    [
        (loss <= 0.0, "without loss it has no end"),
        (
            loss > LOSS_MAX,
            "beyond 1 % loss, time-outs, which it leaves out",
        ),
    ]
}
