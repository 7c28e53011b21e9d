// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP's law over fluid flows for long times, and its bounds look by look. What it makes of TCP as it is:
//! `decp_streams.rs`.

use crate::aimd::{Fluid, Path};
use longhaul_tuning::decp::model::{Change, Law, Observation, Phase, Settings};
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

fn hold() -> Settings {
    Settings {
        hold: true,
        ..Settings::default()
    }
}

fn refill() -> Settings {
    Settings {
        refill: true,
        ..Settings::default()
    }
}

/// What a run came to.
#[derive(Debug)]
struct Outcome {
    utilisation: f64,
    jain: f64,
}

fn run(path: Path, settings: Option<Settings>, seconds: f64) -> Outcome {
    let mut fluid = Fluid::new(path, 7);
    let mut law = settings.map(Law::new);
    fluid.run(seconds, law.as_mut(), |_| ());
    let delivered = fluid.delivered();
    let sum: f64 = delivered.iter().sum();
    let squares: f64 = delivered.iter().map(|x| x * x).sum();
    Outcome {
        utilisation: sum * crate::aimd::MSS * 8.0 / path.rate_bps / seconds,
        jain: sum * sum / squares / delivered.len() as f64,
    }
}

/// Round trips that are longer than the least one are taken for a queue; it must not cost much.
#[test]
fn what_busy_hosts_add_to_round_trips_does_not_keep_a_link_empty() {
    for noise in [0.1, 0.3] {
        let path = Path {
            noise,
            ..path(16, 1.0)
        };
        let without = run(path, None, 200.0);
        for settings in [Settings::default(), hold(), refill()] {
            let with = run(path, Some(settings), 200.0);
            let what = format!("{noise} {settings:?}: {with:?} {without:?}");
            assert!(with.utilisation >= without.utilisation - 0.05, "{what}");
        }
    }
}

#[test]
fn caps_are_lifted_once_all_are_even_and_kept_by_hold() {
    let capped = |settings| {
        let mut fluid = Fluid::new(path(16, 1.0), 3);
        let mut law = Law::new(settings);
        let mut most = 0;
        let count = |fluid: &Fluid| fluid.caps().iter().flatten().count();
        fluid.run(400.0, Some(&mut law), |fluid| most = most.max(count(fluid)));
        (most, count(&fluid), law.outlook())
    };
    let (most, last, outlook) = capped(Settings::default());
    assert!(most >= 2 && last == 0, "{most} {last}");
    assert_eq!(outlook.phase, Phase::Open);
    assert!(outlook.spread < 1.3, "{}", outlook.spread);
    let (_, last, outlook) = capped(hold());
    assert_eq!((last, outlook.phase), (16, Phase::Level));
    // Nothing is lost any more, and what stands in the queue is what headroom says.
    assert!((outlook.queue - 0.1).abs() < 0.03, "{outlook:?}");
}

#[test]
fn held_caps_rest() {
    let mut fluid = Fluid::new(path(32, 1.0), 5);
    let mut law = Law::new(hold());
    fluid.run(600.0, Some(&mut law), |_| ());
    let (before, lost) = (fluid.caps(), fluid.losses);
    let mut seen = Vec::new();
    fluid.run(60.0, Some(&mut law), |fluid| seen.push(fluid.caps()));
    let moves = seen.windows(2).filter(|pair| pair[0] != pair[1]).count();
    // Up and down again once in ten round trips: 171 in a minute.
    assert!(moves <= 70, "{moves} moves in a minute");
    assert!(before.iter().all(Option::is_some));
    assert_eq!(fluid.losses, lost);
}

#[test]
fn held_connections_fill_a_link_that_gets_faster_as_fast_as_others() {
    let carried = |settings: Option<Settings>| {
        let mut fluid = Fluid::new(path(16, 1.0), 3);
        let mut law = settings.map(Law::new);
        fluid.run(400.0, law.as_mut(), |_| ());
        fluid.path.rate_bps *= 1.25;
        let before: f64 = fluid.delivered().iter().sum();
        fluid.run(300.0, law.as_mut(), |_| ());
        fluid.delivered().iter().sum::<f64>() - before
    };
    let (with, without) = (carried(Some(hold())), carried(None));
    assert!(with >= 0.98 * without, "{with} {without}");
}

