// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure and its place on the way: at the destination or at a relay, and which relay says so.

use longhaul_protocol::failure::Failure;
use longhaul_protocol::{
    convert::{Cause, ErrorCode},
    socks5::Reply,
};
use std::{fmt, net::SocketAddr};

/// Why a connection was not made, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    /// The relay that says so; `None` is this one.
    by: Option<Box<str>>,
    /// The relay that could not be gone on to; `None`: the destination.
    at: Option<Box<str>>,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            by: None,
            at: None,
        }
    }
}

impl Fault {
    /// What this relay found on its way to `relay`.
    pub(crate) fn at(failure: Failure, relay: &str) -> Self {
        Self {
            at: Some(relay.into()),
            ..failure.into()
        }
    }

    /// What `relay` answered. Which relay says so is known to the one behind it.
    pub(crate) fn of_answer(
        (code, detail): (ErrorCode, u8),
        cause: Option<Cause>,
        relay: &str,
    ) -> Self {
        let Some(Cause {
            code: known,
            by,
            at,
        }) = cause
        else {
            let failure = Failure::from_convert(code, detail);
            // It can't read what this relay sends: no matter where that was to lead.
            return match failure {
                Failure::PeerProtocol => Self::at(failure, relay),
                failure => Self {
                    by: Some(relay.into()),
                    ..failure.into()
                },
            };
        };
        let named = |name: String| (!name.is_empty()).then(|| name.into_boxed_str());
        Self {
            failure: from_number(known).unwrap_or(Failure::from_convert(code, detail)),
            by: named(by).or_else(|| Some(relay.into())),
            at: named(at),
        }
    }

    /// The same with other names for relays.
    pub(crate) fn renamed(self, name: impl Fn(SocketAddr) -> Option<String>) -> Self {
        let renamed = |old: Box<str>| match old.parse().ok().and_then(&name) {
            Some(new) => new.into_boxed_str(),
            None => old,
        };
        Self {
            by: self.by.map(renamed),
            at: self.at.map(renamed),
            ..self
        }
    }

    /// RFC 8803 §6.2.8, and the cause for relays that know it.
    pub(crate) fn convert(&self) -> Vec<u8> {
        let answer = self.failure.convert();
        let name = |name: &Option<Box<str>>| name.clone().unwrap_or_default();
        match to_number(self.failure) {
            Some(code) => Cause::new(code, &name(&self.by), &name(&self.at)).explain(answer),
            None => answer.encode(),
        }
    }

    /// RFC 1928 §6. A relay that can't be gone on to is part of the network, and no host that was
    /// asked for.
    pub(crate) fn socks5(&self) -> Reply {
        use Failure as F;
        match (&self.at, self.failure) {
            (
                Some(_),
                F::Refused
                | F::Reset
                | F::HostUnreachable
                | F::TimedOut
                | F::NameNotFound
                | F::NameServers,
            ) => Reply::NetworkUnreachable,
            (_, failure) => failure.socks5(),
        }
    }

    /// The relay that could not be gone on to, if it goes by its address.
    pub(crate) fn hop(&self) -> Option<SocketAddr> {
        self.at.as_deref()?.parse().ok()
    }

    /// Whether a relay on the way is to blame, and not the destination.
    pub(crate) fn is_at_relay(&self) -> bool {
        self.at.is_some()
    }

    /// The whole sentence. `destination` is empty if there is none yet.
    pub(crate) fn words(&self, destination: &str) -> String {
        let at = match &self.at {
            Some(relay) => format!("relay {relay}: "),
            None if destination.is_empty() => String::new(),
            None => format!("{destination}: "),
        };
        let by = self.by.iter().map(|relay| format!(", says relay {relay}"));
        format!("{at}{}{}", self.failure, by.collect::<String>())
    }

    /// The value of Proxy-Status (RFC 9209 §2): the relay that failed comes before this one, which
    /// is known as `own` and says `error`.
    pub(crate) fn proxy_status(&self, own: &str, destination: &str, error: &str) -> String {
        let next = match self.at.as_deref().unwrap_or(destination) {
            "" => String::new(),
            next => format!("; next-hop={}", string(next)),
        };
        match &self.by {
            Some(relay) => format!("{}; error={error}{next}, {own}", string(relay)),
            None => format!("{own}; error={error}{next}"),
        }
    }

    /// RFC 9209 §2.3.
    pub(crate) fn error_type(&self) -> &'static str {
        use Failure as F;
        match self.failure {
            F::Refused => "connection_refused",
            F::Reset | F::ClientGone => "connection_terminated",
            F::NetworkUnreachable | F::HostUnreachable => "destination_ip_unroutable",
            F::TimedOut | F::HandshakeTimeout => "connection_timeout",
            F::NameNotFound | F::NameServers => "dns_error",
            F::NotAllowed => "http_request_denied",
            F::Prohibited => "destination_ip_prohibited",
            F::Exhausted => "connection_limit_reached",
            F::Loop => "proxy_loop_detected",
            F::PeerProtocol => "proxy_configuration_error",
            F::BadRequest => "http_request_error",
            F::Other => "proxy_internal_error",
        }
    }
}

