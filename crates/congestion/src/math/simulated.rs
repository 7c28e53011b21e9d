// SPDX-License-Identifier: MIT OR Apache-2.0
//! The congestion controls that can be simulated, by name.

use crate::math::{self, Algorithm};
use longhaul_tcpsim::congestion_control::{CongestionControl, cubic::Cubic, reno::Reno};

/// Creates a congestion control from `text`, such as `cubic` or `bic:ack_shift=3`, for a connection that is
/// `paced` or not. `reno` and `cubic` are as in the kernel; the others are the C code that `cc load` loads.
pub fn algorithm(text: &str, paced: bool) -> Result<Box<dyn CongestionControl>, String> {
    let mut words = text.split(':');
    let name = words.next().unwrap_or_default();
    let control: Box<dyn CongestionControl> = match name {
        "reno" => Box::new(Reno),
        "cubic" => Box::new(Cubic::new(paced)),
        _ => {
            let algorithm = math::algorithm(name).ok_or_else(|| {
                let names = names();
                format!("this congestion control cannot be simulated; these can: {names}")
            })?;
            let values = parameters(algorithm, words.by_ref())?;
            Box::new(algorithm.connection(&values))
        }
    };
    match words.next() {
        None => Ok(control),
        Some(word) => Err(format!("{name} has no parameters, but {word:?} is given")),
    }
}

/// Returns the values of an algorithm's parameters, in order, with those that `words` set.
fn parameters<'a>(
    algorithm: Algorithm,
    words: impl Iterator<Item = &'a str>,
) -> Result<Vec<u32>, String> {
    let known: Vec<_> = algorithm.parameters().collect();
    let mut values: Vec<u32> = known.iter().map(|parameter| parameter.default).collect();
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let at = known.iter().position(|parameter| parameter.name == name);
        let at = at.ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|parameter| parameter.name).collect();
            format!("no parameter {name:?}; there are: {}", names.join(", "))
        })?;
        let range = known[at].min..=known[at].max;
        let in_range = value.parse().ok().filter(|value| range.contains(value));
        values[at] = in_range.ok_or_else(|| {
            let (least, most) = (range.start(), range.end());
            format!("{name} {value:?} is not a whole number from {least} to {most}")
        })?;
    }
    Ok(values)
}

/// Returns the names of all controls that can be simulated, for a message.
fn names() -> String {
    let ours = math::algorithms().map(Algorithm::name);
    let all: Vec<_> = ["reno", "cubic"].into_iter().chain(ours).collect();
    all.join(", ")
}