#[test]
fn where_losses_come_without_a_queue_the_link_is_used_as_before() {
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

/// A socket that does as it is told: cut within a look, filled by a fifth in each.
#[derive(Debug, Clone, Copy)]
struct Socket {
    window: u32,
    cap: Option<u32>,
    fills: bool,
}

impl Socket {
    fn obey(&mut self, change: Change) {
        self.cap = change.cap;
        self.fills = change.fill;
    }

    fn step(&mut self) {
        let cap = self.cap.unwrap_or(u32::MAX);
        let grown = self.window + self.window / 5 + 1;
        self.window = match self.fills {
            true => grown.min(cap),
            false => self.window.min(cap),
        };
    }
}

const RTT: Time = Time::from_millis(100);
/// Looks of a round trip.
const LOOKS: u32 = 4;

/// One look at a full link of 1000 segments a round trip.
fn look(law: &mut Law, number: u32, sockets: &mut [Socket]) -> Vec<Change> {
    let share = number * 1000 / LOOKS / sockets.len() as u32;
    let all: Vec<_> = (0..)
        .zip(sockets.iter())
        .map(|(id, socket)| Observation {
            slow_start: socket.fills && socket.window < socket.cap.unwrap_or(0),
            ..seen(id, socket.window, share, socket.cap)
        })
        .collect();
    let now = Time::from_nanos(RTT.as_nanos() / u64::from(LOOKS) * u64::from(number));
    let changes = law.look(now, &all);
    for change in &changes {
        sockets[change.id as usize].obey(*change);
    }
    sockets.iter_mut().for_each(Socket::step);
    changes
}

fn seen(id: u64, window: u32, delivered: u32, cap: Option<u32>) -> Observation {
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
fn a_connection_that_sends_nothing_is_neither_slow_nor_capped_and_ends_are_forgotten() {
    let mut law = Law::new(Settings::default());
    let mut idle = seen(9, 10, 0, None);
    idle.bulk = false;
    let even = |look: u32| {
        [
            seen(1, 750, look * 500, None),
            seen(2, 750, look * 500, None),
            idle,
        ]
    };
    for look in 0..100 {
        assert_eq!(
            law.look(Time::from_millis(100 * u64::from(look)), &even(look)),
            []
        );
    }
    assert_eq!((law.outlook().bulk, law.outlook().spread), (2, 1.0));
    // All gone but one: nothing is left to be even with.
    let alone = [seen(1, 750, 60_000, Some(300))];
    let lifted = law.look(Time::from_secs(20), &alone);
    assert_eq!(
        lifted,
        [Change {
            id: 1,
            cap: None,
            fill: false
        }]
    );
}

proptest! {
    /// The bounds that the module promises, for any windows on a full link.
    #[test]
    fn only_the_division_of_the_sum_is_changed(
        windows in prop::collection::vec(20u32..2000, 2..24),
    ) {
        let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
        prop_assume!(*most > least * 2);
        let total: u32 = windows.iter().sum();
        let count = windows.len() as u32;
        let share = f64::from(total) / f64::from(count);
        let mut law = Law::new(Settings::default());
        let fresh = |window: &u32| Socket { window: *window, cap: None, fills: false };
        let mut sockets: Vec<Socket> = windows.iter().map(fresh).collect();
        let mut begun = false;
        for number in 0..60 * LOOKS {
            let before: Vec<u32> = sockets.iter().map(|socket| socket.window).collect();
            for Change { id, cap, .. } in look(&mut law, number, &mut sockets) {
                let Some(cap) = cap else { continue };
                let least = f64::from(before[id as usize]).min(share).floor();
                prop_assert!(f64::from(cap) >= least.max(10.0), "{} of {}", cap, least);
            }
            begun |= law.outlook().phase == Phase::Level;
            // As n Reno flows grow; a segment each for rounding.
            let sum: u32 = sockets.iter().map(|socket| socket.window).sum();
            let grown = total + count * (number / LOOKS + 1);
            prop_assert!(sum <= grown + count, "{} of {}", sum, grown);
            prop_assert!(f64::from(sum) >= f64::from(total) * 0.88, "{} of {}", sum, total);
        }
        let rates = || sockets.iter().map(|socket| f64::from(socket.window));
        let spread = rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min);
        prop_assert!(begun && spread <= 1.16, "{}", spread);
        prop_assert!(sockets.iter().all(|socket| socket.cap.is_none()));
    }
}
