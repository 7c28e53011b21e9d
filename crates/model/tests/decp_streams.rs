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
    let trace = env("TRACE", "");
    for n in env("N", "16,32").split(',').map(|n| n.parse().unwrap()) {
        for q in env("Q", "1").split(',').map(|q| q.parse().unwrap()) {
            for (name, s) in [
                ("none", None),
                ("default", Some(Settings::default())),
                (
                    "hold",
                    Some(Settings {
                        hold: true,
                        ..Settings::default()
                    }),
                ),
                (
                    "refill",
                    Some(Settings {
                        refill: true,
                        ..Settings::default()
                    }),
                ),
            ] {
                if !env("MODES", "none,default,refill")
                    .split(',')
                    .any(|m| m == name)
                {
                    continue;
                }
                for seed in env("SEEDS", "7").split(',').map(|q| q.parse().unwrap()) {
                    let bed = Bed {
                        cubic,
                        seed,
                        loss: env("LOSS", "0").parse().unwrap(),
                        loss_ends: (env("LOSSEND", "0") != "0").then(|| {
                            units::Time::from_millis(env("LOSSEND", "0").parse().unwrap())
                        }),
                        ..Bed::iperf3(rate, q, n, secs)
                    };
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
                            println!(
                                "{now:6.2} sum {:.2} q {q:.2} {w:?} {} {:?}",
                                sum as f64 / r.bed().bdp(),
                                r.caps.iter().flatten().count(),
                                o.map(|o| (
                                    o.phase,
                                    o.capacity * 8.0 / 1e6,
                                    o.level * 8.0 / 1e6,
                                    o.queue
                                ))
                            );
                        }
                    });
                    println!(
                        "{n:3} q {q:4} {name:8} util {:.3} jain {:.3} s/f {:.2} re {} [{:.1}s]",
                        out.utilisation,
                        out.jain,
                        out.slowest_to_fastest,
                        out.retransmitted,
                        t.elapsed().as_secs_f64()
                    );
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
        for q in [0.05, 0.25, 1.0] {
            let (rate, n) = (200, 16);
            let mut line = format!("{cubic} {rate} {n} {q}: ");
            for s in [None, Some(Settings::default())] {
                let mut got = vec![];
                for k in 0..12 {
                    let at = 10 + 3 * k;
                    let mut bed = Bed {
                        seed: k + 1,
                        cubic,
                        ..Bed::iperf3(rate, q, n, at + 45)
                    };
                    bed.strangers = vec![Stream::at(Time::from_secs(at))];
                    let out = bed.run(s, |_| ());
                    let fair = rate as f64 * 1e6 / 8.0 / 1500.0 * 45.0 / (n + 1) as f64;
                    got.push((out.strangers as f64 / fair * 100.0) as u32);
                }
                line += &format!(
                    "| {:.0}% {got:?} ",
                    got.iter().sum::<u32>() as f64 / got.len() as f64
                );
            }
            println!("CROSS {line}");
        }
    }
}
