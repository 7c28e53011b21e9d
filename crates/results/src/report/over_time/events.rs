// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events during the runs of a chart, for its vertical lines and its text.

use crate::result::{Event, Run};

/// Returns the events of a run.
pub(crate) fn of(run: &Run) -> &[Event] {
    run.series.as_ref().map_or(&[], |series| &series.events)
}

/// Merges the events of several runs in order of time. An event that not all runs have gets the names of those that
/// have it. Equal events less than `near_s` apart are the same event: runs start at slightly different times.
pub(crate) fn merge(of: &[(&str, &[Event])], near_s: f64) -> Vec<Event> {
    let mut merged: Vec<(Event, Vec<&str>)> = Vec::new();
    for (name, event) in of
        .iter()
        .flat_map(|(name, events)| events.iter().map(move |event| (*name, event)))
    {
        let same = |(other, _): &&mut (Event, Vec<&str>)| {
            other.label == event.label && (other.at_s - event.at_s).abs() < near_s
        };
        match merged.iter_mut().find(same) {
            Some((_, names)) => names.push(name),
            None => merged.push((event.clone(), vec![name])),
        }
    }
    merged.sort_by(|(a, _), (b, _)| a.at_s.total_cmp(&b.at_s));
    let named = |(event, names): (Event, Vec<&str>)| {
        if names.len() == of.len() {
            event
        } else {
            Event {
                label: format!("{}: {}", names.join(", "), event.label),
                ..event
            }
        }
    };
    merged.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_s: f64, label: &str) -> Event {
        let label = label.to_owned();
        Event { at_s, label }
    }

    #[test]
    fn merges_common_events_and_names_others() {
        let longer = |at_s| event(at_s, "delay 19 → 40 ms");
        let (a, b) = (
            [longer(29.8), event(90.0, "loss → 1%")],
            [event(10.0, "rate → 1 Gbit/s"), longer(29.9)],
        );
        assert_eq!(
            merge(&[("reno", &a), ("bic", &b)], 0.5),
            [
                event(10.0, "bic: rate → 1 Gbit/s"),
                longer(29.8),
                event(90.0, "reno: loss → 1%")
            ]
        );
        assert_eq!(merge(&[("reno", &a)], 0.5), a);
    }

    #[test]
    fn keeps_repeated_events_of_one_run() {
        let a = [1.0, 2.0, 3.0].map(|at_s| event(at_s, "delay 1 → 2 ms"));
        assert_eq!(merge(&[("", &a)], 0.1), a);
    }
}
