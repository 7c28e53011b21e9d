// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the arithmetic of scenario checks: an expression has no more parts than its text has characters,
//! parentheses around it change nothing, and nothing may follow it.

use longhaul_lab::expression::{Bound, Expression};

pub(crate) fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Some(bound) = Bound::parse(text) {
        assert!(!bound.holds(f64::NAN));
        assert!(bound.holds(f64::INFINITY) != bound.holds(f64::NEG_INFINITY));
    }
    let Ok(expression) = Expression::parse(text) else {
        return;
    };
    assert!(parts(&expression) <= text.chars().count());
    let value = expression.value(&|_, _| Ok::<_, ()>(2.0));
    assert!(value.is_ok());
    assert!(Expression::parse(&format!("{text})")).is_err());
    // The added parentheses may exceed the maximum depth.
    if let Ok(enclosed) = Expression::parse(&format!("({text})")) {
        assert_eq!(enclosed, expression);
    }
}

fn parts(expression: &Expression) -> usize {
    match expression {
        Expression::Number(_) | Expression::Metric { .. } => 1,
        Expression::Operation(_, left, right) => 1 + parts(left) + parts(right),
    }
}
