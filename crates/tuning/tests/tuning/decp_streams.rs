// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP's controller over simulated TCP: the paper's path (350 ms, 16 and 32 streams), with and without it.

use crate::streams::{Experiment, Outcome, Stream};
use longhaul_tuning::decp::model::{Phase, Settings};
use longhaul_units::Time;

fn lift() -> Settings {
    Settings::default()
}

fn slow_start() -> Settings {
    Settings {
        slow_start: true,
        ..lift()
    }
}

/// Means of several runs that differ in the start times of streams.
#[derive(Debug, Default)]
struct Mean {
    utilisation: f64,
    jain: f64,
    slowest_to_fastest: f64,
    retransmitted: f64,
}

fn mean(bed: &Experiment, settings: Option<Settings>, runs: u64) -> Mean {
    let outcomes: Vec<Outcome> = (1..=runs)
        .map(|seed| {
            Experiment {
                seed,
                ..bed.clone()
            }
            .run(settings, |_| ())
        })
        .collect();
    let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / runs as f64;
    Mean {
        utilisation: mean(|one| one.utilisation),
        jain: mean(|one| one.jain),
        slowest_to_fastest: mean(|one| one.slowest_to_fastest),
        retransmitted: mean(|one| one.retransmitted as f64),
    }
}

/// Returns the utilisation that equal windows may cost: in a buffer much shorter than a BDP those of CUBIC lose
/// at the same time.
fn cost_max(bed: &Experiment) -> f64 {
    if bed.cubic && bed.queue < 0.1 {
        0.035
    } else {
        0.01
    }
}

fn is_better(bed: &Experiment, runs: u64) {
    let without = mean(bed, None, runs);
    let with = mean(bed, Some(lift()), runs);
    row(bed, "without", &without);
    row(bed, "default", &with);
    let what = format!("{with:?}\n{without:?}\n{bed:?}");
    assert!(
        with.utilisation >= without.utilisation - cost_max(bed),
        "{what}"
    );
    assert!(with.jain >= 0.99 && with.jain >= without.jain, "{what}");
    assert!(
        with.slowest_to_fastest > without.slowest_to_fastest,
        "{what}"
    );
}

fn row(bed: &Experiment, controller: &str, one: &Mean) {
    println!(
        "{:4} Mbit/s {:2} {:5} {:4} BDP {controller:8} utilisation {:.3} Jain {:.3} slowest/fastest {:.2} lost {:.0}",
        bed.rate_mbit,
        bed.streams.len(),
        if bed.cubic { "cubic" } else { "reno" },
        bed.queue,
        one.utilisation,
        one.jain,
        one.slowest_to_fastest,
        one.retransmitted
    );
}

fn buffers(rate_mbit: u64, cubic: bool, seconds: u64, runs: u64) {
    for streams in [16, 32] {
        for queue in [0.05, 0.25, 1.0] {
            let bed = Experiment::iperf3(rate_mbit, queue, streams, seconds);
            is_better(&Experiment { cubic, ..bed }, runs);
        }
    }
}

// With `--nocapture` these tests print the table of the manual.

#[test]
fn balances_reno_at_200_mbit_without_loss_of_throughput() {
    buffers(200, false, 120, 3);
}

#[test]
fn balances_reno_at_1_gbit_without_loss_of_throughput() {
    buffers(1000, false, 60, 2);
}

#[test]
fn balances_cubic_at_200_mbit_without_loss_of_throughput() {
    buffers(200, true, 120, 3);
}

#[test]
fn balances_cubic_at_1_gbit_without_loss_of_throughput() {
    buffers(1000, true, 60, 2);
}

/// No stream overshoots, so streams never become unequal.
#[test]
fn slow_start_ends_before_a_deep_buffer_overflows() {
    for streams in [16, 32] {
        for rate_mbit in [200, 1000] {
            let bed = Experiment::iperf3(rate_mbit, 1.0, streams, 15);
            let (without, with) = (bed.run(None, |_| ()), bed.run(Some(lift()), |_| ()));
            assert!(without.retransmitted as f64 > bed.bdp(), "{without:?}");
            assert_eq!(with.retransmitted, 0, "{with:?}");
            assert!(with.slowest_to_fastest > 0.9, "{with:?}");
        }
    }
}

/// Random losses end some slow starts early: without the controller a slow stream would need minutes to catch up.
/// Many losses also affect streams whose slow start the controller has ended. Then no stream fills the link by
/// slow start, which may cost some throughput.
#[test]
fn streams_with_early_losses_catch_up() {
    for (loss, cost) in [(0.0002, 0.01), (0.001, 0.05)] {
        for streams in [16, 32] {
            let bed = Experiment::iperf3(200, 1.0, streams, 60);
            let bed = Experiment {
                loss,
                loss_ends: Some(bed.start() + Time::from_millis(3300)),
                ..bed
            };
            let (without, with) = (mean(&bed, None, 4), mean(&bed, Some(lift()), 4));
            let what = format!("{with:?} {without:?}");
            assert!(without.slowest_to_fastest < 0.2, "{what}");
            assert!(with.jain > 0.995 && with.slowest_to_fastest > 0.8, "{what}");
            assert!(with.utilisation > without.utilisation - cost, "{what}");
        }
    }
}

