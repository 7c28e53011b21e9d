// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of parameters as text, and their comparison with text from a person: `loss=1e-3` matches
//! `loss = 0.001`, and `delay=1000us` matches `delay = "1ms"`.

use super::config_error::{ConfigError, locate_error};
use longhaul_units::{BitRate, Bytes, Ratio, Time};
use std::str::FromStr;
use toml::{Table, Value};

/// Whether `text` equals `value` as text, number or quantity.
pub(crate) fn matches(text: &str, value: &Value) -> bool {
    let value = plain_text(value);
    // Plain numbers are not compared as sizes: 0.00001 bytes would equal 0.
    value == text || same_number(&value, text).unwrap_or_else(|| same_quantity(&value, text))
}

/// Whether `text`, or one of its alternatives (`a|b`), matches `value`.
pub(crate) fn matches_any(text: &str, value: &Value) -> bool {
    matches(text, value) || text.split('|').any(|one| matches(one.trim(), value))
}

/// Compares two numbers; `None` unless both are numbers.
fn same_number(one: &str, other: &str) -> Option<bool> {
    let number = |text: &str| text.parse::<f64>().ok();
    Some(number(one)? == number(other)?)
}

fn same_quantity(one: &str, other: &str) -> bool {
    same::<Time>(one, other)
        || same::<Bytes>(one, other)
        || same::<BitRate>(one, other)
        || same_share(one, other)
}

fn same<T: FromStr + PartialEq>(one: &str, other: &str) -> bool {
    matches!((one.parse::<T>(), other.parse::<T>()), (Ok(one), Ok(other)) if one == other)
}

/// Compares ratios. Percentages have rounding errors: 0.7 % is 0.006999….
fn same_share(one: &str, other: &str) -> bool {
    let share = |text: &str| text.parse().map(Ratio::get);
    matches!((share(one), share(other)), (Ok(one), Ok(other)) if (one - other).abs() < 1e-12)
}

/// Formats a value; strings without quotes.
pub(crate) fn plain_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Parses the value after `name=`: as TOML if possible, else as a string.
pub(crate) fn parse_value(text: &str) -> Value {
    toml::from_str::<Table>(&format!("value = {text}"))
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// Converts TOML keys to command-line flags: `keep_source = true` → `--keep-source`, lists → repeated flags, tables →
/// flags with `KEY=VALUE`. Flag and value are one word, so that a value with a leading minus sign is not taken as a flag.
pub(crate) fn flags(options: &Table) -> Result<Vec<String>, ConfigError> {
    let mut flags = Vec::new();
    for (option, value) in options {
        let flag = format!("--{}", option.replace('_', "-"));
        let setting = |(key, value): (&String, &Value)| {
            Ok(format!("{}={}", key.replace('_', "-"), scalar(key, value)?))
        };
        let values: Result<Vec<String>, String> = match value {
            Value::Boolean(true) => {
                flags.push(flag);
                continue;
            }
            Value::Boolean(false) => continue,
            Value::Array(all) => all.iter().map(|one| scalar(option, one)).collect(),
            Value::Table(settings) => settings.iter().map(setting).collect(),
            one => scalar(option, one).map(|text| vec![text]),
        };
        let values = locate_error(option, values)?.into_iter();
        flags.extend(values.map(|value| format!("{flag}={value}")));
    }
    Ok(flags)
}

/// Returns the values of an option, as the command line has them: none if it is absent, `false` or an empty list.
pub(crate) fn values_of(options: &Table, key: &str) -> Vec<String> {
    let option = options.get_key_value(key);
    let option = option.map(|(key, value)| Table::from_iter([(key.clone(), value.clone())]));
    let flags = option
        .and_then(|option| flags(&option).ok())
        .unwrap_or_default();
    let value = |flag: &String| Some(flag.split_once('=')?.1.to_owned());
    flags.iter().filter_map(value).collect()
}

fn scalar(key: &str, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Float(number) => Ok(longhaul_netem::grammar::number_text(key, *number)),
        Value::Integer(_) | Value::Boolean(_) => Ok(value.to_string()),
        _ => Err(format!("{key} must be a text, a number or a list of them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::String(value.to_owned())
    }

    #[test]
    fn numbers_and_quantities_are_compared_by_value() {
        assert!(matches("1e-3", &Value::Float(0.001)));
        assert!(matches("0.0", &Value::Integer(0)));
        assert!(matches("0.7%", &Value::Float(0.007)));
        assert!(matches("1000us", &text("1ms")));
        assert!(matches("1gbit", &text("1000mbit")));
        assert!(matches("true", &Value::Boolean(true)));
        assert!(!matches("1", &Value::Boolean(true)));
        assert!(!matches("1ms", &text("10ms")));
        assert!(!matches("1GB", &text("1gbit")));
        assert!(!matches("", &Value::Integer(0)));
        assert!(!matches("0.0", &Value::Float(0.00001)));
        assert!(matches("0.00001", &Value::Float(1e-5)));
    }

    #[test]
    fn any_alternative_matches() {
        assert!(matches_any("0|0.001", &Value::Float(0.001)));
        assert!(matches_any("reno | cubic", &text("cubic")));
        assert!(matches_any("a|b", &text("a|b")));
        assert!(!matches_any("0|0.1", &Value::Float(0.001)));
    }

    #[test]
    fn values_are_parsed_as_toml_or_text() {
        assert_eq!(parse_value("true"), Value::Boolean(true));
        assert_eq!(parse_value("0.001"), Value::Float(0.001));
        assert_eq!(parse_value("4.7GB"), Value::String("4.7GB".to_owned()));
        assert_eq!(
            parse_value("1\nb = 2"),
            Value::String("1\nb = 2".to_owned())
        );
    }

    #[test]
    fn keys_become_flags() {
        let table = toml::from_str(
            "keep_source = true\nquiet = false\nloss = 0.001\npeer = ['a', 'b']\nseed = -1\n\
             backward = { loss = 0.001, max_ack_delay = '5ms' }",
        )
        .unwrap();
        let expected = [
            "--keep-source",
            "--loss=0.1%",
            "--peer=a",
            "--peer=b",
            "--seed=-1",
            "--backward=loss=0.1%",
            "--backward=max-ack-delay=5ms",
        ];
        assert_eq!(flags(&table).unwrap(), expected);
        assert!(flags(&toml::from_str("x = { y = [1] }").unwrap()).is_err());
    }
}
