// SPDX-License-Identifier: MIT OR Apache-2.0
//! Warnings of settings that are valid, and are often not what is meant.

use crate::{LinkConfig, jitter::Jitter};
use longhaul_units::Time;

/// Longest time that a default queue may hold without a warning: bufferbloat begins far below.
const QUEUE_TIME_MAX: Time = Time::from_secs(1);
/// Least share of segments with a jitter that is cut, for a warning.
const CUT_MIN: f64 = 0.001;

/// Returns the warnings of these settings.
#[must_use]
pub fn warnings(config: &LinkConfig) -> Vec<String> {
    let jitter = &config.jitter;
    let found = [
        order_warning(jitter),
        cut_warning(jitter, config.delay),
        queue_warning(config),
    ];
    found.into_iter().flatten().collect()
}

/// Warns of a jitter that lengthens the delays of segments that are close to each other.
fn order_warning(jitter: &Jitter) -> Option<String> {
    let varies = Jitter {
        correlation: jitter.longest() * 5,
        ..jitter.clone()
    };
    let overtakes = Jitter {
        reorder: true,
        ..jitter.clone()
    };
    jitter.lengthens_delays().then(|| {
        format!(
            "jitter {jitter} keeps the order: each segment waits for the one before it, so delays are longer than \
             declared where segments follow closely; {varies} varies slowly enough to keep both, {overtakes} may overtake"
        )
    })
}

/// Warns of offsets that would make the delay negative.
fn cut_warning(jitter: &Jitter, delay: Time) -> Option<String> {
    let share = if jitter.is_none() {
        0.0
    } else {
        jitter.cdf(-(delay.as_nanos() as f64))
    };
    (share >= CUT_MIN).then(|| {
        format!(
            "jitter {jitter} is too large for a delay of {delay}: {:.1} % of the segments would arrive before they were \
             sent, and get a delay of 0; their mean delay is longer than {delay}",
            share * 100.0
        )
    })
}

/// Warns of a default queue that holds seconds.
fn queue_warning(config: &LinkConfig) -> Option<String> {
    let rate = config.rate.mean().filter(|_| config.queue.is_none())?;
    let capacity = config.queue_capacity();
    let bytes = (capacity.packets as u64)
        .saturating_mul(config.mtu.into())
        .min(capacity.bytes);
    let time = rate.time_for(bytes);
    (time > QUEUE_TIME_MAX && capacity.bytes == u64::MAX).then(|| {
        format!(
            "the default queue of {} packets holds {:.1} s at {rate}; give --queue, such as 100p or 64KB",
            capacity.packets,
            time.as_secs_f64()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    fn warned(settings: &[(&str, &str)]) -> Vec<String> {
        let mut config = LinkConfig::default();
        for (key, value) in settings {
            config.apply(Setting::parse(key, value).unwrap());
        }
        warnings(&config)
    }

    #[test]
    fn warns_of_what_is_seldom_meant() {
        for (settings, part) in [
            (
                [("delay", "50ms"), ("jitter", "2ms")],
                "2ms,correlation=80ms",
            ),
            ([("delay", "10ms"), ("jitter", "50ms,reorder")], "42.1 %"),
            (
                [("delay", "50ms"), ("jitter", "2ms,correlation=19ms")],
                "2ms,correlation=80ms",
            ),
            ([("delay", "10ms"), ("rate", "64kbit")], "187.5 s"),
        ] {
            let warnings = warned(&settings);
            assert!(
                warnings.len() == 1 && warnings[0].contains(part),
                "{warnings:?}"
            );
        }
        for settings in [
            [("delay", "50ms"), ("jitter", "2ms,correlation=80ms")],
            [("delay", "50ms"), ("jitter", "uniform:50ms,reorder")],
            [("delay", "10ms"), ("rate", "12mbit")],
        ] {
            assert_eq!(warned(&settings), [""; 0]);
        }
    }
}
