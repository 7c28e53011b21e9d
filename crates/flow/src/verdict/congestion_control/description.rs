// SPDX-License-Identifier: MIT OR Apache-2.0
//! Congestion control in a sentence, with its evidence.

use crate::record::{CongestionControl, ControlName, ControlUnknown};

impl CongestionControl {
    /// Returns the control in a sentence or two, with the evidence, or why it is unknown.
    #[must_use]
    pub fn describe(&self) -> String {
        match (self.name, self.unknown_because) {
            (ControlName::Unknown, reason) => {
                format!("Congestion control unknown: {}.", self.why_unknown(reason))
            }
            (ControlName::Bbr, _) => format!("Congestion control: bbr ({}).", self.bbr_evidence()),
            (name, _) => format!(
                "Congestion control: {}{} ({}).",
                name.as_str(),
                self.alternatives(),
                self.law_evidence()
            ),
        }
    }

    fn why_unknown(&self, reason: Option<ControlUnknown>) -> String {
        let text = match reason {
            Some(ControlUnknown::WindowNotSeen) => {
                "without timestamps, the window does not show here"
            }
            Some(ControlUnknown::NotGoverned) => "it did not limit the sender",
            Some(ControlUnknown::NoMatch) => {
                return format!("the window follows no known one{}", self.backoff_clause());
            }
            Some(ControlUnknown::FewReductions) | None => {
                "too few losses show how the window answers them"
            }
        };
        text.to_owned()
    }

    fn backoff_clause(&self) -> String {
        let backoff = self.backoff.filter(|_| self.reductions > 0);
        backoff.map_or_else(String::new, |part| {
            format!(", it falls to {part:.2} at a loss")
        })
    }

    /// Returns the others that explain the window as well.
    fn alternatives(&self) -> String {
        let names: Vec<&str> = self.also.iter().map(|name| name.as_str()).collect();
        if names.is_empty() {
            String::new()
        } else {
            format!(
                ", or {}, which such a window does not tell from it",
                names.join(" or ")
            )
        }
    }

    fn law_evidence(&self) -> String {
        let growth = match self.name {
            ControlName::Cubic => "grows as a cubic of the time",
            ControlName::Bic => "searches its former size by halves",
            ControlName::Scalable => "grows by a segment for each 100 acknowledged",
            ControlName::Htcp => "grows by the time since the loss",
            ControlName::Hstcp => "grows faster the larger it is",
            _ => "grows by one segment",
        };
        let growth = match self.growth_segments {
            Some(segments) => format!("{growth}, here {segments:.1} segments a round trip"),
            None => growth.to_owned(),
        };
        match self.backoff.filter(|_| self.reductions > 0) {
            Some(part) => format!(
                "the window falls to {part:.2} as it does at {} of {} losses, and {growth}",
                self.explained_reductions, self.reductions
            ),
            None => format!("the window {growth}"),
        }
    }

    fn bbr_evidence(&self) -> String {
        let cycle = self
            .probe_period_rtts
            .map(|period| format!("the rate rises and falls every {period:.1} least round trips"));
        let ignoring = Some(self.round_trips_ignoring_losses)
            .filter(|rounds| *rounds > 0)
            .map(|rounds| format!("the window ignores losses for {rounds} round trips"));
        let probes = Some(self.rtt_probes).filter(|count| *count > 0);
        let probes = probes.map(|count| {
            let times = match count {
                1 => "once".to_owned(),
                count => format!("{count} times"),
            };
            format!("the window falls to four segments and rises again, {times}")
        });
        let clauses: Vec<String> = cycle.into_iter().chain(ignoring).chain(probes).collect();
        clauses.join(", and ")
    }
}

impl ControlName {
    /// Returns the name as Linux and longhaul have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bic => "bic",
            Self::Scalable => "scalable",
            Self::Htcp => "htcp",
            Self::Hstcp => "hstcp",
            Self::Bbr => "bbr",
            Self::Unknown => "unknown",
        }
    }
}
