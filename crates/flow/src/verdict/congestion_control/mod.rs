// SPDX-License-Identifier: MIT OR Apache-2.0
//! Name of a sender's congestion control, by the curve of its window.
//!
//! A control that answers losses has a law: which part of the window remains after a loss, and how the window grows until
//! the next one. The curve (`window_curve.rs`) is compared with the law of each control (`laws.rs`), computed from the
//! flow's own ACKs (`fit.rs`). The law with the least distance names the control, if the distance is small. CAAI (Yang et
//! al., "TCP congestion avoidance algorithm identification", IEEE/ACM Trans. Netw. 22(4), 2014) uses the same two traits,
//! but makes the losses itself.
//!
//! BBR has another trait: its rate follows a cycle of eight round trips (`probe_cycle.rs`). Nebby (Mishra et al., SIGCOMM
//! 2024) and Gordon (Mishra et al., SIGMETRICS 2019) use it, too. BBR also ignores losses for longer than any other
//! control, and its window falls to four segments for 0.2 s every ten seconds.
//!
//! - **Reno comes first.** HighSpeed TCP is Reno up to 118 segments, Scalable TCP grows as Reno up to 100, and H-TCP is
//!   Reno for a second after a loss. Such a window is called Reno, with the others that explain it as well
//!   ([`CongestionControl::also`]).
//! - **A small difference** does not name a rare control where a common one is near enough. H-TCP chooses the part that
//!   it keeps, so it would explain much.
//! - **The first loss** ends a slow start. Its repair may take several losses, each of which reduces the window. So the
//!   first reduction, and that after a long repair, say little.
//! - **Growth before losses** tells CUBIC, which leaves slow start without a loss (HyStart), and then grows by a twentieth
//!   of the ACKed data at least.
//! - **Bins longer than a round trip**, in captures of hours, hide the cycle of BBR first, and then short epochs.

mod description;
mod fit;
mod laws;
mod probe_cycle;
mod window_curve;

use crate::record::{
    CaptureLocation, CongestionControl, ControlName, ControlUnknown, Data, Direction, Limit,
};
use crate::time_series::{change_points::median, rtt_windows::RttWindows};
use fit::{Fit, GROWTH_ROUNDS_MIN};
use probe_cycle::ProbeCycle;
use window_curve::{Epoch, WindowCurve};

/// Least number of round trips.
const ROUNDS_MIN: usize = 20;
/// Controls with a law; the first two are in general use, the others are rare.
const LAWS: [ControlName; 6] = [
    ControlName::Reno,
    ControlName::Cubic,
    ControlName::Bic,
    ControlName::Scalable,
    ControlName::Htcp,
    ControlName::Hstcp,
];
const COMMON: usize = 2;
/// Cost by which a rare control must be nearer than a common one that is near enough: in all, and for each sample.
const RARE_MARGIN: (f64, f64) = (7.0, 0.5);
/// Mean cost up to which a common control is near enough.
const COMMON_COST_MAX: f64 = 1.5;
/// Most mean cost of the named control, with few samples and with more.
const FEW_SAMPLES: u32 = 3;
const COST_MAX: (f64, f64) = (1.0, 2.5);
/// Most mean cost of growth alone, and how much farther the other common control must be.
const GROWTH_COST_MAX: f64 = 0.5;
const GROWTH_MARGIN: f64 = 1.3;
/// Part of the reductions that a control must explain.
const EXPLAINED_MIN: f64 = 2.0 / 3.0;
/// Cost up to which other controls explain a window as well: in all, and for each sample.
const ALSO_MARGIN: (f64, f64) = (2.0, 0.3);
/// Strength of a cycle that no law outweighs, and of one that tells BBR where no law fits.
const STRENGTHS: (f64, f64) = (0.3, 0.13);
/// Least number of round trips that ignore losses, and their least part.
const IGNORING_MIN: usize = 20;
const IGNORING_PART: f64 = 0.2;
/// Share of spurious retransmissions from which on they were no losses.
const SPURIOUS_SHARE: f64 = 0.33;
/// Share of time above which the application or the receive window governed.
const GOVERNED_MAX: f64 = 0.5;

