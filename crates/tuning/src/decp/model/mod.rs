// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP, *Dulling Edge of Cooperative Parallel Streams*: caps the fast ones of parallel connections, so
//! that the slow ones gain bandwidth.
//!
//! The paper (Hiraki and Inaba, 科学技術研究向け超高速大域ネットワーク基盤, §3) describes the mechanism. The
//! windows of all connections are collected, and a program outside sets an upper limit to each. It
//! explains: "holding fast streams back lessens the load that they put on the network, which makes it easier
//! for the slow ones to gain bandwidth". It does not say how the limits are chosen. The rule here is our own.
//!
//! # Controller
//!
//! Parallel streams become unequal at the end of slow start. A stream that loses a segment early, or leaves
//! slow start early, grows by a segment a round trip from there: 350 segments take two minutes at 350 ms. So
//! the controller does two things. It ends slow start before the queue overflows, and it divides the windows'
//! sum anew where windows differ. It changes the division of the sum, not the sum.
//!
//! A sample has, for each connection i, its window wᵢ, its smoothed and least round trip τᵢ and mᵢ, the
//! segments delivered, and retransmissions. The window is the smaller of cwnd and the receiver's; while
//! it is being reduced, ssthresh. The rate that a window allows on an empty path is rᵢ = wᵢ/mᵢ. The
//! controller levels rates, not windows; with equal round trips that is the same. A *round* is the longest mᵢ.
//!
//! - **Ceiling**: B̂ is the greatest delivery rate of all connections together in the last max(10 s, 20 rounds),
//!   each measured over a quarter of a round ([`Capacity`]). In slow start segments come in bursts, which the
//!   bottleneck spaces. So B̂ reaches the link's rate long before the pipe is full; that is assumed when B̂ has
//!   not grown by a tenth for a round. Slow start then ends and dividing begins, if a window still doubles and
//!   three conditions hold. Σ rᵢ ≥ B̂(1+h). A queue stands (q ≥ max(h/2, 1 %), at least 1 ms: below). At least
//!   a quarter of Σ rᵢ was delivered in the last round (else nothing is known yet).
//!   With paced senders B̂ grows with the windows, and the controller acts too late to prevent the overflow.
//! - **Unevenness**: dividing begins too if the fastest has had 1.3 times the slowest's rate or more for
//!   two rounds. No window may double, nothing be lost for a round, and Ĉ not grow by a tenth for two.
//! - **Sum**: S = Σ rᵢ at the beginning. A reduction of a window without a change of its cap (a loss) is
//!   subtracted. So is the whole rate of a connection that ends. A new one adds its rate.
//!   [`Observation::bulk`] defines which connections count. S grows by a segment a round for each
//!   connection, as Reno would without caps. If the controller has ended a connection's slow start and the
//!   connection has lost nothing since, S is at least B̂(1+h): slow start would have reached that.
//! - **Level**: L solves Σ min(dᵢ, L) = S. The demand dᵢ is what the receiver's window allows. For a connection
//!   that has left a tenth of its cap unused for five rounds, it is a ninth more than rᵢ ([`level`]).
//! - **Shift**: in a round at most 0.2 S is taken from those above L, the highest first, and given to
//!   those below, to each in proportion to its deficit. Only rate that is known to be free is given
//!   (S less windows, and less caps that are still being grown up to), and none while a loss of the last round
//!   is being recovered. At most 0.1 S is taken and not yet filled up. A grant is a higher cap, up to
//!   which slow start raises the window. A window in slow start gets a cap at once.
//! - **End**: all caps are lifted when the fastest has had at most 1.15 times the slowest's rate for two
//!   rounds, after forty at the latest, or when fewer than two connections send in bulk. Then windows
//!   grow by themselves, and unevenness starts no division for ten rounds. If anything was lost meanwhile,
//!   that cooldown is twice as long as the last one, up to 160.
//!
//! # Caps that stay
//!
//! With [`Settings::keep_caps`] and [`Settings::slow_start`] caps stay when all rates are equal, and S goes to a target:
//!
//! - **Capacity**: Ĉ is the greatest delivery rate as above, but measured over a round. No window can make
//!   a link deliver more than its capacity, so Ĉ ≤ C.
//! - **Queue**: q = Σ rᵢ(τᵢ−mᵢ) / Σ rᵢmᵢ, the data queued in buffers as a share of the BDP.
//!   The link is *full* if q ≥ max(h/2, 1 %), that is at least 1 ms, and Ĉ has not grown by a tenth for
//!   two rounds.
//! - **Headroom**: T = Ĉ(1+h). h begins with [`Settings::headroom`]. A loss on top of a queue of q shows a
//!   buffer of about q: then h = q/2, never above the setting nor below 2 %. Without losses it recovers
//!   slowly.
//! - **Approach**: dividing begins also when the link has been full for half a round and Σ rᵢ > T. S goes
//!   down to T by at most 10 % a round: a larger step would add to the reductions by losses that
//!   have just happened. It goes up to T and no further. With `keep_caps` caps are lifted when all rates are equal
//!   and there was no queue for five rounds: windows probe for the link's rate by themselves again.
//! - **Probing**: round trips can be long without a queue. So, one round in ten, T is Ĉ(1+2h), and Ĉ
//!   rises if more is delivered (not where a loss has shown a buffer too short for that). If
//!   caps limit all windows and less than 0.97 Ĉ is delivered for four rounds, T is multiplied
//!   by the missing factor, up to 2; each loss halves that again.
//! - **Slow start** ([`Settings::slow_start`], for a link without other traffic): when nothing has been lost for a
//!   round, S is T at once, whatever losses have taken.
//!
//! # Limits of the controller
//!
//! The controller never does the following:
//!
//! - *Cap a connection below the equal share*: L ≥ S/n where no connection is limited by others, and a cap is
//!   never below L. Nor is it below [`Settings::cap_min_segments`].
//! - *Empty the link*: windows together have S but for the tenth that moves from one to another.
//!   With caps that stay, S is reduced to no less than T.
//! - *Oscillate*: L depends on S alone, and S on windows only where they lose. Beginning and end are kept
//!   apart by hysteresis, and by a cooldown that doubles where dividing costs losses. A probe adds one headroom
//!   for one round in ten.
//! - *Take more than its own share*, but for `slow_start`. S is the rate that windows have won. It grows as n Reno
//!   flows do. For each loss it falls as far as the connection's congestion control reduces its window. Equal
//!   windows lose less at random than unequal ones of the same sum do (Σ wᵢ² is least), as n equal flows
//!   would. The effect on other traffic was simulated: docs/decp.md.

mod budget;
mod capacity;
mod controller;
mod cooldown;
mod division;
mod history;
pub mod level;
mod sample;
mod target;

pub use capacity::Capacity;
pub use controller::{Controller, Settings};
pub use division::Change;
pub use sample::{Estimate, Observation, Phase};
