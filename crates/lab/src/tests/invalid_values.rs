// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid values in links, hosts, relays, flows and parameters.

/// Valid scenario that the cases modify.
pub(crate) const TEXT: &str = r#"title = 't'
question = 'q'
warmup_runs = 1
[parameters]
size = '1GB'
from = 'a'
relays = false
[quick]
size = '1MB'
repetitions = 1
[matrix]
relays = [false, true]
loss = [0.0, 0.1]
[overrides.relays.true]
size = '2GB'
[[include]]
values = { from = 'b' }
[hosts.b]
note = 'middle'
[[links]]
name = 'wan'
kind = 'veth'
endpoints = ['a', 'b']
[[links]]
name = 'lan'
endpoints = ['b', 'c']
delay = '1ms'
[relays.b]
enabled = "${relays}"
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
metric = 'goodput_bps'
[[check]]
name = 'c'
for_each = { relays = true }
value = 'goodput_bps / goodput_bps{relays=false}'
threshold = '>= 1'
[answer]
headline = '{}'
metric = 'goodput_bps'
cell = { relays = true, loss = 0 }
baseline = { relays = false, loss = 0 }
[[reference]]
cell = { from = 'b' }
figures = { goodput_bps = 1 }
[[reference]]
[reference.table]
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
x = 'loss'
hue = 'relays'
"#;

