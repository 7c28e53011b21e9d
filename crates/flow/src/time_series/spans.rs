// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spans: a stretch of bins divided into runs of one kind each.

use std::ops::Range;

/// Consecutive bins of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span<K> {
    pub(crate) kind: K,
    pub(crate) bins: Range<usize>,
}

/// Replaces the part of `spans` under `over`. `spans` are in order and without gaps before and after.
pub(crate) fn overlay<K: Copy>(spans: &mut Vec<Span<K>>, over: Span<K>) {
    if over.bins.is_empty() {
        return;
    }
    let (from, to) = (over.bins.start, over.bins.end);
    let mut result = Vec::with_capacity(spans.len() + 2);
    let mut over = Some(over);
    for Span { kind, bins } in spans.drain(..) {
        let (before, after) = (bins.start..bins.end.min(from), bins.start.max(to)..bins.end);
        if !before.is_empty() {
            result.push(Span { kind, bins: before });
        }
        if bins.end > from {
            result.extend(over.take());
        }
        if !after.is_empty() {
            result.push(Span { kind, bins: after });
        }
    }
    result.extend(over);
    *spans = result;
}

/// Merges neighbours for which `same` returns true.
pub(crate) fn merge_adjacent<K>(
    spans: Vec<Span<K>>,
    same: impl Fn(&Span<K>, &Span<K>) -> bool,
) -> Vec<Span<K>> {
    let mut joined: Vec<Span<K>> = Vec::with_capacity(spans.len());
    for span in spans {
        match joined.last_mut() {
            Some(last) if same(last, &span) => last.bins.end = span.bins.end,
            _ => joined.push(span),
        }
    }
    joined
}

/// Removes spans that are `short`: the span before takes their bins, or the one after if there is none before.
pub(crate) fn absorb_short<K>(
    spans: Vec<Span<K>>,
    short: impl Fn(&Span<K>) -> bool,
) -> Vec<Span<K>> {
    let mut result: Vec<Span<K>> = Vec::with_capacity(spans.len());
    for span in spans {
        match result.last_mut() {
            Some(last) if short(&span) => last.bins.end = span.bins.end,
            Some(last) if short(last) => {
                let bins = last.bins.start..span.bins.end;
                *last = Span { bins, ..span };
            }
            _ => result.push(span),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(text: &str) -> Vec<Span<char>> {
        let single = text.chars().enumerate();
        let single = single.map(|(at, kind)| Span {
            kind,
            bins: at..at + 1,
        });
        merge_adjacent(single.collect(), |a, b| a.kind == b.kind)
    }

    fn text(spans: &[Span<char>]) -> String {
        let mut text = String::new();
        for span in spans {
            assert_eq!(span.bins.start, text.len(), "no gap, no overlap");
            text.extend(span.bins.clone().map(|_| span.kind));
        }
        text
    }

    #[test]
    fn overlay_replaces_only_its_range() {
        for (from, to, want) in [
            (0, 2, "XXabbc"),
            (1, 4, "aXXXbc"),
            (4, 6, "aaabXX"),
            (3, 3, "aaabbc"),
            (0, 6, "XXXXXX"),
        ] {
            let mut result = spans("aaabbc");
            overlay(
                &mut result,
                Span {
                    kind: 'X',
                    bins: from..to,
                },
            );
            assert_eq!(text(&result), want);
        }
    }

    #[test]
    fn neighbour_absorbs_short_span() {
        let short = |span: &Span<char>| span.bins.len() < 2;
        assert_eq!(text(&absorb_short(spans("aabccd"), short)), "aaaccc");
        assert_eq!(text(&absorb_short(spans("abbc"), short)), "bbbb");
        assert_eq!(text(&absorb_short(spans("a"), short)), "a");
    }
}