/// For records and logs, where the destination stands beside it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)?;
        if let Some(relay) = &self.at {
            write!(f, " at relay {relay}")?;
        }
        match &self.by {
            Some(relay) => write!(f, ", says relay {relay}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// A string of structured fields (RFC 8941 §3.3.3). What ASCII does not show is `?`.
fn string(text: &str) -> String {
    let shown = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        ' '..='~' => c.to_string(),
        _ => "?".to_owned(),
    });
    format!("\"{}\"", shown.collect::<String>())
}

/// The failures of [`Cause::code`]. What is wrong between two neighbours only is not among them.
const NUMBERS: [(Failure, u8); 13] = [
    (Failure::Refused, 1),
    (Failure::Reset, 2),
    (Failure::NetworkUnreachable, 3),
    (Failure::HostUnreachable, 4),
    (Failure::TimedOut, 5),
    (Failure::NameNotFound, 6),
    (Failure::NotAllowed, 7),
    (Failure::Exhausted, 8),
    (Failure::Loop, 9),
    (Failure::PeerProtocol, 10),
    (Failure::Other, 11),
    (Failure::NameServers, 12),
    (Failure::Prohibited, 13),
];

fn to_number(failure: Failure) -> Option<u8> {
    let known = NUMBERS.iter().find(|(known, _)| *known == failure);
    known.map(|(_, number)| *number)
}

fn from_number(number: u8) -> Option<Failure> {
    let known = NUMBERS.iter().find(|(_, known)| *known == number);
    known.map(|(failure, _)| *failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_protocol::convert::Answer;

    /// What the relay before hears of it, from `relay`.
    fn passed_on(fault: &Fault, relay: &str) -> Fault {
        let bytes = fault.convert();
        let Ok(Some((Answer::Refused { code, detail }, _))) = Answer::parse(&bytes) else {
            panic!("{fault} is no refusal");
        };
        Fault::of_answer((code, detail), Cause::find(&bytes), relay)
    }

    #[test]
    fn a_fault_is_the_same_behind_any_number_of_relays() {
        for (failure, _) in NUMBERS {
            let (end, middle) = (Fault::from(failure), Fault::at(failure, "osaka"));
            let heard = passed_on(&passed_on(&passed_on(&end, "c"), "b"), "a");
            assert_eq!(
                heard.words("host:80"),
                format!("host:80: {failure}, says relay c")
            );
            let heard = passed_on(&passed_on(&middle, "b"), "a");
            assert_eq!(
                heard.words("host:80"),
                format!("relay osaka: {failure}, says relay b")
            );
        }
    }

    #[test]
    fn a_relay_that_tells_no_cause_is_believed_its_code() {
        let fault = Fault::of_answer((ErrorCode::ConnectionReset, 0), None, "old");
        assert_eq!(
            fault.words("host:80"),
            "host:80: connection refused, says relay old"
        );
        let fault = Fault::of_answer((ErrorCode::MalformedMessage, 0), None, "old");
        assert_eq!(
            fault.words("host:80"),
            "relay old: the peer broke the protocol"
        );
    }

    #[test]
    fn hops_have_the_names_of_this_relay_s_file() {
        let fault = passed_on(
            &Fault::at(Failure::Refused, "192.0.2.1:5124"),
            "192.0.2.9:5124",
        );
        let fault = fault.renamed(|address| match address.to_string().as_str() {
            "192.0.2.1:5124" => Some("osaka".to_owned()),
            _ => None,
        });
        let words = "relay osaka: connection refused, says relay 192.0.2.9:5124";
        assert_eq!(fault.words("host:80"), words);
    }

    #[test]
    fn proxy_status_is_well_formed_whatever_others_are_called() {
        let fault = passed_on(&Fault::from(Failure::Refused), "to\"k\\yo");
        assert_eq!(
            fault.proxy_status("longhaul-1", "host:80", fault.error_type()),
            r#""to\"k\\yo"; error=connection_refused; next-hop="host:80", longhaul-1"#
        );
        let fault = Fault::at(Failure::Loop, "t\u{f6}ky\u{f6}\r\n");
        assert_eq!(
            fault.proxy_status("longhaul-1", "host:80", fault.error_type()),
            r#"longhaul-1; error=proxy_loop_detected; next-hop="t?ky???""#
        );
    }

    #[test]
    fn a_dead_relay_is_no_refusal_of_the_destination() {
        assert_eq!(
            Fault::from(Failure::Refused).socks5(),
            Reply::ConnectionRefused
        );
        assert_eq!(
            Fault::at(Failure::Refused, "x").socks5(),
            Reply::NetworkUnreachable
        );
        assert_eq!(Fault::at(Failure::Loop, "x").socks5(), Reply::TtlExpired);
        assert_eq!(
            Fault::at(Failure::PeerProtocol, "x").socks5(),
            Reply::GeneralFailure
        );
    }
}
