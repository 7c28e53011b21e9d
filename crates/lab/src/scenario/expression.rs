// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arithmetic expressions of checks and derived metrics.
//!
//! ```text
//! sum     = product (("+" | "-") product)*
//! product = factor (("*" | "/") factor)*
//!
//! factor  = number | "(" sum ")" | ("min" | "max") "(" sum ("," sum)* ")"
//!         | metric [ "{" key "=" value ("," key "=" value)* "}" ]
//! ```
//! A metric without braces is that of the cell for which the expression is evaluated. With braces it is
//! the median over the runs of the one cell whose varied values match. The prefix `reference.` makes it
//! the figure that the paper prints for that cell.

use std::{iter::Peekable, str::Chars};

/// Parsed expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expression {
    /// A number.
    Number(f64),
    /// Metric of one cell.
    Metric {
        /// The name of the metric.
        name: String,
        /// Varied parameters that select the cell, with their values.
        cell: Vec<(String, String)>,
    },
    /// Operation on two values.
    Operation(Operator, Box<Expression>, Box<Expression>),
}

/// Operator between two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
}

/// Error of a text that is not an expression.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an expression: {problem} (for example: goodput_bps{{relays=true}} / goodput_bps{{relays=false}})"
)]
pub struct ExpressionError {
    text: String,
    problem: String,
}

impl Expression {
    /// Parses an expression.
    ///
    /// # Errors
    /// The text is not exactly one expression, or has too many operations.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut parser = Parser {
            rest: text.chars().peekable(),
            depth: 0,
            operations: 0,
        };
        parser.parse_all().map_err(|problem| ExpressionError {
            text: text.to_owned(),
            problem,
        })
    }

    /// Returns the names of the metrics in the expression.
    pub(crate) fn metrics(&self) -> Vec<&str> {
        match self {
            Self::Number(_) => Vec::new(),
            Self::Metric { name, .. } => vec![name],
            Self::Operation(_, left, right) => [left.metrics(), right.metrics()].concat(),
        }
    }

    /// Evaluates the expression with the metrics that `look_up` returns.
    pub fn value<E>(
        &self,
        look_up: &impl Fn(&str, &[(String, String)]) -> Result<f64, E>,
    ) -> Result<f64, E> {
        Ok(match self {
            Self::Number(number) => *number,
            Self::Metric { name, cell } => look_up(name, cell)?,
            Self::Operation(operator, left, right) => {
                operator.apply(left.value(look_up)?, right.value(look_up)?)
            }
        })
    }
}

impl Operator {
    fn apply(self, left: f64, right: f64) -> f64 {
        match self {
            Self::Add => left + right,
            Self::Subtract => left - right,
            Self::Multiply => left * right,
            Self::Divide => left / right,
            Self::Min => left.min(right),
            Self::Max => left.max(right),
        }
    }
}

/// Bound of a value, such as `>= 6`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    relation: Relation,
    limit: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    AtLeast,
    Above,
    AtMost,
    Below,
    Exactly,
}

impl Bound {
    /// Parses `>= 6`, `> 6`, `<= 6`, `< 6` or `== 6`.
    pub fn parse(text: &str) -> Option<Self> {
        const RELATIONS: [(&str, Relation); 5] = [
            ("==", Relation::Exactly),
            (">=", Relation::AtLeast),
            ("<=", Relation::AtMost),
            (">", Relation::Above),
            ("<", Relation::Below),
        ];
        let found = RELATIONS
            .iter()
            .find_map(|(symbol, relation)| Some((text.trim().strip_prefix(symbol)?, *relation)));
        let (number, relation) = found?;
        let limit = number
            .trim()
            .parse()
            .ok()
            .filter(|limit: &f64| limit.is_finite())?;
        Some(Self { relation, limit })
    }

