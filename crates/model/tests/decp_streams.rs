// SPDX-License-Identifier: MIT OR Apache-2.0
//! exploration
mod streams;
use model::decp::Settings;
use streams::Bed;

#[test]
fn explore() {
    let env = |k: &str, d: &str| std::env::var(k).unwrap_or(d.to_owned());
    let rate: u64 = env("RATE", "200").parse().unwrap();
    let secs: u64 = env("SECS", "30").parse().unwrap();
    let cubic = env("CC", "reno") == "cubic";
    let trace = env("TRACE", "") ;
    for n in env("N", "16,32").split(',').map(|n| n.parse().unwrap()) {
        for q in env("Q", "1").split(',').map(|q| q.parse().unwrap()) {
            for (name, s) in [("none", None), ("default", Some(Settings::default())), ("refill", Some(Settings { refill: true, ..Settings::default() }))] {
                if !env("MODES", "none,default,refill").split(',').any(|m| m == name) { continue }
                for seed in env("SEEDS", "7").split(',').map(|q| q.parse().unwrap()) {
                let bed = Bed { cubic, seed, loss: env("LOSS","0").parse().unwrap(), loss_ends: (env("LOSSEND","0")!="0").then(||units::Time::from_millis(env("LOSSEND","0").parse().unwrap())), ..Bed::iperf3(rate, q, n, secs) };
                let t = std::time::Instant::now();
                let mut next = 0.0;
                let out = bed.run(s, |r| {
                    let now = r.simulation.now().as_secs_f64();
                    if trace == name && now >= next {
                        next = now + 0.35;
                        let w = r.windows();
                        let sum: u32 = w.iter().sum();
                        let o = r.law.as_ref().map(|l| l.outlook());
                        let q = r.simulation.backlog_bytes() as f64 / 1500.0 / r.bed().bdp();
                        println!("{now:6.2} sum {:.2} q {q:.2} {w:?} {} {:?}", sum as f64 / r.bed().bdp(), r.caps.iter().flatten().count(), o.map(|o| (o.phase, o.capacity*8.0/1e6, o.level*8.0/1e6, o.queue)));
                    }
                });
                println!("{n:3} q {q:4} {name:8} util {:.3} jain {:.3} s/f {:.2} re {} [{:.1}s]", out.utilisation, out.jain, out.slowest_to_fastest, out.retransmitted, t.elapsed().as_secs_f64());
                }
            }
        }
    }
}

#[test]
fn cross() {
    use streams::Stream;
    use units::Time;
    for cubic in [false, true] {
    for (rate, n) in [(200, 16), (1000, 32)] {
        for q in [0.05, 0.25, 1.0] {
            for (mine, other) in [(0, 0), (20, 0), (0, 20)] {
                let mut line = format!("{cubic} {rate} {n} {q} mine {mine} other {other}: ");
                let mut base = 0.0;
                for s in [None, Some(Settings::default()), Some(Settings { hold: true, ..Settings::default() }), Some(Settings { refill: true, ..Settings::default() })] {
                    let (mut got, mut jain, mut util) = (0.0, 0.0, 0.0);
                    for seed in 1..=3 {
                        let mut bed = Bed { seed, cubic, ..Bed::iperf3(rate, q, n, 120) };
                        bed.streams = vec![Stream::at(Time::from_secs(mine)); n];
                        bed.strangers = vec![Stream::at(Time::from_secs(other))];
                        let out = bed.run(s, |_| ());
                        got += out.strangers as f64; jain += out.jain / 3.0; util += out.utilisation / 3.0;
                    }
                    if s.is_none() { base = got }
                    line += &format!("| stranger {:.2} util {util:.3} jain {jain:.3} ", got / base);
                }
                println!("CROSS {line}");
            }
        }
    }
    }
}