/// Returns the control of a direction that each limit limited for a share of the time; `None` where no limit is known, and
/// for fewer than 20 round trips. `shows_sender` tells whether timestamps show what the sender knew.
pub(super) fn name(
    direction: &Direction,
    handshake_ns: Option<u64>,
    shares: &[(Limit, f64)],
    shows_sender: bool,
) -> Option<CongestionControl> {
    if shares.is_empty() {
        return None;
    }
    let rtt_windows = RttWindows::of(&direction.time_series, handshake_ns)?;
    let location = direction.tap_position.location;
    let by_echoes = matches!(
        location,
        CaptureLocation::Middle | CaptureLocation::NearReceiver
    );
    if by_echoes && !shows_sender {
        return Some(unknown(ControlUnknown::WindowNotSeen));
    }
    let curve = WindowCurve::of(&rtt_windows, direction.data.segment_max_bytes, by_echoes);
    if curve.rounds.len() < ROUNDS_MIN {
        return None;
    }
    let epochs = curve.epochs();
    let cycle = probe_cycle::find(&rtt_windows);
    let assessment = Assessment::of(&direction.data, shares, &curve, &epochs, cycle);
    Some(assessment.conclude(&epochs))
}

fn unknown(reason: ControlUnknown) -> CongestionControl {
    CongestionControl {
        unknown_because: Some(reason),
        ..CongestionControl::default()
    }
}

/// Evidence on the control of one direction.
struct Assessment {
    fits: Vec<Fit>,
    cycle: Option<ProbeCycle>,
    rounds_ignoring_losses: usize,
    /// Whether those are many, and were losses.
    ignores_losses: bool,
    /// Times at which BBR probed for the least round trip.
    rtt_probes: u32,
    /// Share of time of the application and the receive window.
    not_governed: f64,
}