    /// Returns the distance of `value` from the limit; negative if the bound does not hold.
    pub(crate) fn margin(self, value: f64) -> f64 {
        match self.relation {
            Relation::AtLeast | Relation::Above => value - self.limit,
            Relation::AtMost | Relation::Below => self.limit - value,
            Relation::Exactly => -(value - self.limit).abs(),
        }
    }

    /// Returns whether the bound holds for `value`. It never holds for NaN.
    pub fn holds(self, value: f64) -> bool {
        match self.relation {
            Relation::AtLeast => value >= self.limit,
            Relation::Above => value > self.limit,
            Relation::AtMost => value <= self.limit,
            Relation::Below => value < self.limit,
            Relation::Exactly => value == self.limit,
        }
    }
}

/// Most nested sums: the expression itself and those in parentheses.
const DEPTH_MAX: usize = 32;
/// Most operations of one expression. A sum is a tree as deep as it has terms, and is evaluated
/// recursively: 100 KB of stack for this many.
const OPERATIONS_MAX: usize = 1_000;

struct Parser<'a> {
    rest: Peekable<Chars<'a>>,
    depth: usize,
    operations: usize,
}

impl Parser<'_> {
    fn parse_all(&mut self) -> Result<Expression, String> {
        let sum = self.sum()?;
        match self.peek_char() {
            None => Ok(sum),
            Some(extra) => Err(format!("unexpected {extra:?}")),
        }
    }

    fn sum(&mut self) -> Result<Expression, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("too many parentheses".to_owned());
        }
        let symbols = [('+', Operator::Add), ('-', Operator::Subtract)];
        let sum = self.operations(symbols, Self::product);
        self.depth -= 1;
        sum
    }

    fn product(&mut self) -> Result<Expression, String> {
        self.operations(
            [('*', Operator::Multiply), ('/', Operator::Divide)],
            Self::factor,
        )
    }

    /// Parses operands with one of two operators between them, from left to right.
    fn operations(
        &mut self,
        symbols: [(char, Operator); 2],
        operand: fn(&mut Self) -> Result<Expression, String>,
    ) -> Result<Expression, String> {
        let mut left = operand(self)?;
        while let Some((_, operator)) = symbols.iter().find(|(symbol, _)| self.accept(*symbol)) {
            let right = operand(self)?;
            left = self.join(*operator, left, right)?;
        }
        Ok(left)
    }

    fn join(
        &mut self,
        operator: Operator,
        left: Expression,
        right: Expression,
    ) -> Result<Expression, String> {
        self.operations += 1;
        if self.operations > OPERATIONS_MAX {
            return Err(format!("more than {OPERATIONS_MAX} operations"));
        }
        let (left, right) = (Box::new(left), Box::new(right));
        Ok(Expression::Operation(operator, left, right))
    }

    fn factor(&mut self) -> Result<Expression, String> {
        if self.accept('(') {
            let inner = self.sum()?;
            return self.expect(')').map(|()| inner);
        }
        match self.peek_char() {
            Some(c) if c.is_ascii_digit() => self.number(),
            Some(c) if c.is_alphabetic() => self.metric_or_function(),
            Some(c) => Err(format!("unexpected {c:?}")),
            None => Err("it ends too early".to_owned()),
        }
    }

    fn number(&mut self) -> Result<Expression, String> {
        let text = self.word(|c| c.is_ascii_alphanumeric() || c == '.');
        let number = text
            .parse()
            .map_err(|_| format!("{text:?} is not a number"))?;
        Ok(Expression::Number(number))
    }

    fn metric_or_function(&mut self) -> Result<Expression, String> {
        let name = self.word(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        match name.as_str() {
            "min" => self.min_or_max(Operator::Min),
            "max" => self.min_or_max(Operator::Max),
            _ => Ok(Expression::Metric {
                name,
                cell: self.selector()?,
            }),
        }
    }

    fn min_or_max(&mut self, operator: Operator) -> Result<Expression, String> {
        self.expect('(')?;
        let mut result = self.sum()?;
        while self.accept(',') {
            let next = self.sum()?;
            result = self.join(operator, result, next)?;
        }
        self.expect(')').map(|()| result)
    }

    fn selector(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut cell = Vec::new();
        if !self.accept('{') {
            return Ok(cell);
        }
        loop {
            let key = self.word(|c| !matches!(c, '=' | ',' | '}'));
            self.expect('=')?;
            let value = self.word(|c| !matches!(c, ',' | '}'));
            cell.push((key.trim().to_owned(), value.trim().to_owned()));
            if !self.accept(',') {
                return self.expect('}').map(|()| cell);
            }
        }
    }

    fn word(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.next_if(|c| belongs(*c)) {
            word.push(c);
        }
        word
    }

    fn peek_char(&mut self) -> Option<char> {
        while self.rest.next_if(|c| c.is_whitespace()).is_some() {}
        self.rest.peek().copied()
    }

    fn accept(&mut self, symbol: char) -> bool {
        self.peek_char() == Some(symbol) && self.rest.next().is_some()
    }

    fn expect(&mut self, symbol: char) -> Result<(), String> {
        if self.accept(symbol) {
            Ok(())
        } else {
            Err(format!("{symbol:?} is missing"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> f64 {
        let look_up = |name: &str, cell: &[(String, String)]| match (name, cell) {
            ("rate_bps", []) => Ok(8.0),
            ("rate_bps", [(k, v)]) if k == "relays" => Ok(if v == "true" { 60.0 } else { 10.0 }),
            _ => Err(name.to_owned()),
        };
        Expression::parse(text).unwrap().value(&look_up).unwrap()
    }

    #[test]
    fn operators_have_the_usual_precedence() {
        assert_eq!(value("1 + 2 * 3 - 4 / 2"), 5.0);
        assert_eq!(value("(1 + 2) * 3"), 9.0);
        assert_eq!(value("8 / 2 / 2"), 2.0);
        assert_eq!(value("37.6e9 / rate_bps"), 4.7e9);
        assert_eq!(value("min(3, 1, 2) + max(4, 5)"), 6.0);
    }

    #[test]
    fn braces_select_metrics_of_other_cells() {
        assert_eq!(
            value("rate_bps{relays=true} / rate_bps{ relays = false }"),
            6.0
        );
    }

    #[test]
    fn refuses_invalid_expressions() {
        for bad in ["", "1 +", "(1", "a{b}", "1 2", "min()", "1e", "$"] {
            assert!(Expression::parse(bad).is_err(), "{bad}");
        }
        assert!(Expression::parse(&"(".repeat(1000)).is_err());
    }

    #[test]
    fn long_sums_are_parsed_or_refused() {
        let sum = |operations| format!("1{}", "+1".repeat(operations));
        assert_eq!(value(&sum(OPERATIONS_MAX)), 1001.0);
        assert!(Expression::parse(&sum(OPERATIONS_MAX + 1)).is_err());
        assert!(Expression::parse(&sum(1_000_000)).is_err());
        let least = format!("min(1{})", ",1".repeat(OPERATIONS_MAX + 1));
        assert!(Expression::parse(&least).is_err());
    }

    #[test]
    fn bounds_include_or_exclude_their_limit() {
        let holds = |text: &str, value| Bound::parse(text).unwrap().holds(value);
        assert!(holds(">= 6", 6.0) && !holds(">= 6", 5.999));
        assert!(!holds("> 6", 6.0) && holds("<= 6", 6.0) && !holds("<6", 6.0));
        assert!(holds("== 6", 6.0) && !holds("== 6", 6.000_001));
        assert!(!holds(">= 6", f64::NAN) && !holds("== 6", f64::NAN));
        assert_eq!(Bound::parse("about 6"), None);
        assert_eq!(Bound::parse(">= NaN"), None);
    }
}
