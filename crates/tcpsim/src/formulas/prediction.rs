// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long-run goodput of one connection, and the factor that limits it.

use super::{
    Control, Estimate, Formula, Path,
    control::{bbr, bic, cubic, cycle, fast, hstcp, htcp, mathis, padhye, scalable},
    formula::LOSS_MAX,
    window_limit,
};
use longhaul_units::Time;
use std::fmt;

/// Limiting factor of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitingFactor {
    /// Rate of the line. The line is full, except for what the congestion control leaves free.
    Rate,
    /// Receive window or send buffer.
    Window,
    /// TCP's own largest window, 1 GiB.
    LargestWindow,
    /// Loss, which keeps the congestion window small.
    Loss,
}

impl fmt::Display for LimitingFactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rate => "rate",
            Self::Window => "window",
            Self::LargestWindow => "TCP's largest window",
            Self::Loss => "loss",
        })
    }
}

/// Prediction for a connection in the long run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// Payload rate, bits a second.
    pub goodput_bps: f64,
    /// Mean window, packets.
    pub window_packets: f64,
    /// Limiting factor.
    pub limit: LimitingFactor,
    /// Formula that gave the prediction.
    pub formula: Formula,
    /// Reason why the path is outside the formula's range; `None` within it.
    pub outside: Option<&'static str>,
    /// Time from one loss to the full window again, on a path whose queue overflows. `None` where no queue
    /// overflows, or the control does not wait for losses.
    pub recovery: Option<Time>,
}

/// Cycle of a window that grows until the queue overflows.
pub const SAWTOOTH: Formula = Formula {
    name: "cycle over the queue",
    equation: "packets over time from the window after a loss to BDP + queue",
    source: "Appenzeller, Keslassy, McKeown, Sizing Router Buffers, SIGCOMM 2004, summed for the control's own growth",
    range: "no loss but the queue's; one flow, or flows that back off together",
};

/// Returns the packets that FAST keeps in the queue at this rate (Jin, Wei and Low: 8, 20, 200 for 10, 100,
/// 1000 Mbit/s).
#[must_use]
pub fn fast_alpha(rate_bps: f64) -> f64 {
    match rate_bps {
        rate if rate <= 10e6 => 8.0,
        rate if rate <= 100e6 => 20.0,
        _ => 200.0,
    }
}

/// Predicts the long-run goodput of `control` on `path`. `None` where no formula is known: FAST with loss.
#[must_use]
pub fn predict(control: Control, path: &Path) -> Option<Prediction> {
    let unbounded = match control {
        Control::Bbr => predict_bbr(path),
        Control::Fast => predict_fast(path)?,
        _ => predict_loss_based(control, path),
    };
    Some(bound_by_window(unbounded, path))
}

/// Applies the bounds of the receiver's window and of TCP's own largest window.
fn bound_by_window(unbounded: Prediction, path: &Path) -> Prediction {
    let largest = window_limit::LARGEST_BYTES;
    let (bytes, limit) = if path.window.get() < largest {
        (path.window.get(), LimitingFactor::Window)
    } else {
        (largest, LimitingFactor::LargestWindow)
    };
    let packets = bytes as f64 / f64::from(path.mss);
    let share = window_limit::share_with_loss(packets, path.loss);
    let goodput_bps = window_limit::goodput_bps(bytes, path.rtt_s()) * share;
    if goodput_bps >= unbounded.goodput_bps {
        return unbounded;
    }
    Prediction {
        goodput_bps,
        window_packets: packets,
        limit,
        formula: if path.loss > 0.0 {
            window_limit::WITH_LOSS
        } else {
            window_limit::FORMULA
        },
        outside: (path.loss > 0.05).then_some("beyond 5 % loss, retransmissions are lost again"),
        recovery: None,
    }
}

fn predict_bbr(path: &Path) -> Prediction {
    let queue = path.queue_packets() / path.bdp_packets();
    let share = bbr::utilisation(path.loss, path.rtt_s(), queue);
    predict_share(path, share, bbr::FORMULA)
}

fn predict_fast(path: &Path) -> Option<Prediction> {
    let alpha = fast_alpha(path.rate.bits() as f64);
    let share = fast::utilisation(alpha, 1.0, path.queue_packets(), path.loss);
    (path.loss <= 0.0).then(|| predict_share(path, share, fast::FORMULA))
}

/// Predicts a control that fills a share of the line.
fn predict_share(path: &Path, share: Estimate, formula: Formula) -> Prediction {
    let goodput_bps = path.payload_bps() * share.value;
    Prediction {
        goodput_bps,
        window_packets: goodput_bps * path.rtt_s() / path.packet_bits(),
        limit: LimitingFactor::Rate,
        formula,
        outside: share.outside,
        recovery: None,
    }
}

fn predict_loss_based(control: Control, path: &Path) -> Prediction {
    let line = predict_sawtooth(control, path);
    if path.loss <= 0.0 {
        return line;
    }
    let lossy = predict_lossy(control, path);
    if lossy.goodput_bps < line.goodput_bps {
        lossy
    } else {
        line
    }
}

