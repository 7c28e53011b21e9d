// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion controls as scenarios name them.

use longhaul_congestion::math::{algorithm, parameters};
use std::{fmt, str::FromStr};

/// Name of UDT's own rate control as a flow's `cc`.
pub(crate) const UDT: &str = "udt";

/// Congestion control of a flow: `reno`, `lh_bic:ack_shift=3`, `cubic+pace`, `+pace`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CcSpec {
    pub(crate) name: Option<String>,
    /// Parameters such as `ack_shift=3`, of longhaul's own controls.
    pub(crate) settings: Vec<String>,
    /// Whether packets are paced from the first one on.
    pub(crate) paced: bool,
}

impl CcSpec {
    /// Name of the control: the kernel's, once a testbed has resolved it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Name with parameters, without pacing: the key by which it is provided. `None` without a
    /// name.
    pub(crate) fn key(&self) -> Option<String> {
        let name = self.name.iter().chain(&self.settings);
        let words: Vec<&str> = name.map(String::as_str).collect();
        self.name.is_some().then(|| words.join(":"))
    }
}

impl FromStr for CcSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, paced) = match text.strip_suffix("+pace") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let mut words = rest.split(':').map(str::to_owned);
        let name = words.next().filter(|name| !name.is_empty());
        let settings: Vec<String> = words.collect();
        if name.is_none() && (!paced || !settings.is_empty()) {
            return Err(format!(
                "{text:?} is not a congestion control such as reno, lh_bic:ack_shift=3 or cubic+pace"
            ));
        }
        let control = Self {
            name,
            settings,
            paced,
        };
        control.values().map(|_| control.clone())
    }
}

impl CcSpec {
    /// Returns the checked parameters; `None` if it sets none.
    pub(crate) fn values(&self) -> Result<Option<Vec<u32>>, String> {
        let (Some(name), false) = (&self.name, self.settings.is_empty()) else {
            return Ok(None);
        };
        let ours = algorithm(name).ok_or_else(|| {
            format!("{name} has no parameters: only longhaul's own congestion controls have some")
        })?;
        let values = parameters::values(ours, &self.settings);
        let values = values.map_err(|error| error.to_string().replace("--param", name))?;
        Ok(Some(values))
    }
}

impl fmt::Display for CcSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key().unwrap_or_default())?;
        f.write_str(if self.paced { "+pace" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing_and_printing_are_inverse() {
        for text in ["reno", "lh_bic:ack_shift=3", "cubic+pace", "+pace"] {
            let control: CcSpec = text.parse().unwrap();
            assert_eq!(control.to_string(), text);
        }
        let both: CcSpec = "bic:ack_shift=3+pace".parse().unwrap();
        assert_eq!(both.key().unwrap(), "bic:ack_shift=3");
        assert!(both.paced);
    }

    #[test]
    fn names_the_invalid_part() {
        let error = |text: &str| text.parse::<CcSpec>().unwrap_err();
        assert!(error("").contains("cubic+pace"));
        assert!(error(":x=1+pace").contains("is not a congestion control"));
        assert!(error("reno:beta=2").contains("reno has no parameters"));
        assert!(
            error("bic:x=1").contains("no parameter \"x\""),
            "{}",
            error("bic:x=1")
        );
        assert!(error("bic:ack_shift=999").contains("whole number"));
    }
}
