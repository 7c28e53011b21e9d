// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP's controller over fluid flows for long times, and its bounds at each sample. Its effect on simulated
//! TCP: `decp_streams.rs`.

use crate::aimd::{FluidModel, Path};
use longhaul_tuning::decp::model::{Change, Controller, Observation, Phase, Settings};
use longhaul_units::Time;
use proptest::prelude::*;

fn path(flows: usize, buffer_bdp: f64) -> Path {
    Path {
        rate_bps: 1e9,
        rtt_s: 0.35,
        buffer_bdp,
        flows,
        loss: 0.0,
        noise: 0.0,
    }
}

fn keep_caps() -> Settings {
    Settings {
        keep_caps: true,
        ..Settings::default()
    }
}

fn slow_start() -> Settings {
    Settings {
        slow_start: true,
        ..Settings::default()
    }
}

/// Result of a run.
#[derive(Debug)]
struct Outcome {
    utilisation: f64,
    jain: f64,
}

fn run(path: Path, settings: Option<Settings>, seconds: f64) -> Outcome {
    let mut fluid = FluidModel::new(path, 7);
    let mut controller = settings.map(Controller::new);
    fluid.run(seconds, controller.as_mut(), |_| ());
    let delivered = fluid.delivered();
    let sum: f64 = delivered.iter().sum();
    let squares: f64 = delivered.iter().map(|x| x * x).sum();
    Outcome {
        utilisation: sum * crate::aimd::MSS * 8.0 / path.rate_bps / seconds,
        jain: sum * sum / squares / delivered.len() as f64,
    }
}

/// Round trips that exceed the least one are taken for a queue; that must not cost much throughput.
#[test]
fn host_delay_does_not_reduce_utilisation() {
    for noise in [0.1, 0.3] {
        let path = Path {
            noise,
            ..path(16, 1.0)
        };
        let without = run(path, None, 200.0);
        for settings in [Settings::default(), keep_caps(), slow_start()] {
            let with = run(path, Some(settings), 200.0);
            let what = format!("{noise} {settings:?}: {with:?} {without:?}");
            assert!(with.utilisation >= without.utilisation - 0.05, "{what}");
        }
    }
}

#[test]
fn removes_caps_when_rates_are_equal_unless_keep_caps_is_set() {
    let capped = |settings| {
        let mut fluid = FluidModel::new(path(16, 1.0), 3);
        let mut controller = Controller::new(settings);
        let mut most = 0;
        let count = |fluid: &FluidModel| fluid.caps().iter().flatten().count();
        fluid.run(400.0, Some(&mut controller), |fluid| {
            most = most.max(count(fluid));
        });
        (most, count(&fluid), controller.estimate())
    };
    let (most, last, estimate) = capped(Settings::default());
    assert!(most >= 2 && last == 0, "{most} {last}");
    assert_eq!(estimate.phase, Phase::Open);
    assert!(estimate.spread < 1.3, "{}", estimate.spread);
    let (_, last, estimate) = capped(keep_caps());
    assert_eq!((last, estimate.phase), (16, Phase::Level));
    // Nothing is lost any more, and the queue is as long as the headroom.
    assert!((estimate.queue - 0.1).abs() < 0.03, "{estimate:?}");
}

#[test]
fn held_caps_rarely_move() {
    let mut fluid = FluidModel::new(path(32, 1.0), 5);
    let mut controller = Controller::new(keep_caps());
    fluid.run(600.0, Some(&mut controller), |_| ());
    let (before, lost) = (fluid.caps(), fluid.losses);
    let mut seen = Vec::new();
    fluid.run(60.0, Some(&mut controller), |fluid| seen.push(fluid.caps()));
    let moves = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
    // Up and down again once in ten round trips: 171 in a minute.
    assert!(moves <= 70, "{moves} moves in a minute");
    assert!(before.iter().all(Option::is_some));
    assert_eq!(fluid.losses, lost);
}

#[test]
fn held_connections_fill_a_faster_link_as_fast_as_uncapped_ones() {
    let carried = |settings: Option<Settings>| {
        let mut fluid = FluidModel::new(path(16, 1.0), 3);
        let mut controller = settings.map(Controller::new);
        fluid.run(400.0, controller.as_mut(), |_| ());
        fluid.path.rate_bps *= 1.25;
        let before: f64 = fluid.delivered().iter().sum();
        fluid.run(300.0, controller.as_mut(), |_| ());
        fluid.delivered().iter().sum::<f64>() - before
    };
    let (with, without) = (carried(Some(keep_caps())), carried(None));
    assert!(with >= 0.98 * without, "{with} {without}");
}

#[test]
fn random_losses_do_not_reduce_utilisation() {
    let path = Path {
        loss: 1e-4,
        ..path(8, 1.0)
    };
    let (without, with) = (
        run(path, None, 300.0),
        run(path, Some(Settings::default()), 300.0),
    );
    assert!(
        with.utilisation >= without.utilisation - 0.02,
        "{with:?} {without:?}"
    );
    assert!(with.jain >= without.jain, "{with:?} {without:?}");
}