fn predict_lossy(control: Control, path: &Path) -> Prediction {
    let (window, formula) = lossy_window(control, path);
    Prediction {
        goodput_bps: path.goodput_bps(window.value),
        window_packets: window.value,
        limit: LimitingFactor::Loss,
        formula,
        outside: window.outside,
        recovery: None,
    }
}

/// Returns the mean window in packets that random losses allow, with its formula.
#[must_use]
pub fn lossy_window(control: Control, path: &Path) -> (Estimate, Formula) {
    let (p, rtt_s) = (path.loss, path.rtt_s());
    match control {
        Control::Reno if p <= LOSS_MAX => {
            (mathis::window(p, mathis::Losses::Random), mathis::FORMULA)
        }
        Control::Cubic => (cubic::window(p, rtt_s), cubic::FORMULA),
        Control::Hstcp => (hstcp::window(p), hstcp::FORMULA),
        Control::Scalable => (scalable::window(p), scalable::FORMULA),
        Control::Bic => (bic::window(p, rtt_s), bic::FORMULA),
        Control::Htcp => (htcp::window(p, rtt_s), htcp::FORMULA),
        Control::Reno | Control::Bbr | Control::Fast => {
            (reno_window_with_timeouts(path), padhye::FULL)
        }
    }
}

/// Returns Reno's mean window in packets where timeouts count.
fn reno_window_with_timeouts(path: &Path) -> Estimate {
    let rtt_s = path.rtt_s();
    let connection = padhye::Connection {
        rtt_s,
        rto_s: padhye::linux_rto_s(rtt_s),
        b: 1.0,
        window: path.window_packets(),
    };
    let rate = padhye::full(path.loss, connection);
    Estimate {
        value: rate.value * rtt_s,
        ..rate
    }
}

/// Predicts repeated growth until the queue overflows.
fn predict_sawtooth(control: Control, path: &Path) -> Prediction {
    let (bdp, queue) = (path.bdp_packets(), path.queue_packets());
    let peak = (bdp + queue).max(2.0);
    let overflows = path.window_packets() > peak;
    let cycle = control
        .growth()
        .filter(|_| overflows)
        .map(|growth| cycle::cycle(growth, peak, path.rtt_s(), bdp));
    let full = path.payload_bps();
    let goodput_bps = cycle.map_or(full, |cycle| (cycle.rate() * path.packet_bits()).min(full));
    Prediction {
        goodput_bps,
        window_packets: goodput_bps * path.rtt_s() / path.packet_bits(),
        limit: LimitingFactor::Rate,
        formula: SAWTOOTH,
        outside: (bdp < 2.0).then_some("less than two packets fill the path"),
        recovery: cycle.map(|cycle| Time::from_secs_f64(cycle.seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_units::{BitRate, Bytes};

    fn path(rate: &str, rtt_ms: u64, loss: f64) -> Path {
        let rate: BitRate = rate.parse().unwrap();
        let rtt = Time::from_millis(rtt_ms);
        Path {
            rate,
            rtt,
            loss,
            mss: 1448,
            queue: longhaul_units::bdp(rate, rtt),
            window: Bytes::new(1 << 40),
        }
    }

    #[test]
    fn queue_of_one_bdp_keeps_every_control_at_the_full_rate() {
        let path = path("1gbit", 100, 0.0);
        for control in Control::ALL {
            let all = predict(control, &path).unwrap();
            let share = all.goodput_bps / path.payload_bps();
            assert!((0.96..=1.0).contains(&share), "{control}: {share}");
            assert_eq!(all.limit, LimitingFactor::Rate);
        }
    }

    #[test]
    fn smallest_of_window_loss_and_line_limits() {
        let mut long = path("10gbit", 26, 0.0);
        long.window = Bytes::new(1_400_000);
        let window = predict(Control::Cubic, &long).unwrap();
        assert_eq!(window.limit, LimitingFactor::Window);
        assert!((window.goodput_bps / 431e6 - 1.0).abs() < 0.01);
        let lossy = predict(Control::Reno, &path("10gbit", 26, 1e-4)).unwrap();
        assert_eq!(lossy.limit, LimitingFactor::Loss);
        let far = predict(Control::Bbr, &path("100gbit", 350, 0.0)).unwrap();
        assert_eq!(far.limit, LimitingFactor::LargestWindow);
    }

    #[test]
    fn goodput_never_rises_with_loss() {
        for control in Control::ALL {
            let goodput = |loss| Some(predict(control, &path("1gbit", 50, loss))?.goodput_bps);
            let all: Vec<_> = [1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
                .into_iter()
                .filter_map(goodput)
                .collect();
            assert!(
                all.windows(2).all(|two| two[0] >= two[1] * 0.999),
                "{control}: {all:?}"
            );
        }
    }

    #[test]
    fn fast_has_no_formula_for_loss() {
        assert!(predict(Control::Fast, &path("1gbit", 50, 1e-5)).is_none());
        assert!(predict(Control::Fast, &path("1gbit", 50, 0.0)).is_some());
    }
}
