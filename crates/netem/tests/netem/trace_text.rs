// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of delivery traces: parser, text form and clock.

use longhaul_netem::transmitter::trace::{OPPORTUNITY_BYTES, Trace, TraceClock};
use longhaul_units::Time;
use proptest::prelude::*;
use std::sync::Arc;

fn traces() -> impl Strategy<Value = Trace> {
    let gaps = prop::collection::vec(prop_oneof![3 => 0..3u32, 1 => 0..500u32], 1..60);
    (gaps, 1..5u32).prop_map(|(gaps, last)| {
        let mut ms = 0;
        let mut lines: Vec<String> = Vec::new();
        for gap in gaps {
            lines.push(ms.to_string());
            ms += gap;
        }
        lines.push((ms + last).to_string());
        lines.join("\n").parse().expect("a rising trace")
    })
}

/// Reference for `TraceClock::transmit`. It takes one opportunity after another, and never skips several at once.
fn transmit_one_by_one(
    clock: &mut TraceClock,
    open: &mut Option<(Time, u32)>,
    ready: Time,
    len: u32,
) -> Time {
    if open.is_none_or(|(at, free_bytes)| free_bytes == 0 || at < ready) {
        while clock.peek() < ready {
            clock.next();
        }
        *open = Some((clock.next(), OPPORTUNITY_BYTES));
    }
    let (mut at, mut free_bytes) = open.expect("just opened");
    let mut unsent = len;
    while unsent > free_bytes {
        unsent -= free_bytes;
        (at, free_bytes) = (clock.next(), OPPORTUNITY_BYTES);
    }
    *open = Some((at, free_bytes - unsent));
    at
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parses_its_own_text(trace in traces()) {
        prop_assert_eq!(trace.to_string().parse(), Ok(trace));
    }

    #[test]
    fn parses_any_text_without_panic(text in "([0-9]{1,12}[\n ]?|[ -~]{0,5}\n){0,20}") {
        if let Ok(trace) = text.parse::<Trace>() {
            let mut clock = TraceClock::new(Arc::new(trace.clone()));
            prop_assert!(clock.transmit(Time::from_secs(1_000_000), 9000) >= Time::from_secs(1_000_000));
            prop_assert!(trace.mean_rate().bits() > 0);
        }
    }

    #[test]
    fn skips_opportunities_as_if_one_by_one(
        trace in traces(),
        segments in prop::collection::vec((0..2_000_000_000u64, 1..9000u32), 1..50),
    ) {
        let trace = Arc::new(trace);
        let (mut fast, mut slow) = (TraceClock::new(trace.clone()), TraceClock::new(trace));
        let (mut open, mut departed, mut arrived) = (None, Time::ZERO, Time::ZERO);
        for (gap, len) in segments {
            arrived += Time::from_nanos(gap / 100);
            let ready = departed.max(arrived);
            departed = fast.transmit(ready, len);
            prop_assert_eq!(departed, transmit_one_by_one(&mut slow, &mut open, ready, len));
            prop_assert!(departed >= ready);
        }
    }

    #[test]
    fn carries_the_mean_rate_on_a_busy_link(trace in traces(), passes in 1..20u64) {
        let period = trace.period();
        let bytes = trace.mean_rate().bits() as f64 / 8.0 * period.as_secs_f64();
        let segments = (bytes / f64::from(OPPORTUNITY_BYTES)).round() as u64 * passes;
        let mut clock = TraceClock::new(Arc::new(trace));
        let last = (0..segments).map(|_| clock.transmit(Time::ZERO, OPPORTUNITY_BYTES)).last();
        prop_assert_eq!(last, Some(period * passes));
    }
}
