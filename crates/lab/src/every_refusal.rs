// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a person reads who wrote something wrong: file, line and column of the value at fault, whatever it is.

use crate::{
    ready, simulated,
    source::{Book, Choices, Source},
};

const TEXT: &str = r#"title = 't'
question = 'q'
warmup = 1
[parameters]
size = '1GB'
from = 'a'
relays = false
[quick]
size = '1MB'
repetitions = 1
[vary]
relays = [false, true]
loss = [0.0, 0.1]
[with.relays.true]
size = '2GB'
[[cells]]
vary = { from = 'b' }
[hosts.b]
note = 'middle'
[[links]]
name = 'wan'
kind = 'veth'
between = ['a', 'b']
[[links]]
name = 'lan'
between = ['b', 'c']
delay = '1ms'
[relays.b]
when = "${relays}"
socks5 = '127.0.0.1:1080'
[[flows]]
name = 'get'
program = 'curl'
from = '${from}'
to = 'c'
size = '${size}'
[derived]
dvd_s = '37.6e9 / goodput_bps'
[[measure]]
name = 'late_bps'
of = 'goodput_bps'
[[check]]
name = 'c'
every = { relays = true }
value = 'goodput_bps / goodput_bps{relays=false}'
want = '>= 1'
[answer]
sentence = '{}'
metric = 'goodput_bps'
cell = { relays = true, loss = 0 }
baseline = { relays = false, loss = 0 }
[[paper]]
cell = { from = 'b' }
figures = { goodput_bps = 1 }
[[paper]]
[paper.table]
metric = 'goodput_bps'
rows = { loss = [0.0, 0.1] }
columns = { relays = [false, true] }
values = [[1, 2], [3, 4]]
[[table]]
name = 't'
title = 't'
metric = 'goodput_bps'
rows = 'loss'
columns = 'relays'
[[figure]]
name = 'f'
kind = 'bars'
title = 'f'
metric = 'goodput_bps'
over = 'loss'
by = 'relays'
"#;

/// Stands before the value at fault.
const MARK: char = '¦';

