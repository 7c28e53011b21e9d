// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of settings as text: the parser accepts the text of every setting, and panics on no text.

use longhaul_netem::{jitter::Jitter, loss::Loss, queue::discipline::QueueDiscipline};
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

/// Pattern of texts that are almost a setting.
const NEARLY: &str = "(none|gilbert|at|normal|uniform|pareto|tail|codel|red|[0-9.%]{1,4})?\
    (:)?([a-z]{1,8}=)?[0-9.]{0,20}[a-zA-Z%-]{0,3}(,[a-z0-9=-]{0,12}){0,3}";

/// Whether the text parses to a value whose own text parses to the same value.
fn round_trips<T: FromStr + fmt::Display + PartialEq>(text: &str) -> bool {
    text.parse::<T>().is_ok_and(|value| {
        value
            .to_string()
            .parse()
            .is_ok_and(|parsed: T| parsed == value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parses_its_own_text_of_a_loss(loss in loss()) {
        prop_assert_eq!(loss.to_string().parse(), Ok(loss));
    }

    #[test]
    fn parses_its_own_text_of_a_jitter(
        distribution in "(normal:|uniform:|pareto:|)",
        us in 0..10_000_000u64,
        reorder in "(,reorder|)",
    ) {
        let text = format!("{distribution}{us}us{reorder}");
        prop_assert!(round_trips::<Jitter>(&text));
    }

    #[test]
    fn parses_its_own_text_of_a_queue_discipline(min in 1..1_000_000_000u64, more in 1..1_000_000u64, p in 1..100u8) {
        let (max, weight) = (min + more, f64::from(p) / 997.0);
        let text = format!("red:min={min},max={max},p={p}%,weight={weight}");
        prop_assert!(round_trips::<QueueDiscipline>(&text));
        let text = format!("codel:target={min}ns,interval={max}ns");
        prop_assert!(round_trips::<QueueDiscipline>(&text));
    }

    #[test]
    fn survives_any_text(text in prop_oneof![NEARLY, "\\PC{0,40}"]) {
        let mismatches = [
            text.parse::<Loss>().is_ok() && !round_trips::<Loss>(&text),
            text.parse::<Jitter>().is_ok() && !round_trips::<Jitter>(&text),
            text.parse::<QueueDiscipline>().is_ok() && !round_trips::<QueueDiscipline>(&text),
        ];
        prop_assert_eq!(mismatches, [false; 3]);
    }
}
