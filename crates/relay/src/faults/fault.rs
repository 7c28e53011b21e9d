// SPDX-License-Identifier: MIT OR Apache-2.0
//! A failure, the hop at which it happened (destination or relay), and the relay that reported it.

use longhaul_protocol::failure::Failure;
use longhaul_protocol::{
    convert::{Cause, ErrorCode},
    socks5::Reply,
};
use std::{fmt, net::SocketAddr};

/// Cause of a connection that was not established, and the hop at which it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) failure: Failure,
    /// Relay that reported the failure; `None` is this relay.
    reported_by: Option<Box<str>>,
    /// Relay that could not be reached; `None` is the destination.
    failed_at: Option<Box<str>>,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            reported_by: None,
            failed_at: None,
        }
    }
}

impl Fault {
    /// Failure at `relay`, found by this relay itself.
    pub(crate) fn at_relay(failure: Failure, relay: &str) -> Self {
        Self {
            failed_at: Some(relay.into()),
            ..failure.into()
        }
    }

    /// Failure that `relay` reported. The reporting relay need not name itself: its neighbour knows
    /// it.
    pub(crate) fn from_answer(
        code: ErrorCode,
        detail: u8,
        cause: Option<Cause>,
        relay: &str,
    ) -> Self {
        let Some(Cause {
            code: cause_code,
            reported_by,
            failed_at,
        }) = cause
        else {
            let failure = Failure::from_convert(code, detail);
            // The relay can't parse this relay's messages, whatever the destination.
            return match failure {
                Failure::PeerProtocol => Self::at_relay(failure, relay),
                failure => Self {
                    reported_by: Some(relay.into()),
                    ..failure.into()
                },
            };
        };
        let named = |name: String| (!name.is_empty()).then(|| name.into_boxed_str());
        Self {
            failure: from_cause_code(cause_code).unwrap_or(Failure::from_convert(code, detail)),
            reported_by: named(reported_by).or_else(|| Some(relay.into())),
            failed_at: named(failed_at),
        }
    }

    /// Returns the fault with relay names replaced by those from `name`.
    pub(crate) fn with_names(self, name: impl Fn(SocketAddr) -> Option<String>) -> Self {
        let renamed = |old: Box<str>| match old.parse().ok().and_then(&name) {
            Some(new) => new.into_boxed_str(),
            None => old,
        };
        Self {
            reported_by: self.reported_by.map(renamed),
            failed_at: self.failed_at.map(renamed),
            ..self
        }
    }

    /// Encodes a Convert answer (RFC 8803 §6.2.8), with the cause for relays that know that option.
    pub(crate) fn encode_convert(&self) -> Vec<u8> {
        let answer = self.failure.convert();
        let name = |name: &Option<Box<str>>| name.clone().unwrap_or_default();
        match to_cause_code(self.failure) {
            Some(code) => {
                Cause::new(code, &name(&self.reported_by), &name(&self.failed_at)).append_to(answer)
            }
            None => answer.encode(),
        }
    }

