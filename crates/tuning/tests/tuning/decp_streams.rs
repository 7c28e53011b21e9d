// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP's law over simulated TCP: the paper's path (350 ms, 16 and 32 streams), with and without it.

use crate::streams::{Bed, Outcome, Stream};
use longhaul_tuning::decp::model::{Phase, Settings};
use longhaul_units::Time;

fn lift() -> Settings {
    Settings::default()
}

fn refill() -> Settings {
    Settings {
        refill: true,
        ..lift()
    }
}

/// The means of some runs that differ in when streams begin.
#[derive(Debug, Default)]
struct Mean {
    utilisation: f64,
    jain: f64,
    slowest_to_fastest: f64,
    retransmitted: f64,
}

fn mean(bed: &Bed, settings: Option<Settings>, runs: u64) -> Mean {
    let outcomes: Vec<Outcome> = (1..=runs)
        .map(|seed| {
            Bed {
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

/// What equal windows may cost: in a buffer much shorter than a BDP those of CUBIC lose at the same time.
fn cost_max(bed: &Bed) -> f64 {
    match bed.cubic && bed.queue < 0.1 {
        true => 0.035,
        false => 0.01,
    }
}

fn is_better(bed: &Bed, runs: u64) {
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

fn row(bed: &Bed, law: &str, one: &Mean) {
    println!(
        "{:4} Mbit/s {:2} {:5} {:4} BDP {law:8} utilisation {:.3} Jain {:.3} slowest/fastest {:.2} lost {:.0}",
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
            let bed = Bed::iperf3(rate_mbit, queue, streams, seconds);
            is_better(&Bed { cubic, ..bed }, runs);
        }
    }
}

// With `--nocapture` these print the table of the manual.

#[test]
fn reno_at_200_mbit_is_even_and_as_fast_with_any_buffer() {
    buffers(200, false, 120, 3);
}

#[test]
fn reno_at_1_gbit_is_even_and_as_fast_with_any_buffer() {
    buffers(1000, false, 60, 2);
}

#[test]
fn cubic_at_200_mbit_is_even_and_as_fast_with_any_buffer() {
    buffers(200, true, 120, 3);
}

#[test]
fn cubic_at_1_gbit_is_even_and_as_fast_with_any_buffer() {
    buffers(1000, true, 60, 2);
}

/// Nobody overshoots: what makes streams differ never happens.
#[test]
fn slow_start_ends_before_a_deep_buffer_overflows() {
    for streams in [16, 32] {
        for rate_mbit in [200, 1000] {
            let bed = Bed::iperf3(rate_mbit, 1.0, streams, 15);
            let (without, with) = (bed.run(None, |_| ()), bed.run(Some(lift()), |_| ()));
            assert!(without.retransmitted as f64 > bed.bdp(), "{without:?}");
            assert_eq!(with.retransmitted, 0, "{with:?}");
            assert!(with.slowest_to_fastest > 0.9, "{with:?}");
        }
    }
}

/// Losses that end some slow starts early: the state in which a slow stream would need minutes. Where they
/// are many, one hits those too that the law has stopped, and nobody goes on to fill the link by slow
/// start: that may cost something.
#[test]
fn streams_that_lost_early_catch_up() {
    for (loss, cost) in [(0.0002, 0.01), (0.001, 0.05)] {
        for streams in [16, 32] {
            let bed = Bed::iperf3(200, 1.0, streams, 60);
            let bed = Bed {
                loss,
                loss_ends: Some(bed.begins() + Time::from_millis(3300)),
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
fn refill_uses_a_short_buffer_that_losses_keep_empty() {
    for streams in [16, 32] {
        let bed = Bed::iperf3(200, 0.05, streams, 60);
        let (without, with) = (mean(&bed, None, 2), mean(&bed, Some(refill()), 2));
        let what = format!("{with:?} {without:?}");
        assert!(with.utilisation > without.utilisation + 0.12, "{what}");
        assert!(with.jain > 0.99, "{what}");
    }
}

#[test]
fn streams_that_end_leave_and_those_that_begin_get_their_share() {
    let bed = Bed::iperf3(200, 1.0, 8, 60);
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
    let bed = Bed { streams, ..bed };
    let (mut last, mut windows, mut law) = (0, Vec::new(), Phase::Level);
    let with = bed.run(Some(lift()), |running| {
        windows = running.windows();
        last = running.caps.iter().flatten().count();
        law = running.law.as_ref().expect("a law").outlook().phase;
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
    assert_eq!((last, law), (0, Phase::Open));
}

/// One Reno flow that the law is not told of, come in the middle of things, at different times since what one
/// flow gets hangs on its first loss. What it is to have: what it has without the law, or an equal share if
/// that is less, but for a tenth.
#[test]
fn a_stranger_gets_its_share() {
    for cubic in [false, true] {
        let got = |settings: Option<Settings>| {
            let at = |queue| {
                let runs = (0..12).map(|run| stranger(run, cubic, queue, settings));
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

/// Its throughput in 30 s, equal shares being 1.
fn stranger(run: u64, cubic: bool, queue: f64, settings: Option<Settings>) -> f64 {
    const SECONDS: u64 = 30;
    let after = 10 + 3 * run;
    let mut bed = Bed::iperf3(100, queue, 16, after + SECONDS);
    bed.strangers = vec![Stream::at(bed.begins() + Time::from_secs(after))];
    let seed = run + 1;
    let share = bed.bdp() / crate::streams::RTT.as_secs_f64() * SECONDS as f64 / 17.0;
    let outcome = Bed { cubic, seed, ..bed }.run(settings, |_| ());
    outcome.strangers as f64 / share
}

/// Others that were there before are not pushed aside.
#[test]
fn a_stranger_that_came_first_keeps_as_much() {
    for queue in [0.05, 0.25, 1.0] {
        let carried = |settings| {
            let run = |seed| {
                let mut bed = Bed::iperf3(100, queue, 16, 60);
                bed.streams = vec![Stream::at(Time::from_secs(20)); 16];
                bed.strangers = vec![Stream::at(Time::ZERO)];
                Bed { seed, ..bed }.run(settings, |_| ()).strangers as f64
            };
            (1..=4).map(run).sum::<f64>()
        };
        let (without, with) = (carried(None), carried(Some(lift())));
        println!("{queue} BDP: {:.3} of what it had without", with / without);
        assert!(with >= 0.9 * without, "{queue}: {with} {without}");
    }
}
