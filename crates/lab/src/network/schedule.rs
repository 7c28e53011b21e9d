// SPDX-License-Identifier: MIT OR Apache-2.0
//! Scheduled changes of links (option `at`) as text, for markers in charts over time.

use super::link;
use crate::scenario::{Link, Scenario};
use longhaul_netem::LinkConfig;
use longhaul_results::result::{Event, format_value};
use longhaul_units::Time;

/// Returns all link changes during the run, in order of time. The clock of link n started
/// `offsets[n]` before the run. Simulated links start with the run and need no offset.
pub(crate) fn events(scenario: &Scenario, offsets: &[Time]) -> Vec<Event> {
    let changing = |link: &&Link| link.options.contains_key("at");
    let several = scenario.links.iter().filter(changing).count() > 1;
    let mut events = Vec::new();
    for (number, link) in scenario.links.iter().enumerate() {
        let offset_s = offsets.get(number).map_or(0.0, |time| time.as_secs_f64());
        let name = if several { &link.name } else { "" };
        let link_events = changes(link).into_iter().map(|(at, change)| Event {
            at_s: at.as_secs_f64() - offset_s,
            label: [name, &change].join(" ").trim_start().to_owned(),
        });
        events.extend(link_events.filter(|event| event.at_s >= 0.0));
    }
    events.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    events
}

/// Changes of one link, such as "delay 19 → 40 ms". Changes at the same time are joined.
fn changes(link: &Link) -> Vec<(Time, String)> {
    // Invalid changes were refused when the scenario was opened.
    let Ok([forward, backward]) = link::configs(link) else {
        return Vec::new();
    };
    let both = forward
        .initial
        .settings()
        .into_iter()
        .zip(backward.initial.settings());
    let mut differing: Vec<_> = both.filter(|(one, other)| one != other).collect();
    let configs: Vec<LinkConfig> = forward.configs().collect();
    let mut joined: Vec<(Time, String)> = Vec::new();
    for ((at, _), pair) in forward.schedule.iter().zip(configs.windows(2)) {
        let settings = pair[0].settings().into_iter().zip(pair[1].settings());
        for ((key, before), (_, after)) in settings.filter(|(before, after)| before != after) {
            let format = |value: String| format_value(key, &value.into());
            let differs = differing
                .extract_if(.., |((known, _), _)| *known == key)
                .count()
                > 0;
            let before = (!differs).then(|| format(before));
            let change = describe_change(key, before, &format(after));
            match joined.last_mut() {
                Some((last, all)) if last == at => *all = format!("{all}, {change}"),
                _ => joined.push((*at, change)),
            }
        }
    }
    joined
}

/// Formats a change. If both values have the same unit, it is written once.
fn describe_change(key: &str, before: Option<String>, after: &str) -> String {
    let Some(before) = before else {
        return format!("{key} → {after}");
    };
    let before = match (before.split_once(' '), after.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => number,
        _ => &before,
    };
    format!("{key} {before} → {after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(links: &str, offsets: &[Time]) -> Vec<String> {
        let rest = "title = 't'\nquestion = 'q'\n[[flows]]\nname = 'f'\nprogram = 'iperf3'\n\
                    from = 'a'\nto = 'b'\nduration = '9s'\n";
        let scenario: Scenario = toml::from_str(&format!("{rest}{links}")).unwrap();
        let text = |event: Event| format!("{} {}", event.at_s, event.label);
        events(&scenario, offsets).into_iter().map(text).collect()
    }

    fn link(name: &str, options: &str) -> String {
        format!("[[links]]\nname = '{name}'\nendpoints = ['a', 'b']\n{options}\n")
    }

    #[test]
    fn describes_changes_with_old_and_new_value() {
        let wan = link(
            "wan",
            "delay = '19ms'\nrate = '1gbit'\nat = ['90s: delay 19ms', 'at 30s: delay=40ms', '30s: rate 250mbit', \
             '95s: rate unlimited', '99s: loss 1%']",
        );
        assert_eq!(
            labels(&wan, &[]),
            [
                "30 delay 19 → 40 ms, rate 1 Gbit/s → 250 Mbit/s",
                "90 delay 40 → 19 ms",
                "95 rate 250 Mbit/s → unlimited",
                "99 loss none → 1%"
            ]
        );
    }

    #[test]
    fn names_links_and_uses_each_links_clock() {
        let links = ["x", "y"].map(|name| link(name, "delay = '1ms'\nat = ['3s: delay 2ms']"));
        let offsets = [500, 4000].map(Time::from_millis);
        assert_eq!(labels(&links.concat(), &offsets), ["2.5 x delay 1 → 2 ms"]);
    }

    #[test]
    fn omits_an_initial_value_that_differs_between_directions() {
        let wan = link(
            "wan",
            "rate = '1gbit'\nforward = ['rate=2gbit']\nat = ['3s: rate 5gbit', '4s: rate 1gbit']",
        );
        assert_eq!(
            labels(&wan, &[]),
            ["3 rate → 5 Gbit/s", "4 rate 5 → 1 Gbit/s"]
        );
    }
}