/// Test case: valid text, its invalid replacement, and the expected message.
pub(crate) type InvalidCase = (&'static str, &'static str, &'static str);

pub(crate) const PARAMETER_CASES: &[InvalidCase] = &[
    (
        "relays = [false, true]",
        "relays = ¦[]",
        "matrix.relays is empty",
    ),
    (
        "[0.0, 0.1]\n[overrides",
        "¦'0.1'\n[overrides",
        "expected a sequence",
    ),
    (
        "{ from = 'b' }\n[hosts",
        "{ form = ¦'b' }\n[hosts",
        "a cell sets \"form\"",
    ),
    (
        "[overrides.relays.true]",
        "¦[overrides.relays.maybe]",
        "overrides.relays.maybe applies to no cell: relays never has the value maybe",
    ),
    ("size = '2GB'", "sise = ¦'2GB'", "a cell sets \"sise\""),
    (
        "size = '1MB'",
        "sise = ¦'1MB'",
        "quick.sise is not a parameter",
    ),
    ("repetitions = 1", "repetitions = ¦0", "must be 1 to 1000"),
    ("warmup_runs = 1", "warmup_runs = ¦11", "warmup_runs is 11"),
    ("warmup_runs = 1", "repetitions = ¦0", "repetitions is 0"),
    (
        "[0.0, 0.1]\n[overrides",
        "[0.0, 0.1, ¦0]\n[overrides",
        "matrix.loss lists the value 0 twice; remove one",
    ),
    (
        "{ from = 'b' }\n[hosts",
        "{ from = 'b' }\nset = { from = ¦'a' }\n[hosts",
        "from is in values and in set",
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

pub(crate) const TESTBED_CASES: &[InvalidCase] = &[
    ("delay =", "¦dealy =", "unknown field `dealy`"),
    (
        "delay = '1ms'",
        "delay = ¦'1 stone'",
        "in the cell \"relays=false, loss=0.0\": link \"lan\": ",
    ),
    (
        "delay = '1ms'",
        "same_losses_as = ¦'far'",
        "no link of this name has its own losses",
    ),
    ("delay = '1ms'", "mtu = ¦100", "mtu is 100"),
    ("['a', 'b']", "['a', ¦'b b']", "host \"b b\": a name is"),
    (
        "['b', 'c']",
        "¦['b', 'c', 'd']",
        "expected two values, not 3",
    ),
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
        "not an address that a host may have",
    ),
    (
        "delay = '1ms'",
        "addresses = ['10.1.0.1/30', ¦'10.1.0.3/30']",
        "not an address that a host may have",
    ),
    (
        "delay = '1ms'",
        "addresses = [¦'127.0.0.1/30', '127.0.0.2/30']",
        "not an address that a host may have",
    ),
    (
        "delay = '1ms'",
        "addresses = ¦['10.9.0.5/24', '10.9.0.6/24']",
        "the subnets of links \"wan\" (10.9.0.1/30) and \"lan\" (10.9.0.5/24) overlap",
    ),
    (
        "delay = '1ms'",
        "capture = true\nsnap_length = ¦10",
        "snap-length 10: 40 to 256",
    ),
    (
        "delay = '1ms'",
        "capture = true\ncapture_memory = ¦'1KB'",
        "capture-memory 1 KB: at least",
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
        "'127.0.0.1:1080'\nintercept = '10.9.0.0/16:80'\ntransparent = '0.0.0.0:5123'\n\
         allow_from = '10.9.0.0/16'\n[relays.other]\nhost = 'b'\nintercept = ¦'10.9.0.0/16:80'\n\
         transparent = '0.0.0.0:5124'\nallow_from = '10.9.0.0/16'",
        "relay \"b\" already intercepts 10.9.0.0/16:80 on host \"b\"",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\ntransparent = '0.0.0.0:5123'\nallow_from = '10.9.0.0/16'\nintercept = ¦[80]",
        "name networks and ports",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nallow_from = '10.9.0.0/16'\n\
         config = ¦{ listener = [{ kind = 'transparent', address = '0.0.0.0:5123' }] }",
        "a transparent listener intercepts nothing without intercept",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\ntransparent = '0.0.0.0:5123'\nallow_from = '10.9.0.0/16'\nintercept = ¦'10.9.0.0/16:70000'",
        "\"70000\" is not a port or a range of ports",
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
        "port 0 means a random port",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nadmin = ¦'127.0.0.1:1080'",
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
        "port 0 means a random port",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nhost = ¦'nobody'",
        "relays.b: no link reaches",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\ncc_downstream = ¦'lh_bic:x=1'",
        "relays.b: cc_downstream: ",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nconfig.profile.downstream.congestion_control = ¦'reno+pace'",
        "+pace is for flows only",
    ),
    (
        "warmup_runs = 1",
        "timeout = ¦'0s'",
        "timeout must be above 0",
    ),
    (
        "note = 'middle'",
        "sysctl = { 'kernel.panic' = ¦1 }",
        "\"kernel.panic\" is not a setting of a host",
    ),
    (
        "[hosts.b]",
        "[sysctl]\n'vm/swappiness' = ¦1\n[hosts.b]",
        "is not a setting of a host",
    ),
    (
        "[hosts.b]",
        "¦[decp.nobody]\nenabled = false\n[hosts.b]",
        "decp.nobody: no link reaches",
    ),
];

/// Cases that only a run of the program would refuse.
pub(crate) const PROGRAM_CASES: &[InvalidCase] = &[
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
        "it lasts 10 min 0 s, but timeout",
    ),
    (
        "'curl'",
        "'probe'\ncount = 5\npacket_size = ¦1600",
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
        "no congestion control \"cubik\" on this machine; did you mean \"cubic\"?",
    ),
    (
        "note = 'middle'",
        "congestion_control = ¦'cubik'",
        "no congestion control \"cubik\"",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\ncc_upstream = ¦'lh_reno'",
        "no congestion control \"lh_reno\"",
    ),
    (
        "'127.0.0.1:1080'",
        "'127.0.0.1:1080'\nconfig.profile.downstream.congestion_control = ¦'cubik'",
        "no congestion control \"cubik\"",
    ),
];

pub(crate) const FLOW_CASES: &[InvalidCase] = &[
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
    ("to = 'c'", "to = 'c'\nvia = ¦'b'", "is not HOST:PORT"),
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
        "to = 'c'\npacing = ¦'1kbit'",
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
        "'curl'\nfrom = '${from}'\nto = 'c'\nsize = '${size}'",
        "'probe'\nfrom = '${from}'\nto = 'c'\ncount = 9\ncc = ¦'reno'",
        "\"iperf3\", \"ftp\" and \"udt\"",
    ),
    (
        "to = 'c'",
        "to = 'c'\npacket_size = ¦100",
        "keys of program \"probe\"",
    ),
    (
        "'curl'",
        "'iperf3'\nwindow = ¦'1KB'",
        "window must be 2KiB to 1GiB",
    ),
    (
        "'curl'",
        "'iperf3'\nmodel = ¦{ ack_ratio = 1 }",
        "model is a key of simulated flows",
    ),
    (
        "'curl'",
        "'ftp'\npacing = ¦true",
        "pacing and inter_packet_gap are keys of",
    ),
    (
        "'curl'",
        "'udt'\npacing = ¦true",
        "pacing and inter_packet_gap are keys of",
    ),
    (
        "'curl'",
        "'udt'\ncc = ¦'reno'",
        "has a rate control of its own",
    ),
    (
        "'curl'",
        "'udt'\nstreams = ¦65",
        "streams is 65, but must be 1 to 64",
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
        "to = 'c'",
        "to = 'c'\nserver_port = ¦22",
        "command, server, server_port, output_file and figures are keys of program \"command\"",
    ),
    (
        "[[flows]]\nname = 'get'\nprogram = 'curl'",
        "¦[[flows]]\nname = 'get'\nprogram = 'command'",
        "flow \"get\": command is missing",
    ),
    (
        "'curl'\nfrom = '${from}'\nto = 'c'\nsize = '${size}'",
        "'command'\nfrom = '${from}'\nto = 'c'\ncommand = ['true']\nsize = ¦'0B'",
        "command needs a size above 0",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['cp', ¦'{paylod}']",
        "{paylod} is none of {address.HOST}, {scratch.HOST}, {payload} and {longhaul}",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['scp', ¦'{address.nobody}:x']",
        "to a host \"nobody\"",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['true']\noutput_file = ¦'{scratch.nobody}/x'",
        "no link reaches a host \"nobody\"",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['true']\nserver = ['sshd']\nserver_port = ¦0",
        "server_port is missing: the TCP port",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['true']\nfigures = [¦'cpu_s']",
        "\"cpu_s\" is a metric that the lab itself measures",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['true']\nduration = ¦'1s'",
        "command runs once, on \"from\", to its end: it has no duration",
    ),
    (
        "'curl'",
        "'command'\ncommand = ['true']\ncc = ¦'reno'",
        "\"iperf3\", \"ftp\" and \"udt\"",
    ),
    (
        "[[flows]]",
        "[[flows]]\nname = 'put'\nprogram = 'ftp'\nfrom = 'a'\nto = 'c'\nsize = '1MB'\ncc = ¦'reno'\n[[flows]]",
        "the cc of an FTP flow applies to all flows that \"a\" sends; give flow \"get\" the same cc",
    ),
];