    /// SOCKS5 reply code (RFC 1928 §6). An unreachable relay counts as part of the network, not as
    /// the requested host.
    pub(crate) fn socks5_reply(&self) -> Reply {
        use Failure as F;
        match (&self.failed_at, self.failure) {
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

    /// Address of the relay that could not be reached, if it is named by an address.
    pub(crate) fn hop(&self) -> Option<SocketAddr> {
        self.failed_at.as_deref()?.parse().ok()
    }

    /// Whether a relay on the path failed, and not the destination.
    pub(crate) fn is_at_relay(&self) -> bool {
        self.failed_at.is_some()
    }

    /// Whether this relay itself refuses the destination: a route denies it, or it is local.
    pub(crate) fn is_own_refusal(&self) -> bool {
        *self == Failure::NotAllowed.into()
    }

    /// Full message. `destination` is empty if it is not known yet.
    pub(crate) fn message(&self, destination: &str) -> String {
        let at = match &self.failed_at {
            Some(relay) => format!("relay {relay}: "),
            None if destination.is_empty() => String::new(),
            None => format!("{destination}: "),
        };
        let by = self
            .reported_by
            .iter()
            .map(|relay| format!(", says relay {relay}"));
        format!("{at}{}{}", self.failure, by.collect::<String>())
    }

    /// Value of a Proxy-Status field (RFC 9209 §2). The relay that failed precedes this one, which
    /// is named `own` and reports `error`.
    pub(crate) fn proxy_status(&self, own: &str, destination: &str, error: &str) -> String {
        let next = match self.failed_at.as_deref().unwrap_or(destination) {
            "" => String::new(),
            next => format!("; next-hop={}", sf_string(next)),
        };
        match &self.reported_by {
            Some(relay) => format!("{}; error={error}{next}, {own}", sf_string(relay)),
            None => format!("{own}; error={error}{next}"),
        }
    }

    /// Error type for Proxy-Status (RFC 9209 §2.3).
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

/// Format for records and logs, which contain the destination besides.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failure.fmt(f)?;
        if let Some(relay) = &self.failed_at {
            write!(f, " at relay {relay}")?;
        }
        match &self.reported_by {
            Some(relay) => write!(f, ", says relay {relay}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// Encodes a structured-field string (RFC 8941 §3.3.3). Characters that are not printable ASCII
/// become `?`.
fn sf_string(text: &str) -> String {
    let shown = text.chars().map(|c| match c {
        '"' | '\\' => format!("\\{c}"),
        ' '..='~' => c.to_string(),
        _ => "?".to_owned(),
    });
    format!("\"{}\"", shown.collect::<String>())
}

/// Numbers of failures in [`Cause::code`]. Failures that concern only two neighbours have none.
const CAUSE_CODES: [(Failure, u8); 13] = [
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

fn to_cause_code(failure: Failure) -> Option<u8> {
    let known = CAUSE_CODES.iter().find(|(known, _)| *known == failure);
    known.map(|(_, number)| *number)
}

fn from_cause_code(number: u8) -> Option<Failure> {
    let known = CAUSE_CODES.iter().find(|(_, known)| *known == number);
    known.map(|(failure, _)| *failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_protocol::convert::Answer;

    /// Fault at the relay before, to which `relay` answers with `fault`.
    fn forward(fault: &Fault, relay: &str) -> Fault {
        let bytes = fault.encode_convert();
        let Ok(Some((Answer::Refused { code, detail }, _))) = Answer::parse(&bytes) else {
            panic!("{fault} is no refusal");
        };
        Fault::from_answer(code, detail, Cause::find(&bytes), relay)
    }

    #[test]
    fn keeps_fault_across_relays() {
        for (failure, _) in CAUSE_CODES {
            let (end, middle) = (Fault::from(failure), Fault::at_relay(failure, "osaka"));
            let received = forward(&forward(&forward(&end, "c"), "b"), "a");
            assert_eq!(
                received.message("host:80"),
                format!("host:80: {failure}, says relay c")
            );
            let received = forward(&forward(&middle, "b"), "a");
            assert_eq!(
                received.message("host:80"),
                format!("relay osaka: {failure}, says relay b")
            );
        }
    }

    #[test]
    fn uses_error_code_when_cause_is_missing() {
        let fault = Fault::from_answer(ErrorCode::ConnectionReset, 0, None, "old");
        assert_eq!(
            fault.message("host:80"),
            "host:80: connection refused, says relay old"
        );
        let fault = Fault::from_answer(ErrorCode::MalformedMessage, 0, None, "old");
        assert_eq!(fault.message("host:80"), "relay old: protocol error");
    }

    #[test]
    fn replaces_addresses_by_configured_names() {
        let fault = forward(
            &Fault::at_relay(Failure::Refused, "192.0.2.1:5124"),
            "192.0.2.9:5124",
        );
        let fault = fault.with_names(|address| match address.to_string().as_str() {
            "192.0.2.1:5124" => Some("osaka".to_owned()),
            _ => None,
        });
        let words = "relay osaka: connection refused, says relay 192.0.2.9:5124";
        assert_eq!(fault.message("host:80"), words);
    }

    #[test]
    fn proxy_status_escapes_relay_names() {
        let fault = forward(&Fault::from(Failure::Refused), "to\"k\\yo");
        assert_eq!(
            fault.proxy_status("longhaul-1", "host:80", fault.error_type()),
            r#""to\"k\\yo"; error=connection_refused; next-hop="host:80", longhaul-1"#
        );
        let fault = Fault::at_relay(Failure::Loop, "t\u{f6}ky\u{f6}\r\n");
        assert_eq!(
            fault.proxy_status("longhaul-1", "host:80", fault.error_type()),
            r#"longhaul-1; error=proxy_loop_detected; next-hop="t?ky???""#
        );
    }

    #[test]
    fn maps_relay_failure_to_network_unreachable() {
        assert_eq!(
            Fault::from(Failure::Refused).socks5_reply(),
            Reply::ConnectionRefused
        );
        assert_eq!(
            Fault::at_relay(Failure::Refused, "x").socks5_reply(),
            Reply::NetworkUnreachable
        );
        assert_eq!(
            Fault::at_relay(Failure::Loop, "x").socks5_reply(),
            Reply::TtlExpired
        );
        assert_eq!(
            Fault::at_relay(Failure::PeerProtocol, "x").socks5_reply(),
            Reply::GeneralFailure
        );
    }
}