/// What is right, what is written instead, and what is said of it.
type Slip = (&'static str, &'static str, &'static str);

const OF_PARAMETERS: &[Slip] = &[
    (
        "relays = [false, true]",
        "relays = ¦[]",
        "vary.relays is empty",
    ),
    (
        "[0.0, 0.1]\n[with",
        "¦'0.3..0.1 + 0.1'\n[with",
        "it must go upward",
    ),
    (
        "{ from = 'b' }\n[hosts",
        "{ form = ¦'b' }\n[hosts",
        "a cell sets \"form\"",
    ),
    (
        "[with.relays.true]",
        "¦[with.relays.maybe]",
        "no cell varies relays as maybe",
    ),
    ("size = '2GB'", "sise = ¦'2GB'", "a cell sets \"sise\""),
    (
        "size = '1MB'",
        "sise = ¦'1MB'",
        "quick.sise is no parameter",
    ),
    ("repetitions = 1", "repetitions = ¦0", "must be 1 to 1000"),
    ("warmup = 1", "warmup = ¦11", "warmup is 11"),
    ("warmup = 1", "repetitions = ¦0", "repetitions is 0"),
    (
        "[0.0, 0.1]\n[with",
        "[0.0, 0.1, ¦0]\n[with",
        "vary.loss has 0 twice",
    ),
    (
        "{ from = 'b' }\n[hosts",
        "{ from = 'b' }\nset = { from = ¦'a' }\n[hosts",
        "the cell varies from, and sets it to something else",
    ),
    (
        "{ from = 'b' }\n[hosts",
        "{ from = 'b' }\nlabel = ¦''\n[hosts",
        "a label is empty",
    ),
    (
        "{ from = 'b' }\n[hosts",
        "{ from = 'b' }\nlabel = ¦'relays=false, loss=0.0'\n[hosts",
        "two cells are called \"relays=false, loss=0.0\"",
    ),
];

const OF_THE_TESTBED: &[Slip] = &[
    ("delay =", "¦dealy =", "unknown field `dealy`"),
    (
        "delay = '1ms'",
        "delay = ¦'1 stone'",
        "in the cell \"relays=false, loss=0.0\": link \"lan\": ",
    ),
    (
        "delay = '1ms'",
        "like = ¦'far'",
        "names no link that has options of its own",
    ),
    ("delay = '1ms'", "mtu = ¦100", "mtu is 100"),
    ("['a', 'b']", "['a', ¦'b b']", "host \"b b\": a name is"),
    ("['b', 'c']", "¦['b', 'c', 'd']", "two belong here, not 3"),
    (
        "name = 'lan'",
        "name = ¦'lo'",
        "no interface may have that name",
    ),
    (
        "name = 'lan'",
        "name = ¦'all'",
        "no interface may have that name",
    ),
    (
        "delay = '1ms'",
        "addresses = [¦'10.1.0.0/30', '10.1.0.1/30']",
        "no address that a host may have",
    ),
    (
        "delay = '1ms'",
        "addresses = ['10.1.0.1/30', ¦'10.1.0.3/30']",
        "no address that a host may have",
    ),
    (
        "delay = '1ms'",
        "addresses = [¦'127.0.0.1/30', '127.0.0.2/30']",
        "no address that a host may have",
    ),
    (
        "delay = '1ms'",
        "addresses = ¦['10.9.0.5/24', '10.9.0.6/24']",
        "the subnets of links \"wan\" (10.9.0.1/30) and \"lan\" (10.9.0.5/24) overlap",
    ),
    (
        "delay = '1ms'",
        "tap = true\ntap_snap = ¦10",
        "tap-snap 10: 40 to 256",
    ),
    (
        "delay = '1ms'",
        "tap = true\ntap_memory = ¦'1KB'",
        "tap-memory 1 KB: at least",
    ),
    (
        "delay = '1ms'",
        "¦duration = '1s'",
        "unknown field `duration`",
    ),
    (
        "delay = '1ms'",
        "delay = '1ms'\nat = ¦['3s delay x']",
        "is not TIME: KEY VALUE",
    ),
    ("delay = '1ms'", "seed = ¦-1", "'--seed <"),
    (
        "note = 'middle'",
        "sysctl = { 'net.x' = ¦[1] }",
        "a setting is a whole number or a text",
    ),
    ("['b', 'c']", "¦['c', 'c']", "it joins a host with itself"),
    (
        "name = 'lan'",
        "name = ¦'wan'",
        "two links are called \"wan\"",
    ),
    (
        "kind = 'veth'",
        "kind = 'veth'\nrate = ¦'1gbit'",
        "\"veth\" has no option \"rate\"",
    ),
    (
        "[hosts.b]",
        "¦[hosts.nobody]",
        "no link reaches a host \"nobody\"",
    ),
    (
        "note = 'middle'",
        "congestion_control = ¦'reno+pace'",
        "+pace is for flows only",
    ),
    ("'127.0.0.1:1080'", "¦'here'", "relays.b: "),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nintercept = [80]\ntransparent = '0.0.0.0:5123'\nallow_from = '10.9.0.0/16'\n\
         [relays.other]\nhost = 'b'\nintercept = [¦80]\ntransparent = '0.0.0.0:5124'\nallow_from = '10.9.0.0/16'",
        "relay \"b\" takes port 80 on host \"b\" already",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nallow_from = '10.9.0.0/16'\n\
         config = ¦{ listener = [{ kind = 'transparent', address = '0.0.0.0:5123' }] }",
        "a transparent listener takes nothing without intercept",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nkeep_source = ¦'yes'",
        "--keep-source",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nconfig = ¦{ listener = [{ kind = 'socks5', adress = '127.0.0.1:1' }] }",
        "relays.b: config: unknown field `adress`",
    ),
    (
        "'127.0.0.1:1080'",
        "¦'9.9.9.9:1080'\nallow_from = '10.9.0.0/16'",
        "host \"b\" has no such address; it has 10.9.0.2, 10.9.1.1",
    ),
    (
        "'127.0.0.1:1080'",
        "¦'127.0.0.1:0'",
        "port 0 is another port",
    ),
    (
        "'127.0.0.1:1080'",
        "¦'127.0.0.1:1080'\nadmin = '127.0.0.1:1080'",
        "relay \"b\" listens at 127.0.0.1:1080 of host \"b\" already",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\n[relays.other]\nhost = 'b'\nsocks5 = ¦'127.0.0.1:1080'",
        "relay \"b\" listens at 127.0.0.1:1080 of host \"b\" already",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\n[relays.a]\nprogram = 'haproxy'\nforward = ¦'0.0.0.0:80=10.9.1.2:80'",
        "nginx listens at 0.0.0.0:80 of host \"a\" already",
    ),
    (
        "socks5 = '127.0.0.1:1080'",
        "program = 'haproxy'\nforward = ¦'0.0.0.0:0=10.9.1.2:80'",
        "port 0 is another port",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nhost = ¦'nobody'",
        "relays.b: no link reaches",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\ncc_near = ¦'lh_bic:x=1'",
        "relays.b: cc_near: ",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nconfig.profile.near.congestion_control = ¦'reno+pace'",
        "+pace is for flows only",
    ),
    ("warmup = 1", "limit = ¦'0s'", "limit must be above 0"),
    (
        "note = 'middle'",
        "sysctl = { 'kernel.panic' = ¦1 }",
        "\"kernel.panic\" is no setting of a host",
    ),
    (
        "[hosts.b]",
        "[sysctl]\n'vm/swappiness' = ¦1\n[hosts.b]",
        "is no setting of a host",
    ),
    (
        "[hosts.b]",
        "¦[decp.nobody]\nwhen = false\n[hosts.b]",
        "decp.nobody: no link reaches",
    ),
];

