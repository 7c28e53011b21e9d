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
//! What makes parallel streams unequal is the end of their slow start: who loses early, or leaves it
//! early, grows by a segment a round trip from there; 350 segments are two minutes at 350 ms. So the law
//! does two things: it ends slow start before the queue overflows, and it divides anew what windows have
//! won, where they differ. It changes the division of the sum, not the sum.
//!
//! Each look gives, for each connection i: its window wᵢ (the smaller of cwnd and the receiver's; while
//! it is being reduced, ssthresh), smoothed and least round trip τᵢ and mᵢ, what was delivered, and
//! retransmissions. The rate that a window allows on an empty path is rᵢ = wᵢ/mᵢ. Rates, not windows, are
//! levelled; where all round trips are alike that is the same. A *round* is the longest mᵢ.
//!
//! - **Ceiling**: B̂ is the greatest delivery rate of all together of the last max(10 s, 20 rounds), each
//!   measured over a quarter of a round ([`Capacity`]). In slow start segments come in bursts, which the
//!   bottleneck spaces: B̂ is what it carries long before the pipe is full, and that is known when B̂ has
//!   not grown by a tenth for a round. If then Σ rᵢ ≥ B̂(1+h) while a window still doubles, a queue stands (q ≥ max(h/2, 1 %), at least 1 ms:
//!   below), and at least a quarter of Σ rᵢ was delivered in the last round (else nothing is known yet),
//!   slow start is over: dividing begins.
//!   (Where senders are paced, B̂ grows with the windows, and the law comes too
//!   late to spare the overflow.)
//! - **Unevenness**: dividing begins too if the fastest has had 1.3 times the slowest's rate or more for
//!   two rounds, no window doubles, nothing was lost for a round, and Ĉ has not grown by a tenth for two.
//! - **Sum**: S = Σ rᵢ at the beginning. What a window falls by without an order (a loss) is taken off,
//!   and all of one that ends; a newcomer adds what it has ([`Observation::bulk`] says who counts). S
//!   grows by a segment a round for each connection, as Reno would without us. As long as one that the
//!   law has stopped in slow start has lost nothing, S is at least B̂(1+h): its slow start would have gone
//!   there.
//! - **Level**: L solves Σ min(dᵢ, L) = S, where the demand dᵢ is what the receiver's window allows, or
//!   a ninth more than rᵢ for one that has left a tenth of its cap unused for five rounds ([`level`]).
//! - **Shift**: in a round at most 0.2 S is taken from those above L, the highest first, and given to
//!   those below, to each as its share of what all lack. Nothing is given that was not seen to be free
//!   (S less windows, and less caps that are still being grown up to), nor while a loss of the last round
//!   is being answered. At most 0.1 S is taken and not yet filled up. A gift is a higher cap, up to
//!   which slow start fills. A window in slow start gets a cap at once.
//! - **End**: all caps are lifted when the fastest has had at most 1.15 times the slowest's rate for two
//!   rounds, after forty at the latest, or when fewer than two connections send in bulk. Then windows
//!   grow by themselves, and unevenness begins nothing for ten rounds; if anything was lost meanwhile,
//!   for twice as many as the last time, up to 160.
//!
//! # Caps that stay
//!
//! With [`Settings::hold`] and [`Settings::refill`] caps stay when all are even, and S goes to a target:
//!
//! - **Capacity**: Ĉ is the greatest delivery rate as above, but measured over a round. No window can make
//!   a link deliver more than it carries, so Ĉ ≤ C.
//! - **Queue**: q = Σ rᵢ(τᵢ−mᵢ) / Σ rᵢmᵢ, what stands in buffers as a share of what the wire holds.
//!   The link is *full* if q ≥ max(h/2, 1 %), that is at least 1 ms, and Ĉ has not grown by a tenth for
//!   two rounds.
//! - **Headroom**: T = Ĉ(1+h). h begins with [`Settings::headroom`]. A loss on top of a queue of q shows a
//!   buffer of about q: then h = q/2, never above the setting nor below 2 %; without losses it creeps
//!   back.
//! - **Approach**: dividing begins also when the link has been full for half a round and Σ rᵢ > T. S goes
//!   down to T by at most 10 % a round: a cut at once would add to the answers to losses that
//!   have just happened. It goes up to T and no further. With `hold` caps are lifted when all are even
//!   and no queue has stood for five rounds: windows find the link's rate by themselves again.
//! - **Doubt**: round trips can be long without a queue. So, one round in ten, T is Ĉ(1+2h), and Ĉ
//!   takes note if more comes out (not where a loss has shown a buffer too short for that). And
//!   if caps hold all windows and less than 0.97 Ĉ is delivered for four rounds, T is multiplied
//!   by what is missing, up to 2; each loss halves that again.
//! - **Refill** ([`Settings::refill`], for a link that nobody else uses): when nothing has been lost for a
//!   round, S is T at once, whatever losses have taken.
//!
//! # What it can't do
//!
//! - *Cap anybody below the equal share*: L ≥ S/n where nobody is limited by others, and a cut is never
//!   below L. Nor below [`Settings::floor_segments`].
//! - *Empty the link*: windows together have S but for the tenth that is on its way from one to another.
//!   With caps that stay, S is cut to no less than T.
//! - *Oscillate*: L depends on S alone, and S on windows only where they lose. Beginning and end are kept
//!   apart by hysteresis, and by a rest that doubles where it does harm. (A probe is one round of one
//!   headroom more, in ten.)
//! - *Take more than its own*, but for `refill`: S is what windows have won, grows as n Reno flows do, and
//!   answers each loss by what the loser's congestion control answers. Equal windows lose less
//!   at random than unequal ones of the same sum do (Σ wᵢ² is least), as n like flows would. What that
//!   means for other traffic was simulated: docs/decp.md.

mod budget;
mod capacity;
mod division;
mod law;
pub mod level;
mod look;
mod memory;
mod rest;
mod target;

pub use capacity::Capacity;
pub use division::Change;
pub use law::{Law, Settings};
pub use look::{Observation, Outlook, Phase};