impl Assessment {
    fn of(
        data: &Data,
        shares: &[(Limit, f64)],
        curve: &WindowCurve,
        epochs: &[Epoch<'_>],
        cycle: Option<ProbeCycle>,
    ) -> Self {
        let first = curve.growth_before_losses();
        let fit = |name: &ControlName| Fit::of(*name, first, epochs, curve.rtt_min_s);
        let share = |of: Limit| {
            shares
                .iter()
                .find(|(limit, _)| *limit == of)
                .map_or(0.0, |(_, share)| *share)
        };
        let ignoring = curve.rounds_ignoring_losses();
        let spurious = data.spurious_retransmissions as f64;
        let are_losses = spurious < SPURIOUS_SHARE * data.retransmissions as f64;
        Self {
            fits: LAWS.iter().map(fit).collect(),
            cycle: cycle.filter(ProbeCycle::has_usual_spread),
            rounds_ignoring_losses: ignoring,
            rtt_probes: curve.rtt_probes(),
            ignores_losses: are_losses && ignores_losses(curve, ignoring),
            not_governed: share(Limit::Application) + share(Limit::ReceiveWindow),
        }
    }

    fn conclude(&self, epochs: &[Epoch<'_>]) -> CongestionControl {
        let law = self.nearest_law();
        let found = match () {
            () if self.is_law(law) => self.named(law),
            () if self.is_bbr() => self.bbr(),
            () => unknown(self.reason(law)),
        };
        let ratio = |epoch: &Epoch<'_>| epoch.start() / epoch.reduction.before;
        let certain = epochs
            .iter()
            .filter(|epoch| epoch.is_certain && epoch.is_governed());
        CongestionControl {
            reductions: law.reductions,
            backoff: median_of(certain.map(ratio)),
            growth_segments: median_of(epochs.iter().filter_map(growth_a_round_trip)),
            round_trips_ignoring_losses: u32::try_from(self.rounds_ignoring_losses)
                .unwrap_or(u32::MAX),
            ..found
        }
    }

    /// Returns the nearest law, or a common one that is hardly farther.
    fn nearest_law(&self) -> &Fit {
        let (nearest, common) = (least(&self.fits), least(&self.fits[..COMMON]));
        let margin = RARE_MARGIN
            .0
            .max(RARE_MARGIN.1 * f64::from(nearest.samples()));
        let is_near = common.mean_cost() < COMMON_COST_MAX && common.cost <= nearest.cost + margin;
        if is_near { common } else { nearest }
    }

    fn is_law(&self, law: &Fit) -> bool {
        let is_near = match law.samples() {
            0 => false,
            _ if law.reductions == 0 => self.is_law_by_growth(law),
            1 => false,
            2..=FEW_SAMPLES => law.mean_cost() < COST_MAX.0,
            _ => law.mean_cost() < COST_MAX.1,
        };
        let is_explained = f64::from(law.explained) >= EXPLAINED_MIN * f64::from(law.reductions);
        is_near && is_explained && self.strength() < STRENGTHS.0 && !self.ignores_losses
    }

    /// Returns whether growth alone tells one of the common controls.
    fn is_law_by_growth(&self, law: &Fit) -> bool {
        let common = &self.fits[..COMMON];
        let is_common = common.iter().any(|fit| fit.name == law.name);
        let mut others = common.iter().filter(|fit| fit.name != law.name);
        let is_far = others.all(|fit| fit.growth_cost > law.growth_cost + GROWTH_MARGIN);
        is_common && is_far && law.growth_cost < GROWTH_COST_MAX * f64::from(law.samples())
    }

    fn strength(&self) -> f64 {
        self.cycle.map_or(0.0, |cycle| cycle.strength)
    }

    fn is_bbr(&self) -> bool {
        let has_traits = self.strength() > STRENGTHS.1 || self.rtt_probes > 0;
        self.ignores_losses || has_traits && self.not_governed < GOVERNED_MAX
    }

    fn named(&self, law: &Fit) -> CongestionControl {
        let others = self.fits.iter().filter(|fit| fit.name != law.name);
        let margin = ALSO_MARGIN.0.max(ALSO_MARGIN.1 * f64::from(law.samples()));
        let near = others.filter(|fit| fit.cost < law.cost + margin);
        CongestionControl {
            name: law.name,
            also: near.map(|fit| fit.name).collect(),
            explained_reductions: law.explained,
            deviation: Some(law.mean_cost().sqrt()),
            ..CongestionControl::default()
        }
    }

    fn bbr(&self) -> CongestionControl {
        let cycle = self.cycle.filter(|cycle| cycle.strength > STRENGTHS.1);
        CongestionControl {
            name: ControlName::Bbr,
            rtt_probes: self.rtt_probes,
            probe_period_rtts: cycle.map(|cycle| cycle.period_rtts),
            ..CongestionControl::default()
        }
    }

    fn reason(&self, law: &Fit) -> ControlUnknown {
        match law.samples() {
            _ if self.not_governed > GOVERNED_MAX => ControlUnknown::NotGoverned,
            0 | 1 => ControlUnknown::FewReductions,
            _ => ControlUnknown::NoMatch,
        }
    }
}

/// Returns whether many rounds ignore losses.
fn ignores_losses(curve: &WindowCurve, rounds: usize) -> bool {
    rounds >= IGNORING_MIN && rounds as f64 >= IGNORING_PART * curve.rounds.len() as f64
}

fn least(fits: &[Fit]) -> &Fit {
    let nearest = fits
        .iter()
        .min_by(|one, other| one.cost.total_cmp(&other.cost));
    nearest.unwrap_or(&fits[0])
}

fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| median(values))
}

/// Returns the growth of the window in an epoch, segments a round trip: as many ACKed segments as the window has.
fn growth_a_round_trip(epoch: &Epoch<'_>) -> Option<f64> {
    let rounds = epoch.growth();
    let last = rounds.iter().rev().find(|round| round.window > 0.0)?;
    let later = rounds[1..].iter().filter(|round| round.window > 0.0);
    let rtts: f64 = later.map(|round| round.acked / round.window).sum();
    let is_long = rounds.len() >= GROWTH_ROUNDS_MIN && rtts >= 1.0;
    is_long.then(|| (last.window - epoch.start()) / rtts)
}