/// Model of a socket. A cap takes effect within one sample. In slow start the window grows by a fifth a sample.
#[derive(Debug, Clone, Copy)]
struct Socket {
    window: u32,
    cap: Option<u32>,
    slow_start_to_cap: bool,
}

impl Socket {
    fn apply(&mut self, change: Change) {
        self.cap = change.cap;
        self.slow_start_to_cap = change.slow_start_to_cap;
    }

    fn step(&mut self) {
        let cap = self.cap.unwrap_or(u32::MAX);
        let grown = self.window + self.window / 5 + 1;
        self.window = if self.slow_start_to_cap {
            grown.min(cap)
        } else {
            self.window.min(cap)
        };
    }
}

const RTT: Time = Time::from_millis(100);
/// Samples in a round trip.
const SAMPLES: u32 = 4;

/// Takes one sample of a full link of 1000 segments a round trip.
fn sample(controller: &mut Controller, number: u32, sockets: &mut [Socket]) -> Vec<Change> {
    let share = number * 1000 / SAMPLES / sockets.len() as u32;
    let all: Vec<_> = (0..)
        .zip(sockets.iter())
        .map(|(id, socket)| Observation {
            slow_start: socket.slow_start_to_cap && socket.window < socket.cap.unwrap_or(0),
            ..observation(id, socket.window, share, socket.cap)
        })
        .collect();
    let now = Time::from_nanos(RTT.as_nanos() / u64::from(SAMPLES) * u64::from(number));
    let changes = controller.on_sample(now, &all);
    for change in &changes {
        sockets[change.id as usize].apply(*change);
    }
    sockets.iter_mut().for_each(Socket::step);
    changes
}

fn observation(id: u64, window: u32, delivered: u32, cap: Option<u32>) -> Observation {
    Observation {
        id,
        window_segments: window,
        window_max_segments: u32::MAX,
        slow_start: false,
        mss_bytes: 1000,
        delivered_segments: delivered,
        retransmits: 0,
        rtt: Time::from_millis(150),
        rtt_min: RTT,
        cap,
        bulk: true,
    }
}

#[test]
fn ignores_idle_connections_and_drops_closed_ones() {
    let mut controller = Controller::new(Settings::default());
    let mut idle = observation(9, 10, 0, None);
    idle.bulk = false;
    let even = |sample: u32| {
        [
            observation(1, 750, sample * 500, None),
            observation(2, 750, sample * 500, None),
            idle,
        ]
    };
    for sample in 0..100 {
        assert_eq!(
            controller.on_sample(Time::from_millis(100 * u64::from(sample)), &even(sample)),
            []
        );
    }
    assert_eq!(
        (controller.estimate().bulk, controller.estimate().spread),
        (2, 1.0)
    );
    // Only one remains: there is nothing to balance.
    let alone = [observation(1, 750, 60_000, Some(300))];
    let lifted = controller.on_sample(Time::from_secs(20), &alone);
    assert_eq!(
        lifted,
        [Change {
            id: 1,
            cap: None,
            slow_start_to_cap: false
        }]
    );
}

proptest! {
    /// Bounds that the module's documentation states, for any windows on a full link.
    #[test]
    fn changes_division_of_the_sum_but_not_the_sum(
        windows in prop::collection::vec(20u32..2000, 2..24),
    ) {
        let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
        prop_assume!(*most > least * 2);
        let total: u32 = windows.iter().sum();
        let count = windows.len() as u32;
        let share = f64::from(total) / f64::from(count);
        let mut controller = Controller::new(Settings::default());
        let fresh = |window: &u32| Socket { window: *window, cap: None, slow_start_to_cap: false };
        let mut sockets: Vec<Socket> = windows.iter().map(fresh).collect();
        let mut begun = false;
        for number in 0..60 * SAMPLES {
            let before: Vec<u32> = sockets.iter().map(|socket| socket.window).collect();
            for Change { id, cap, .. } in sample(&mut controller, number, &mut sockets) {
                let Some(cap) = cap else { continue };
                let least = f64::from(before[id as usize]).min(share).floor();
                prop_assert!(f64::from(cap) >= least.max(10.0), "{} of {}", cap, least);
            }
            begun |= controller.estimate().phase == Phase::Level;
            // As n Reno flows grow; a segment each for rounding.
            let sum: u32 = sockets.iter().map(|socket| socket.window).sum();
            let grown = total + count * (number / SAMPLES + 1);
            prop_assert!(sum <= grown + count, "{} of {}", sum, grown);
            prop_assert!(f64::from(sum) >= f64::from(total) * 0.88, "{} of {}", sum, total);
        }
        let rates = || sockets.iter().map(|socket| f64::from(socket.window));
        let spread = rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min);
        prop_assert!(begun && spread <= 1.16, "{}", spread);
        prop_assert!(sockets.iter().all(|socket| socket.cap.is_none()));
    }
}