/// What only a run of its program would find.
const OF_PROGRAMS: &[Slip] = &[
    (
        "'curl'",
        "'iperf3'\nduration = ¦'1500ms'",
        "duration is 1.5 s, but iperf3 takes whole seconds",
    ),
    ("'curl'", "'iperf3'\nduration = ¦'0s'", "duration is 0"),
    (
        "'curl'",
        "'iperf3'\nduration = ¦'25h'",
        "whole seconds, 86400 at most",
    ),
    (
        "'curl'",
        "'iperf3'\nduration = '2s'\nomit = ¦'700ms'",
        "omit is 700 ms",
    ),
    (
        "'curl'",
        "'iperf3'\nduration = '2s'\nomit = ¦'601s'",
        "600 at most",
    ),
    (
        "'curl'",
        "'iperf3'\nduration = '2s'\nwindow = ¦'1GiB'",
        "a window of 512MiB at most",
    ),
    (
        "'curl'",
        "'iperf3'\nduration = ¦'10min'",
        "it lasts 10 min 0 s, but limit",
    ),
    (
        "'curl'",
        "'probe'\ncount = 5\nlength = ¦1600",
        "flow \"get\": packets of 1600 bytes don't fit the path's MTU of 1500",
    ),
    (
        "'curl'",
        "'probe'\ncount = ¦100_000",
        "in the cell \"relays=false, loss=0.0\": flow \"get\": it lasts",
    ),
    (
        "'curl'",
        "'udt'\nduration = ¦'50ms'",
        "but udt takes 100 ms to",
    ),
    (
        "'curl'",
        "'iperf3'\nduration = '2s'\ncc = ¦'cubik'",
        "no congestion control \"cubik\" here; did you mean \"cubic\"?",
    ),
    (
        "note = 'middle'",
        "congestion_control = ¦'cubik'",
        "no congestion control \"cubik\"",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\ncc_far = ¦'lh_reno'",
        "no congestion control \"lh_reno\"",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nconfig.profile.near.congestion_control = ¦'cubik'",
        "no congestion control \"cubik\"",
    ),
];

