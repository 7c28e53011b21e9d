// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP's law over flows under simulated time: the paper's path (350 ms, 16 and 32 streams), scaled to
//! 1 Gbit/s.

mod aimd;

use aimd::{Fluid, Path};
use model::decp::{Change, Law, Observation, Phase, Settings};
use proptest::prelude::*;
use units::Time;

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
    slowest_to_fastest: f64,
    losses: u64,
}

fn run(path: Path, settings: Option<Settings>, seconds: f64) -> Outcome {
    let mut fluid = Fluid::new(path, 7);
    let mut law = settings.map(Law::new);
    fluid.run(seconds, law.as_mut(), |_| ());
    let delivered = fluid.delivered();
    let sum: f64 = delivered.iter().sum();
    let squares: f64 = delivered.iter().map(|x| x * x).sum();
    let slowest = delivered.iter().copied().fold(f64::INFINITY, f64::min);
    Outcome {
        utilisation: sum * aimd::MSS * 8.0 / path.rate_bps / seconds,
        jain: sum * sum / squares / delivered.len() as f64,
        slowest_to_fastest: slowest / delivered.iter().copied().fold(0.0, f64::max),
        losses: fluid.losses,
    }
}

/// With `--nocapture` it prints the table of the manual.
#[test]
fn a_link_of_any_buffer_is_used_as_well_and_more_evenly() {
    println!("flows buffer  law    utilisation  Jain  slowest/fastest  lost");
    for flows in [16, 32] {
        for buffer in [0.05, 0.25, 1.0] {
            let path = path(flows, buffer);
            let without = run(path, None, 300.0);
            row(path, "none", &without);
            for (name, settings) in [
                ("lift", Settings::default()),
                ("hold", hold()),
                ("refill", refill()),
            ] {
                let with = run(path, Some(settings), 300.0);
                row(path, name, &with);
                let what = format!("{flows} flows, {buffer} BDP, {name}");
                assert!(with.utilisation >= without.utilisation - 0.03, "{what}");
                assert!(with.losses <= without.losses * 6 / 5, "{what}");
                assert!(with.jain >= without.jain - 0.03, "{what}: {}", with.jain);
                if buffer >= 0.25 {
                    assert!(with.jain > without.jain, "{what}: {}", with.jain);
                    assert!(
                        with.slowest_to_fastest > without.slowest_to_fastest,
                        "{what}"
                    );
                }
                if buffer >= 1.0 || name == "refill" {
                    assert!(with.utilisation >= 0.95, "{what}: {}", with.utilisation);
                    assert!(with.jain >= 0.98, "{what}: {}", with.jain);
                }
            }
        }
    }
}

fn row(path: Path, law: &str, one: &Outcome) {
    println!(
        "{:5} {:6}  {law:6} {:11.3} {:5.3} {:16.3} {:5}",
        path.flows, path.buffer_bdp, one.utilisation, one.jain, one.slowest_to_fastest, one.losses
    );
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
fn a_link_that_gets_faster_is_filled_again() {
    let mut fluid = Fluid::new(path(16, 1.0), 3);
    let mut law = Law::new(hold());
    fluid.run(400.0, Some(&mut law), |_| ());
    fluid.path.rate_bps *= 4.0;
    let before: f64 = fluid.delivered().iter().sum();
    fluid.run(20.0, Some(&mut law), |_| ());
    let start: f64 = fluid.delivered().iter().sum();
    fluid.run(10.0, Some(&mut law), |_| ());
    let end: f64 = fluid.delivered().iter().sum();
    let rate = |segments: f64, seconds: f64| segments * aimd::MSS * 8.0 / seconds / 4e9;
    assert!(
        rate(start - before, 20.0) > 0.5,
        "on the way {}",
        rate(start - before, 20.0)
    );
    assert!(
        rate(end - start, 10.0) > 0.95,
        "then {}",
        rate(end - start, 10.0)
    );
}

#[test]
fn without_a_queue_nobody_is_capped() {
    // A link that eight flows can't fill: losses keep them small, and some are much faster.
    let mut fluid = Fluid::new(
        Path {
            loss: 1e-4,
            ..path(8, 1.0)
        },
        11,
    );
    let mut law = Law::new(Settings::default());
    fluid.run(30.0, Some(&mut law), |_| ()); // Slow start has filled a queue.
    let (mut capped, mut uneven) = (0, 0.0);
    fluid.run(300.0, Some(&mut law), |fluid| {
        capped += fluid.caps().iter().flatten().count();
        let windows = fluid.windows();
        let most = windows.iter().copied().fold(0.0, f64::max);
        uneven = f64::max(
            uneven,
            most / windows.iter().copied().fold(f64::INFINITY, f64::min),
        );
    });
    assert!(uneven > 1.5, "{uneven}");
    assert_eq!(capped, 0);
}

fn seen(id: u64, window: u32, delivered: u32, cap: Option<u32>) -> Observation {
    Observation {
        id,
        window_segments: window,
        mss_bytes: 1000,
        delivered_segments: delivered,
        retransmits: 0,
        rtt: Time::from_millis(150),
        rtt_min: Time::from_millis(100),
        cap,
        bulk: true,
    }
}

/// A full link of 1000 segments in 100 ms, whose windows ask for half as much again.
fn looks(
    law: &mut Law,
    windows: &[u32],
    caps: &mut [Option<u32>],
    from: u32,
    count: u32,
) -> Vec<Change> {
    let mut last = Vec::new();
    for look in from..from + count {
        let share = look * 1000 / windows.len() as u32;
        let all: Vec<_> = (0..windows.len())
            .map(|at| {
                seen(
                    at as u64,
                    caps[at].unwrap_or(u32::MAX).min(windows[at]),
                    share,
                    caps[at],
                )
            })
            .collect();
        last = law.look(Time::from_millis(100 * u64::from(look)), &all);
        for change in &last {
            caps[change.id as usize] = change.cap;
        }
    }
    last
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
    fn nobody_is_capped_below_the_equal_share_and_the_link_stays_full(
        windows in prop::collection::vec(20u32..2000, 2..24),
    ) {
        let total: u32 = windows.iter().sum();
        prop_assume!(total > 1200);
        let mut law = Law::new(hold());
        let mut caps = vec![None; windows.len()];
        looks(&mut law, &windows, &mut caps, 0, 60);
        // What the link carries in a round trip, whatever fractions of segments each delivers.
        let wire = law.outlook().capacity * 0.1 / 1000.0;
        let share = wire / windows.len() as f64;
        let left: f64 = windows.iter().zip(&caps)
            .map(|(window, cap)| f64::from(cap.unwrap_or(u32::MAX).min(*window)))
            .sum();
        for (window, cap) in windows.iter().zip(&caps) {
            if let Some(cap) = cap {
                prop_assert!(f64::from(*cap) >= share.max(10.0), "{} below {}", cap, share);
                prop_assert!(cap <= window || left >= wire, "{} for {}", cap, window);
            }
        }
        prop_assert!(left >= wire.min(total.into()), "{} of {}", left, wire);
    }
}
