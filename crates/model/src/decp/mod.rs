// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP, *Dulling Edge of Cooperative Parallel Streams*: hold the fast ones of parallel connections
//! back, so that the slow ones find room.
//!
//! The paper (Hiraki and Inaba, 科学技術研究向け超高速大域ネットワーク基盤, §3) says what is done: the
//! windows of all connections are collected, a program outside sets an upper limit to each, "holding
//! fast streams back lessens the load that they put on the network, which makes it easier for the
//! slow ones to gain bandwidth". It does not say how the limits are chosen. This is our rule.
//!
//! # The law
//!
//! Each look gives, for each connection i: its window wᵢ (the smaller of cwnd and the receiver's),
//! smoothed and least round trip τᵢ and mᵢ, what was delivered, and retransmissions. The rate that a
//! window allows on an empty path is rᵢ = wᵢ/mᵢ. Rates, not windows, are levelled; where all
//! round trips are alike that is the same.
//!
//! - **Capacity**: Ĉ is the greatest delivery rate of all connections together, each measured over at
//!   least a round trip, of the last max(10 s, 20 round trips) ([`Capacity`]). No window can make
//!   a link deliver more than it carries, so Ĉ ≤ C.
//! - **Queue**: q = Σ rᵢ(τᵢ−mᵢ) / Σ rᵢmᵢ, what stands in buffers as a share of what the wire holds.
//!   The link is *full* if q ≥ max(h/2, 1 %), that is at least 1 ms, and Ĉ has not grown by a tenth for
//!   two round trips: then Ĉ = C. Without the latter, the delays of a busy host would end slow start.
//! - **Headroom**: T = Ĉ(1+h) is what windows may ask for together. h begins with
//!   [`Settings::headroom`]. A loss on top of a queue of q shows a buffer of about q: then
//!   h = q/2, never above the setting nor below 2 %; without losses it creeps back.
//! - **Level**: L solves Σ min(dᵢ, L) = T, where the demand dᵢ is rᵢ, or infinite for a connection that
//!   its cap holds ([`level`]). Connections with rᵢ > L get the cap L·mᵢ.
//! - **When**: caps begin when the link has been full for half a round trip, Σ rᵢ > T and the fastest
//!   has at least 1.3 times the slowest's rate (or any, with [`Settings::hold`]). The sum goes down from
//!   what it is to T by at most 10 % a round trip: a cut at once would add to the answers to losses that
//!   have just happened. All caps are lifted when the link is full and the fastest has had at
//!   most 1.15 times the slowest's rate for three round trips (never with `hold`), when nobody has been
//!   above L for five, or when fewer than two connections send in bulk. A single cap is lifted when its
//!   connection has stayed a tenth below it for five round trips, because it lost or has nothing
//!   to send. A cap in force moves only by more than 2 % and by at least a segment, and never up to more
//!   than 1.3 T/n: one that is there already is lifted instead, so that nobody gets by slow start what
//!   makes it uneven.
//! - **Doubt**: round trips can be long without a queue. So, one round trip in ten, T is Ĉ(1+2h), and Ĉ
//!   takes note if more comes out (not where a loss has shown a buffer too short for that). And
//!   if caps hold all windows and less than 0.97 Ĉ is delivered for four round trips, T is multiplied
//!   by what is missing, up to 2; each loss halves that again.
//! - **Refill** ([`Settings::refill`], for a link that nobody else uses): when losses have made
//!   Σ rᵢ < Ĉ and nothing has been lost for two round trips, all get the cap L = T/n and grow up to it
//!   by slow start.
//!
//! # What it can't do
//!
//! - *Cap anybody below the equal share*: n connections with Σ min(dᵢ, L) = T have L ≥ T/n.
//!   Nor below [`Settings::floor_segments`].
//! - *Empty the link*: windows are cut only where their sum exceeds T, and to T: at least 1+h times
//!   what the link was seen to carry. Where Ĉ is too low because the link has got faster, Σ min(dᵢ, L) = T
//!   delivers (1+h)Ĉ, which is the next Ĉ: caps double every ln 2/ln(1+h) round trips (7 with
//!   10 %) until the link is full.
//! - *Oscillate*: L depends on the windows of those it does not cap, which grow by their own
//!   congestion control, and on Ĉ, a maximum. q enters the beginning and the end alone, which
//!   hysteresis keeps apart. (A probe is one round trip of one headroom more, in ten.)
//! - *Take more than its own*: connections together have no more window than they won themselves,
//!   beyond what the link has just carried times 1+h. When one of them loses, others that are capped take
//!   its room until it has grown again: a cap that is raised is filled by slow start. What that
//!   means for other traffic is in docs/decp.md.

mod budget;
mod capacity;
mod division;
mod law;
pub mod level;
mod memory;
mod observation;
mod outlook;
mod rest;
mod settings;
mod target;

pub use capacity::Capacity;
pub use division::Change;
pub use law::Law;
pub use observation::Observation;
pub use outlook::{Outlook, Phase};
pub use settings::Settings;