const OF_FLOWS: &[Slip] = &[
    (
        "name = 'get'",
        "name = ¦'g e t'",
        "flow \"g e t\": a name is",
    ),
    (
        "'curl'",
        "¦'copy'",
        "unknown variant `copy`, expected one of `curl`",
    ),
    (
        "to = 'c'",
        "to = ¦'nobody'",
        "flow \"get\": no link reaches a host \"nobody\"",
    ),
    (
        "to = 'c'",
        "to = ¦'${from}'",
        "no path leads from \"a\" to another host \"a\"",
    ),
    ("size = '${size}'", "size = ¦'${size} stone'", "1GB stone"),
    (
        "[[flows]]\nname = 'get'\nprogram = 'curl'",
        "¦[[flows]]\nname = 'get'\nprogram = 'iperf3'\nduration = '1s'",
        "iperf3 takes either size or duration",
    ),
    (
        "to = 'c'",
        "to = 'c'\nduration = ¦'1s'",
        "curl takes a size, not a duration",
    ),
    ("to = 'c'", "to = 'c'\nvia = ¦'b'", "is no HOST:PORT"),
    (
        "to = 'c'",
        "to = 'c'\nvia = ¦'b:1080'",
        "nothing listens at b:1080",
    ),
    (
        "to = 'c'",
        "to = 'c'\nproxy = ¦'http://nobody:80'",
        "to a host \"nobody\"",
    ),
    (
        "to = 'c'",
        "to = 'c'\ncc = ¦'reno:x=1'",
        "reno has no parameters",
    ),
    (
        "to = 'c'",
        "to = 'c'\npace = ¦'1kbit'",
        "must be 8kbit to 34gbit",
    ),
    (
        "to = 'c'",
        "to = 'c'\nomit = ¦'1s'",
        "omit is a key of programs \"iperf3\" and \"udt\", beside duration",
    ),
    ("size = '${size}'", "size = ¦'0B'", "a size above 0"),
    (
        "'curl'\nfrom = '${from}'\nto = 'c'\nsize = '${size}'",
        "'iperf3'\nfrom = '${from}'\nto = 'c'\nsize = ¦'0B'",
        "size must be above 0",
    ),
    (
        "'curl'\nfrom = '${from}'\nto = 'c'\nsize = '${size}'",
        "'probe'\nfrom = '${from}'\nto = 'c'\ncount = 9\ndirection = ¦'upload'",
        "it has no direction",
    ),
    (
        "to = 'c'",
        "to = 'c'\nlength = ¦100",
        "keys of program \"probe\"",
    ),
    (
        "'curl'",
        "'iperf3'\nwindow = ¦'1KB'",
        "window must be 2KiB to 1GiB",
    ),
    ("'curl'", "'ftp'\npace = ¦true", "pace and gap are keys of"),
    ("'curl'", "'udt'\npace = ¦true", "pace and gap are keys of"),
    (
        "'curl'",
        "'udt'\ncc = ¦'reno'",
        "has a rate control of its own",
    ),
    (
        "'curl'",
        "'udt'\nparallel = ¦65",
        "parallel is 65, but must be 1 to 64",
    ),
    (
        "[[flows]]\nname = 'get'\nprogram = 'curl'",
        "¦[[flows]]\nname = 'get'\nprogram = 'udt'\nduration = '1s'",
        "udt takes either size or duration",
    ),
    (
        "'curl'",
        "'ftp'\ncc = ¦'reno+pace'",
        "flow \"get\": +pace is for programs",
    ),
    (
        "[[flows]]",
        "[[flows]]\nname = 'put'\nprogram = 'ftp'\nfrom = 'a'\nto = 'c'\nsize = '1MB'\ncc = ¦'reno'\n[[flows]]",
        "the cc of an FTP flow is that of all that \"a\" sends; give flow \"get\" the same",
    ),
];

