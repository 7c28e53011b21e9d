// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid claims, tables and figures.

use super::invalid_values::InvalidCase;

pub(crate) const CLAIM_CASES: &[InvalidCase] = &[
    (
        "'37.6e9 / goodput_bps'",
        "¦'late_s'\nlate_s = 'dvd_s * 2'",
        "derived.dvd_s: ",
    ),
    (
        "'goodput_bps / goodput",
        "¦'upload_s / goodput",
        "no run gives a metric \"upload_s\"",
    ),
    (
        "'goodput_bps / goodput",
        "¦'acks / goodput",
        "no run gives a metric \"acks\"",
    ),
    (
        "'37.6e9 / goodput_bps'",
        "¦'37.6e9 / godput_bps'",
        "did you mean \"goodput_bps\"?",
    ),
    (
        "'37.6e9 / goodput_bps'",
        "¦'37.6e9 /'",
        "derived.dvd_s: \"37.6e9 /\" is not an expression",
    ),
    (
        "'goodput_bps / goodput",
        "¦'godput_bps / goodput",
        "check \"c\": no run gives a metric",
    ),
    (
        "'goodput_bps / goodput",
        "¦'goodput_bps goodput",
        "check \"c\": ",
    ),
    (
        "'goodput_bps / goodput_bps{relays=false}'",
        "¦'goodput_bps / goodput_bps{relays=maybe}'",
        "matches 0 cells instead of one",
    ),
    (
        "{ relays = true }",
        "¦{ relays = 7 }",
        "for_each matches no cell",
    ),
    (
        "'goodput_bps / goodput",
        "¦'reference.dvd_s / goodput",
        "has a figure for reference.dvd_s",
    ),
    ("'>= 1'", "¦'about 1'", "is not a threshold such as"),
    (
        "dvd_s =",
        "goodput_bps = ¦'5'\ndvd_s =",
        "there is a metric \"goodput_bps\" already",
    ),
    (
        "dvd_s =",
        "late_bps = ¦'5'\ndvd_s =",
        "there is a metric \"late_bps\" already",
    ),
    (
        "dvd_s =",
        "'d s' = ¦'5'\ndvd_s =",
        "a metric's name is letters",
    ),
    (
        "name = 'late_bps'",
        "name = ¦'goodput_bps'",
        "there is a metric \"goodput_bps\" already",
    ),
    (
        "[answer]",
        "[[check]]\nname = ¦'c'\nvalue = '1'\nthreshold = '>= 1'\n[answer]",
        "two checks are called \"c\"",
    ),
    (
        "headline = '{}'\nmetric = 'goodput_bps'",
        "headline = '{}'\nmetric = ¦'speed'",
        "answer: ",
    ),
    (
        "{ relays = true, loss = 0 }",
        "¦{ relays = true }",
        "matches 2 cells instead of one",
    ),
    (
        "{ relays = false, loss = 0 }",
        "¦{ loss = 7 }",
        "answer: {loss=7} matches 0 cells",
    ),
    (
        "{ from = 'b' }\nfigures",
        "¦{ from = 'c' }\nfigures",
        "reference: {from=c} matches 0 cells",
    ),
    (
        "[[reference]]\ncell = { from = 'b' }\nfigures = { goodput_bps = 1 }",
        "¦[[reference]]",
        "give figures",
    ),
    (
        "figures = { goodput_bps = 1 }",
        "figures = { godput_bps = ¦1 }",
        "reference: no run gives a metric \"godput_bps\"; did you mean \"goodput_bps\"?",
    ),
    (
        "figures = { goodput_bps = 1 }",
        "figures = { goodput_bps = 1 }\nexclude = ['goodput_bps', ¦'goodput']",
        "reference: exclude names \"goodput\", but figures has no such metric",
    ),
    (
        "metric = 'goodput_bps'\nrows",
        "metric = ¦'goodput'\nrows",
        "reference: no run gives a metric \"goodput\"",
    ),
    (
        "[0.0, 0.1] }\ncolumns = { relays = [false, true] }\nvalues = [[1, 2], [3, 4]]",
        "[0.0, 7] }\ncolumns = { relays = [false, true] }\nvalues = [[1, 2], [¦3, 4]]",
        "reference: {loss=7,relays=false} matches 0 cells",
    ),
    (
        "rows = { loss",
        "rows = ¦{ relays = [true], loss",
        "name one parameter each",
    ),
    ("[[1, 2], [3, 4]]", "¦[[1, 2]]", "not 2 rows of at most 2"),
    (
        "[[1, 2], [3, 4]]",
        "[[1, 2], [3, 4]]\nexclude = [[0, 0], ¦[2, 0]]",
        "exclude names row 2, column 0",
    ),
];

