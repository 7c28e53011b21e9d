// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placeholders in the words of a command. `{address.HOST}`, `{scratch.HOST}`, `{payload}` and
//! `{longhaul}` are known only on the testbed. Any other brace is written twice.

/// Placeholder in a word of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placeholder<'a> {
    /// Address at which the command's host reaches a host.
    Address(&'a str),
    /// Scratch directory of a host.
    Scratch(&'a str),
    /// File of the flow's size.
    Payload,
    /// Executable of longhaul itself.
    Longhaul,
}

impl<'a> Placeholder<'a> {
    fn named(name: &'a str) -> Result<Self, String> {
        match name.split_once('.') {
            Some(("address", host)) => Ok(Self::Address(host)),
            Some(("scratch", host)) => Ok(Self::Scratch(host)),
            None if name == "payload" => Ok(Self::Payload),
            None if name == "longhaul" => Ok(Self::Longhaul),
            _ => Err(format!(
                "{{{name}}} is none of {{address.HOST}}, {{scratch.HOST}}, {{payload}} and {{longhaul}}; \
                 to get a plain brace, write it twice: {{{{"
            )),
        }
    }
}

/// Replaces each placeholder of `word` by the result of `look_up`.
pub(crate) fn fill(
    word: &str,
    mut look_up: impl FnMut(Placeholder<'_>) -> Result<String, String>,
) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = word;
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        if let Some(behind) = behind.strip_prefix('{') {
            filled.push('{');
            rest = behind;
            continue;
        }
        let (name, behind) = behind.split_once('}').ok_or_else(|| {
            format!(
                "{word:?} has a '{{' without a '}}'; to get a plain brace, write it twice: {{{{"
            )
        })?;
        filled.push_str(&look_up(Placeholder::named(name)?)?);
        rest = behind;
    }
    Ok(filled + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(word: &str) -> Result<String, String> {
        fill(word, |placeholder| match placeholder {
            Placeholder::Address(host) => Ok(format!("address of {host}")),
            Placeholder::Scratch("nowhere") => Err("no such host".to_owned()),
            Placeholder::Scratch(host) => Ok(format!("/{host}")),
            Placeholder::Payload => Ok("/p".to_owned()),
            Placeholder::Longhaul => Ok("longhaul".to_owned()),
        })
    }

    #[test]
    fn placeholders_are_replaced_anywhere_in_a_word() {
        assert_eq!(
            filled("root@{address.b}:{scratch.b}/x").unwrap(),
            "root@address of b:/b/x"
        );
        assert_eq!(filled("{longhaul}{payload}").unwrap(), "longhaul/p");
        assert_eq!(filled("plain }").unwrap(), "plain }");
    }

    #[test]
    fn other_braces_must_be_doubled() {
        assert_eq!(filled("{{print $1}").unwrap(), "{print $1}");
        assert!(filled("{print $1}").unwrap_err().contains("write it twice"));
        assert!(filled("{adress.b}").unwrap_err().contains("{address.HOST}"));
        assert!(filled("awk {").unwrap_err().contains("without a '}'"));
        assert_eq!(filled("{scratch.nowhere}").unwrap_err(), "no such host");
    }
}