const OF_CLAIMS: &[Slip] = &[
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
        "derived.dvd_s: \"37.6e9 /\" is no expression",
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
        "no cell is meant by every",
    ),
    (
        "'goodput_bps / goodput",
        "¦'paper.dvd_s / goodput",
        "has a figure for paper.dvd_s",
    ),
    ("'>= 1'", "¦'about 1'", "is no bound such as"),
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
        "[[check]]\nname = ¦'c'\nvalue = '1'\nwant = '>= 1'\n[answer]",
        "two checks are called \"c\"",
    ),
    (
        "sentence = '{}'\nmetric = 'goodput_bps'",
        "sentence = '{}'\nmetric = ¦'speed'",
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
        "paper: {from=c} matches 0 cells",
    ),
    (
        "[[paper]]\ncell = { from = 'b' }\nfigures = { goodput_bps = 1 }",
        "¦[[paper]]",
        "give figures",
    ),
    (
        "figures = { goodput_bps = 1 }",
        "figures = { godput_bps = ¦1 }",
        "paper: no run gives a metric \"godput_bps\"; did you mean \"goodput_bps\"?",
    ),
    (
        "figures = { goodput_bps = 1 }",
        "figures = { goodput_bps = 1 }\nsuspect = ['goodput_bps', ¦'goodput']",
        "paper: suspect: there is no figure \"goodput\" here",
    ),
    (
        "metric = 'goodput_bps'\nrows",
        "metric = ¦'goodput'\nrows",
        "paper: no run gives a metric \"goodput\"",
    ),
    (
        "[0.0, 0.1] }\ncolumns = { relays = [false, true] }\nvalues = [[1, 2], [3, 4]]",
        "[0.0, 7] }\ncolumns = { relays = [false, true] }\nvalues = [[1, 2], [¦3, 4]]",
        "paper: {loss=7,relays=false} matches 0 cells",
    ),
    (
        "rows = { loss",
        "rows = ¦{ relays = [true], loss",
        "name one parameter each",
    ),
    ("[[1, 2], [3, 4]]", "¦[[1, 2]]", "no 2 rows of at most 2"),
    (
        "[[1, 2], [3, 4]]",
        "[[1, 2], [3, 4]]\nsuspect = [[0, 0], ¦[2, 0]]",
        "no row 2, column 0",
    ),
];

const OF_VIEWS: &[Slip] = &[
    ("'late_bps'", "¦'late_s'", "must end in _bps"),
    (
        "of = 'goodput_bps'",
        "of = ¦'speed'",
        "unknown variant `speed`",
    ),
    (
        "of = 'goodput_bps'",
        "of = 'goodput_bps'\nflow = ¦'put'",
        "no flow that moves bytes",
    ),
    (
        "of = 'goodput_bps'",
        "of = 'goodput_bps'\nfrom = '2s'\nto = ¦'1s'",
        "later than from",
    ),
    (
        "of = 'goodput_bps'",
        "of = 'goodput_bps'\nbin = ¦'1ms'",
        "at least 100ms",
    ),
    (
        "of = 'goodput_bps'",
        "of = 'goodput_bps'\nreaches = ¦'90 %'",
        "stat = \"time_to\"",
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
        "no cell varies \"delay\"",
    ),
    (
        "rows = 'loss'",
        "rows = 'loss'\nonly = { loss = ¦0.7 }",
        "no cell has such a loss",
    ),
    (
        "[[table]]\nname = 't'\ntitle = 't'\nmetric = 'goodput_bps'\nrows = 'loss'\ncolumns = 'relays'",
        "¦[[table]]\nname = 't'\ntitle = 't'\nmetric = 'goodput_bps'\nrows = 'loss'",
        "fall into one place",
    ),
    ("'bars'", "¦'pie'", "unknown variant `pie`"),
    (
        "over = 'loss'",
        "rows = ¦'loss'",
        "series, bars and cdf have over and by",
    ),
    (
        "over = 'loss'",
        "over = 'loss'\nbin = ¦'1s'",
        "flow, from, to and bin belong to of",
    ),
    ("over = 'loss'", "over = 'loss'\nlog = ¦'z'", "log is \"x\""),
    (
        "'bars'\ntitle = 'f'\nmetric = 'goodput_bps'\nover = 'loss'\nby = 'relays'",
        "'series'\ntitle = 'f'\nof = 'goodput_bps'\nfrom = '2s'\nto = ¦'1s'\nby = ['loss', 'relays']",
        "to must be later than from",
    ),
    (
        "over = 'loss'",
        "over = 'loss'\nlimits = [{ value = ¦'much', label = 'l' }]",
        "a limit is a number or a quantity",
    ),
];