pub(crate) const VIEW_CASES: &[InvalidCase] = &[
    ("'late_bps'", "¦'late_s'", "must end in _bps"),
    (
        "metric = 'goodput_bps'",
        "metric = ¦'speed'",
        "unknown variant `speed`",
    ),
    (
        "metric = 'goodput_bps'",
        "metric = 'goodput_bps'\nflow = ¦'put'",
        "no flow that transfers data",
    ),
    (
        "metric = 'goodput_bps'",
        "metric = 'goodput_bps'\nfrom = '2s'\nto = ¦'1s'",
        "later than from",
    ),
    (
        "metric = 'goodput_bps'",
        "metric = 'goodput_bps'\nbin = ¦'1ms'",
        "at least 100ms",
    ),
    (
        "metric = 'goodput_bps'",
        "metric = 'goodput_bps'\ntarget = ¦'90 %'",
        "stat = \"settling_time\"",
    ),
    ("name = 't'", "name = ¦'t 1'", "\"t 1\": a name is"),
    (
        "name = 'f'",
        "name = ¦'t'",
        "two tables or figures are called \"t\"",
    ),
    (
        "title = 't'\nmetric = 'goodput_bps'",
        "title = 't'\nmetric = ¦'speed'",
        "no run gives",
    ),
    (
        "name = 't'\ntitle = 't'",
        "name = 't'\ntitle = ¦'{goodput_bps{loss=7} :x}'",
        "{loss=7} matches 0 cells",
    ),
    (
        "rows = 'loss'",
        "rows = ¦['loss', 'delay']",
        "\"delay\" is not a varied parameter (there are: ",
    ),
    (
        "rows = 'loss'",
        "rows = 'loss'\nfilter = { loss = ¦0.7 }",
        "no cell has this value of loss",
    ),
    (
        "[[table]]\nname = 't'\ntitle = 't'\nmetric = 'goodput_bps'\nrows = 'loss'\ncolumns = 'relays'",
        "¦[[table]]\nname = 't'\ntitle = 't'\nmetric = 'goodput_bps'\nrows = 'loss'",
        "map to the same row and column",
    ),
    ("'bars'", "¦'pie'", "unknown variant `pie`"),
    (
        "x = 'loss'",
        "rows = ¦'loss'",
        "line, bars and cdf have x and hue",
    ),
    (
        "x = 'loss'",
        "x = 'loss'\nbin = ¦'1s'",
        "flow, from, to and bin need time_series",
    ),
    ("x = 'loss'", "x = 'loss'\nlog = ¦'z'", "log is \"x\""),
    (
        "'bars'\ntitle = 'f'\nmetric = 'goodput_bps'\nx = 'loss'\nhue = 'relays'",
        "'line'\ntitle = 'f'\ntime_series = 'goodput_bps'\nfrom = '2s'\nto = ¦'1s'\nhue = ['loss', 'relays']",
        "to must be later than from",
    ),
    (
        "x = 'loss'",
        "x = 'loss'\nreference_lines = [{ value = ¦'much', label = 'l' }]",
        "a reference line is a number or a quantity",
    ),
];