#[test]
fn slow_start_raises_utilisation_of_a_short_buffer() {
    for streams in [16, 32] {
        let bed = Experiment::iperf3(200, 0.05, streams, 60);
        let (without, with) = (mean(&bed, None, 2), mean(&bed, Some(slow_start()), 2));
        let what = format!("{with:?} {without:?}");
        assert!(with.utilisation > without.utilisation + 0.12, "{what}");
        assert!(with.jain > 0.99, "{what}");
    }
}

#[test]
fn new_streams_get_an_equal_share_when_others_end() {
    let bed = Experiment::iperf3(200, 1.0, 8, 60);
    let ending = Stream {
        packets: Some(40_000),
        ..Stream::at(Time::ZERO)
    };
    let late = Stream::at(Time::from_secs(25));
    let streams = [
        vec![Stream::at(Time::ZERO); 4],
        vec![ending; 4],
        vec![late; 8],
    ]
    .concat();
    let bed = Experiment { streams, ..bed };
    let (mut last, mut windows, mut controller) = (0, Vec::new(), Phase::Level);
    let with = bed.run(Some(lift()), |running| {
        windows = running.windows();
        last = running.caps.iter().flatten().count();
        controller = running
            .controller
            .as_ref()
            .expect("a controller")
            .estimate()
            .phase;
    });
    let without = bed.run(None, |_| ());
    assert!(
        with.utilisation >= without.utilisation - 0.01,
        "{with:?} {without:?}"
    );
    let left = [&windows[..4], &windows[8..]].concat();
    let (least, most) = (left.iter().min(), left.iter().max());
    assert!(
        f64::from(*most.unwrap()) <= 1.3 * f64::from(*least.unwrap()),
        "{windows:?}"
    );
    assert_eq!((last, controller), (0, Phase::Open));
}

/// One Reno flow that the controller does not observe, which starts while the others run. Its start time
/// varies, since its throughput depends on its first loss. It must get nine tenths of its throughput without the
/// controller, or of an equal share if that is less.
#[test]
fn uncontrolled_flow_gets_its_share() {
    for cubic in [false, true] {
        let got = |settings: Option<Settings>| {
            let at = |queue| {
                let runs = (0..12).map(|run| uncontrolled_throughput(run, cubic, queue, settings));
                runs.sum::<f64>() / 12.0
            };
            [0.05, 0.25, 1.0].map(at)
        };
        let (without, with) = (got(None), got(Some(lift())));
        println!("a stranger beside cubic {cubic}: {without:.2?} {with:.2?} of an equal share");
        let mean = |shares: [f64; 3]| shares.iter().sum::<f64>() / 3.0;
        let least = 0.9 * mean(without).min(1.0);
        assert!(mean(with) >= least, "{cubic}: {with:?} {without:?}");
    }
}

/// Returns the uncontrolled flow's throughput in 30 s, as a multiple of an equal share.
fn uncontrolled_throughput(run: u64, cubic: bool, queue: f64, settings: Option<Settings>) -> f64 {
    const SECONDS: u64 = 30;
    let after = 10 + 3 * run;
    let mut bed = Experiment::iperf3(100, queue, 16, after + SECONDS);
    bed.uncontrolled = vec![Stream::at(bed.start() + Time::from_secs(after))];
    let seed = run + 1;
    let share = bed.bdp() / crate::streams::RTT.as_secs_f64() * SECONDS as f64 / 17.0;
    let outcome = Experiment { cubic, seed, ..bed }.run(settings, |_| ());
    outcome.uncontrolled_packets as f64 / share
}

/// Flows that started earlier keep their throughput.
#[test]
fn earlier_uncontrolled_flow_keeps_its_throughput() {
    for queue in [0.05, 0.25, 1.0] {
        let carried = |settings| {
            let run = |seed| {
                let mut bed = Experiment::iperf3(100, queue, 16, 60);
                bed.streams = vec![Stream::at(Time::from_secs(20)); 16];
                bed.uncontrolled = vec![Stream::at(Time::ZERO)];
                Experiment { seed, ..bed }
                    .run(settings, |_| ())
                    .uncontrolled_packets as f64
            };
            (1..=4).map(run).sum::<f64>()
        };
        let (without, with) = (carried(None), carried(Some(lift())));
        println!("{queue} BDP: {:.3} of what it had without", with / without);
        assert!(with >= 0.9 * without, "{queue}: {with} {without}");
    }
}
