// SPDX-License-Identifier: MIT OR Apache-2.0
//! An attempt to reach a destination over one upstream leg: its states, and what follows its failure. No I/O.
//!
//! | state | event | next state | if the client has sent nothing yet |
//! |---|---|---|---|
//! | `Sent` | the answer is awaited | `Awaiting` | |
//! | `Awaiting` | accepted | `Reached` | |
//! | `Awaiting`, pooled leg | closed without an answer | `Stale` | over a new leg |
//! | `Awaiting`, new leg | closed without an answer | `PeerInDoubt` | over another chain, if the peer is down |
//! | `Awaiting` | no valid answer | `PeerInDoubt` | the same |
//! | `Awaiting` | a later relay is unreachable | `HopDown` | over another chain |
//! | `Awaiting` | refused | `Refused` | never |
//!
//! A direct leg begins as `Reached`. All other events leave the state as it is. A request is repeated only if no byte of
//! the client was sent: otherwise the destination might get it twice.

/// State of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The request was sent to a peer, and nothing was read.
    Sent { was_pooled: bool },
    /// The peer's answer is being read.
    Awaiting { was_pooled: bool },
    /// The destination is at the other end, or the peer has reached it.
    Reached,
    /// A pooled leg had ended before it took the request.
    Stale,
    /// The peer gave no valid answer. A check tells whether it is down.
    PeerInDoubt,
    /// A relay behind the peer is down.
    HopDown,
    /// The peer refused the request.
    Refused,
}

/// Event of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    AnswerAwaited,
    Accepted,
    /// The leg ended before any byte of the answer.
    Closed,
    /// The answer was malformed, late, or says that the peer did not understand the request.
    NoValidAnswer,
    /// The peer says that a relay behind it is unreachable.
    HopUnreachable,
    Refused,
}

/// How a failed request may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repetition {
    Never,
    /// Over a new leg to the same peer.
    OverNewLeg,
    /// Over another chain.
    OverAnotherChain,
    /// Over another chain, if a check finds the peer down.
    IfPeerIsDown,
}

impl Attempt {
    pub(crate) fn after(self, event: Event) -> Self {
        match (self, event) {
            (Self::Sent { was_pooled }, Event::AnswerAwaited) => Self::Awaiting { was_pooled },
            (Self::Awaiting { was_pooled: true }, Event::Closed) => Self::Stale,
            (Self::Awaiting { .. }, Event::Closed | Event::NoValidAnswer) => Self::PeerInDoubt,
            (Self::Awaiting { .. }, Event::Accepted) => Self::Reached,
            (Self::Awaiting { .. }, Event::HopUnreachable) => Self::HopDown,
            (Self::Awaiting { .. }, Event::Refused) => Self::Refused,
            (state, _) => state,
        }
    }

    /// Returns how the request may be repeated. `client_bytes_sent` says whether a byte of the client was sent.
    pub(crate) fn repetition(self, client_bytes_sent: bool) -> Repetition {
        match self {
            _ if client_bytes_sent => Repetition::Never,
            Self::Stale => Repetition::OverNewLeg,
            Self::HopDown => Repetition::OverAnotherChain,
            Self::PeerInDoubt => Repetition::IfPeerIsDown,
            Self::Sent { .. } | Self::Awaiting { .. } | Self::Reached | Self::Refused => {
                Repetition::Never
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLED: Attempt = Attempt::Awaiting { was_pooled: true };
    const NEW: Attempt = Attempt::Awaiting { was_pooled: false };
    const STATES: [Attempt; 9] = [
        Attempt::Sent { was_pooled: false },
        Attempt::Sent { was_pooled: true },
        NEW,
        POOLED,
        Attempt::Reached,
        Attempt::Stale,
        Attempt::PeerInDoubt,
        Attempt::HopDown,
        Attempt::Refused,
    ];
    const EVENTS: [Event; 6] = [
        Event::AnswerAwaited,
        Event::Accepted,
        Event::Closed,
        Event::NoValidAnswer,
        Event::HopUnreachable,
        Event::Refused,
    ];

    /// All transitions that change the state.
    const TRANSITIONS: [(Attempt, Event, Attempt); 12] = [
        (STATES[0], Event::AnswerAwaited, NEW),
        (STATES[1], Event::AnswerAwaited, POOLED),
        (NEW, Event::Accepted, Attempt::Reached),
        (POOLED, Event::Accepted, Attempt::Reached),
        (NEW, Event::Closed, Attempt::PeerInDoubt),
        (POOLED, Event::Closed, Attempt::Stale),
        (NEW, Event::NoValidAnswer, Attempt::PeerInDoubt),
        (POOLED, Event::NoValidAnswer, Attempt::PeerInDoubt),
        (NEW, Event::HopUnreachable, Attempt::HopDown),
        (POOLED, Event::HopUnreachable, Attempt::HopDown),
        (NEW, Event::Refused, Attempt::Refused),
        (POOLED, Event::Refused, Attempt::Refused),
    ];

    #[test]
    fn walks_all_transitions() {
        for state in STATES {
            for event in EVENTS {
                let listed = TRANSITIONS.iter().find(|t| (t.0, t.1) == (state, event));
                let expected = listed.map_or(state, |t| t.2);
                assert_eq!(state.after(event), expected, "{state:?} {event:?}");
            }
        }
    }

    #[test]
    fn repeats_a_failed_request_unless_client_bytes_were_sent() {
        for state in STATES {
            let expected = match state {
                Attempt::Stale => Repetition::OverNewLeg,
                Attempt::HopDown => Repetition::OverAnotherChain,
                Attempt::PeerInDoubt => Repetition::IfPeerIsDown,
                _ => Repetition::Never,
            };
            assert_eq!(state.repetition(false), expected, "{state:?}");
            assert_eq!(state.repetition(true), Repetition::Never, "{state:?}");
        }
    }
}