fn open(text: String) -> anyhow::Result<Book> {
    let source = Source {
        name: "t".to_owned(),
        origin: "t.toml".to_owned(),
        text,
        path: None,
    };
    Book::open(&source, &Choices::default())
}

/// The text without its mark, and the place where that stood, as errors name it.
fn marked(text: &str) -> (String, String) {
    let before = text.split(MARK).next().unwrap();
    let line = before.lines().count().max(1) + usize::from(before.ends_with('\n'));
    let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
    let place = format!("t.toml: line {line}, column {column}: ");
    (text.replace(MARK, ""), place)
}

#[test]
fn every_value_at_fault_has_its_place() {
    open(TEXT.to_owned()).unwrap();
    let slips = [OF_PARAMETERS, OF_THE_TESTBED, OF_FLOWS, OF_CLAIMS, OF_VIEWS];
    let slips = slips.into_iter().flatten();
    let misplaced = slips.filter_map(|slip| misplaced(TEXT, slip, |_| Ok(())));
    assert_eq!(misplaced.collect::<String>(), "");
}

/// What is wrong with the refusal of a slip, by opening the scenario or then by `check`.
fn misplaced(
    right_text: &str,
    (right, wrong, said): &Slip,
    check: fn(&Book) -> anyhow::Result<()>,
) -> Option<String> {
    assert!(right_text.contains(right), "{right}");
    let (text, place) = marked(&right_text.replacen(right, wrong, 1));
    let refused = open(text).and_then(|book| check(&book));
    let error = refused.map_or_else(|error| error.to_string(), |()| "nothing".to_owned());
    let good = error.starts_with(&place) && error.contains(said);
    (!good).then(|| format!("{wrong}\n  wanted: {place}{said}\n  found: {error}\n"))
}

#[test]
fn what_a_program_cannot_take_has_its_place() {
    // Nothing but the flow, which becomes each program's.
    let text = TEXT.replace("\nsize = '${size}'", "");
    let text = text.split("[derived]").next().unwrap();
    let text = text.replace("'curl'", "'curl'\nsize = '1GB'");
    let alone = text.replace("\nsize = '1GB'\nfrom = '${from}'", "\nfrom = '${from}'");
    let misplaced = OF_PROGRAMS.iter().filter_map(|slip| {
        let text = if slip.0 == "'curl'" { &alone } else { &text };
        misplaced(text, slip, ready::possible)
    });
    assert_eq!(misplaced.collect::<String>(), "");
    // Under simulated time no program is asked.
    let simulated = alone.replace("'curl'", "'iperf3'\nduration = '1500ms'");
    let mut book = open(simulated).unwrap();
    for cell in &mut book.cells {
        cell.scenario.simulate = true;
        cell.short.simulate = true;
    }
    crate::check::program_limits::check(&book).unwrap();
    // But a run waits as long as the scenario says.
    for cell in &mut book.cells {
        cell.scenario.limit = longhaul_units::Time::from_secs(1);
    }
    let error = crate::check::program_limits::check(&book)
        .unwrap_err()
        .to_string();
    assert!(error.contains("limit, the longest"), "{error}");
}

/// Not where the parameter is set: what is wrong with a value is said by what uses it.
#[test]
fn a_value_of_a_cell_is_at_fault_where_it_is_used() {
    let text = TEXT.replace("{ from = 'b' }\n[hosts", "{ from = 'nobody' }\n[hosts");
    let (text, place) = marked(&text.replace("'${from}'", "¦'${from}'"));
    let error = open(text).unwrap_err().to_string();
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("in the cell \"from=nobody\": flow \"get\": "),
        "{error}"
    );
}

#[test]
fn what_cannot_be_simulated_has_its_place_too() {
    let (text, place) = marked(&TEXT.replace("'curl'", "¦'curl'"));
    let mut book = open(text).unwrap();
    simulated::check(&book).unwrap();
    simulated::demand(&mut book);
    let error = simulated::check(&book).unwrap_err().to_string();
    assert!(error.starts_with(&place), "{error}");
    assert!(
        error.contains("can't be simulated: flow \"get\" is program \"curl\""),
        "{error}"
    );
}
