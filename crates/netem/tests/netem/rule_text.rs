// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules in text: every rule reads back as itself, and no text makes the parser panic.

use longhaul_netem::{jitter::Jitter, loss::Loss, queue::discipline::Discipline};
use longhaul_units::Ratio;
use proptest::prelude::*;
use std::{fmt, str::FromStr};

fn ratio() -> impl Strategy<Value = Ratio> {
    prop_oneof![0.0..=1.0f64, Just(0.0), Just(1.0), Just(0.001)]
        .prop_map(|value| Ratio::new(value).expect("a share"))
}

fn loss() -> impl Strategy<Value = Loss> {
    let gilbert =
        (ratio(), ratio(), ratio(), ratio()).prop_map(|(p, r, good, bad)| Loss::GilbertElliott {
            good_to_bad: p,
            bad_to_good: r,
            loss_in_good: good,
            loss_in_bad: bad,
        });
    let exact = prop::collection::vec(1..u64::MAX, 1..20);
    prop_oneof![
        Just(Loss::None),
        ratio().prop_map(Loss::Independent),
        gilbert,
        exact.prop_map(|numbers| Loss::Exact(numbers.into_iter().collect())),
    ]
}

/// A text that is almost a rule.
const NEARLY: &str = "(none|gilbert|at|normal|uniform|pareto|tail|codel|red|[0-9.%]{1,4})?\
    (:)?([a-z]{1,8}=)?[0-9.]{0,20}[a-zA-Z%-]{0,3}(,[a-z0-9=-]{0,12}){0,3}";

/// A text that is read is written back so that it is read as the same.
fn steady<T: FromStr + fmt::Display + PartialEq>(text: &str) -> bool {
    text.parse::<T>()
        .is_ok_and(|rule| rule.to_string().parse().is_ok_and(|back: T| back == rule))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loss_reads_back(loss in loss()) {
        prop_assert_eq!(loss.to_string().parse(), Ok(loss));
    }

    #[test]
    fn a_jitter_reads_back(
        shape in "(normal:|uniform:|pareto:|)",
        us in 0..10_000_000u64,
        reorder in "(,reorder|)",
    ) {
        let text = format!("{shape}{us}us{reorder}");
        prop_assert!(steady::<Jitter>(&text));
    }

    #[test]
    fn a_queue_rule_reads_back(min in 1..1_000_000_000u64, more in 1..1_000_000u64, p in 1..100u8) {
        let (max, weight) = (min + more, f64::from(p) / 997.0);
        let text = format!("red:min={min},max={max},p={p}%,weight={weight}");
        prop_assert!(steady::<Discipline>(&text));
        let text = format!("codel:target={min}ns,interval={max}ns");
        prop_assert!(steady::<Discipline>(&text));
    }

    #[test]
    fn no_text_panics(text in prop_oneof![NEARLY, "\\PC{0,40}"]) {
        let accepted = [
            text.parse::<Loss>().is_ok() && !steady::<Loss>(&text),
            text.parse::<Jitter>().is_ok() && !steady::<Jitter>(&text),
            text.parse::<Discipline>().is_ok() && !steady::<Discipline>(&text),
        ];
        prop_assert_eq!(accepted, [false; 3]);
    }
}
