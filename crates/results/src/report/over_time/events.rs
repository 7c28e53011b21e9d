// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened while the runs of a chart went on: its rules, and the same in words.

use crate::result::{Event, Run};

/// What a run met.
pub(crate) fn of(run: &Run) -> &[Event] {
    run.series.as_ref().map_or(&[], |series| &series.events)
}

/// What any of several met, each once, in order of time. What not all of them met is said with the names
/// of those that did. Moments less than `near_s` apart are the same: no two runs start alike.
pub(crate) fn together(of: &[(&str, &[Event])], near_s: f64) -> Vec<Event> {
    let mut met: Vec<(Event, Vec<&str>)> = Vec::new();
    for (name, event) in of
        .iter()
        .flat_map(|(name, events)| events.iter().map(move |event| (*name, event)))
    {
        let same = |(other, _): &&mut (Event, Vec<&str>)| {
            other.label == event.label && (other.at_s - event.at_s).abs() < near_s
        };
        match met.iter_mut().find(same) {
            Some((_, names)) => names.push(name),
            None => met.push((event.clone(), vec![name])),
        }
    }
    met.sort_by(|(a, _), (b, _)| a.at_s.total_cmp(&b.at_s));
    let said = |(event, names): (Event, Vec<&str>)| match names.len() == of.len() {
        true => event,
        false => Event {
            label: format!("{}: {}", names.join(", "), event.label),
            ..event
        },
    };
    met.into_iter().map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at_s: f64, label: &str) -> Event {
        let label = label.to_owned();
        Event { at_s, label }
    }

    #[test]
    fn what_all_met_is_said_once_and_what_one_met_with_its_name() {
        let longer = |at_s| event(at_s, "delay 19 → 40 ms");
        let (a, b) = (
            [longer(29.8), event(90.0, "loss → 1%")],
            [event(10.0, "rate → 1 Gbit/s"), longer(29.9)],
        );
        assert_eq!(
            together(&[("reno", &a), ("bic", &b)], 0.5),
            [
                event(10.0, "bic: rate → 1 Gbit/s"),
                longer(29.8),
                event(90.0, "reno: loss → 1%")
            ]
        );
        assert_eq!(together(&[("reno", &a)], 0.5), a);
    }

    #[test]
    fn a_link_that_goes_to_and_fro_has_each_change() {
        let a = [1.0, 2.0, 3.0].map(|at_s| event(at_s, "delay 1 → 2 ms"));
        assert_eq!(together(&[("", &a)], 0.1), a);
    }
}
