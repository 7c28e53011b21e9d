// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsing of `NAME=VALUE` settings for the parameters of a congestion control.

use crate::{
    Error,
    math::{Algorithm, Parameter, algorithm, algorithms},
};

/// Returns the congestion control of this name, with or without `lh_`.
pub fn named(name: &str) -> Result<Algorithm, Error> {
    algorithm(name).ok_or_else(|| Error::Unknown {
        name: name.to_owned(),
        known: algorithms()
            .map(Algorithm::name)
            .collect::<Vec<_>>()
            .join(", "),
    })
}

/// Returns the default of each parameter, in their order.
#[must_use]
pub fn defaults(algorithm: Algorithm) -> Vec<u32> {
    algorithm.parameters().map(|p| p.default).collect()
}

/// Parses settings `NAME=VALUE` to the position and value of each parameter.
pub fn settings<S: AsRef<str>>(
    algorithm: Algorithm,
    settings: &[S],
) -> Result<Vec<(usize, u32)>, Error> {
    settings
        .iter()
        .map(|setting| read(algorithm, setting.as_ref()))
        .collect()
}

/// Returns all values: those given, and the defaults of the others.
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
    let known = match &all[..] {
        [] => "it has none".to_owned(),
        _ => format!("it has {}", all.join(", ")),
    };
    Error::Parameter(format!(
        "--param: {} has no parameter {name:?}; {known}",
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
    fn parameters_not_given_have_defaults() {
        assert_eq!(set_values(&[]).unwrap(), [100, 3]);
        assert_eq!(set_values(&["md_shift=1"]).unwrap(), [100, 1]);
        assert_eq!(set_values(&["ai = 50", "md_shift=7"]).unwrap(), [50, 7]);
    }

    #[test]
    fn errors_name_the_allowed_values() {
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
    fn accepts_names_with_prefix() {
        assert_eq!(named("lh_scalable").unwrap().name(), "scalable");
    }
}
