// SPDX-License-Identifier: MIT OR Apache-2.0
//! `NAME=VALUE` for the parameters of a congestion control.

use crate::{
    Error,
    math::{Algorithm, Parameter, algorithm, algorithms},
};

/// The congestion control of that name, with or without `lh_`.
pub fn named(name: &str) -> Result<Algorithm, Error> {
    algorithm(name).ok_or_else(|| Error::Unknown {
        name: name.to_owned(),
        known: algorithms()
            .map(Algorithm::name)
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// What each parameter is unless told, in their order.
#[must_use]
pub fn defaults(algorithm: Algorithm) -> Vec<u32> {
    algorithm.parameters().map(|p| p.default).collect()
}

/// Takes in settings `NAME=VALUE`: the position of each parameter and its value.
pub fn settings<S: AsRef<str>>(
    algorithm: Algorithm,
    settings: &[S],
) -> Result<Vec<(usize, u32)>, Error> {
    settings
        .iter()
        .map(|setting| read(algorithm, setting.as_ref()))
        .collect()
}

/// All values: those that `settings` gives, the others' defaults.
pub fn values<S: AsRef<str>>(algorithm: Algorithm, given: &[S]) -> Result<Vec<u32>, Error> {
    let mut values = defaults(algorithm);
    for (at, value) in settings(algorithm, given)? {
        values[at] = value;
    }
    Ok(values)
}

fn read(algorithm: Algorithm, setting: &str) -> Result<(usize, u32), Error> {
    let (name, value) = setting
        .split_once('=')
        .ok_or_else(|| Error::Parameter(format!("--param {setting:?} is not NAME=VALUE")))?;
    let found = algorithm.parameters().enumerate();
    let mut found = found.filter(|(_, parameter)| parameter.name == name.trim());
    let (at, parameter) = found
        .next()
        .ok_or_else(|| unknown(algorithm, name.trim()))?;
    let value = value.trim().parse().ok();
    match value.filter(|value| (parameter.min..=parameter.max).contains(value)) {
        Some(value) => Ok((at, value)),
        None => Err(out_of_range(&parameter, setting)),
    }
}

fn unknown(algorithm: Algorithm, name: &str) -> Error {
    let all: Vec<_> = algorithm.parameters().map(|p| p.name).collect();
    let there = match &all[..] {
        [] => "it has none".to_owned(),
        _ => format!("it has {}", all.join(", ")),
    };
    Error::Parameter(format!(
        "--param: {} has no parameter {name:?}; {there}",
        algorithm.name()
    ))
}

fn out_of_range(parameter: &Parameter, setting: &str) -> Error {
    let Parameter {
        name,
        unit,
        min: least,
        max: most,
        ..
    } = parameter;
    let space = if unit.is_empty() { "" } else { " " };
    Error::Parameter(format!(
        "--param {setting}: {name} is a whole number from {least} to {most}{space}{unit}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_values(settings: &[&str]) -> Result<Vec<u32>, String> {
        let scalable = named("scalable").unwrap();
        values(scalable, settings).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_told_stays_the_default() {
        assert_eq!(set_values(&[]).unwrap(), [100, 3]);
        assert_eq!(set_values(&["md_shift=1"]).unwrap(), [100, 1]);
        assert_eq!(set_values(&["ai = 50", "md_shift=7"]).unwrap(), [50, 7]);
    }

    #[test]
    fn refusals_name_the_way_out() {
        assert_eq!(
            set_values(&["ai=0"]).unwrap_err(),
            "--param ai=0: ai is a whole number from 1 to 10000 packets"
        );
        assert!(
            set_values(&["md_shift=8"])
                .unwrap_err()
                .contains("from 1 to 7")
        );
        assert!(
            set_values(&["ai=many"])
                .unwrap_err()
                .contains("whole number")
        );
        assert!(
            set_values(&["ai=4294967297"])
                .unwrap_err()
                .contains("whole number")
        );
        assert!(set_values(&["ai"]).unwrap_err().contains("not NAME=VALUE"));
        assert!(
            set_values(&["x=1"])
                .unwrap_err()
                .ends_with("it has ai, md_shift")
        );
        assert!(named("vegas").unwrap_err().to_string().contains("scalable"));
    }

    #[test]
    fn both_names_will_do() {
        assert_eq!(named("lh_scalable").unwrap().name(), "scalable");
    }
}
