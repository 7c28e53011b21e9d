// SPDX-License-Identifier: MIT OR Apache-2.0
//! DECP's law over flows under simulated time: the paper's path (350 ms, 16 and 32 streams), scaled to
//! 1 Gbit/s.

mod aimd;

use aimd::{Fluid, Path};
use model::decp::{Law, Settings};

fn path(flows: usize, buffer_bdp: f64) -> Path {
    Path {
        rate_bps: 1e9,
        rtt_s: 0.35,
        buffer_bdp,
        flows,
        loss: 0.0,
    }
}

#[derive(Debug)]
struct Outcome {
    utilisation: f64,
    jain: f64,
    slowest_to_fastest: f64,
    losses: u64,
}

fn run(path: Path, settings: Option<Settings>, seconds: f64) -> Outcome {
    let mut fluid = Fluid::new(path, 7);
    let mut law = settings.map(Law::new);
    fluid.run(seconds, law.as_mut(), |_| ());
    let delivered = fluid.delivered();
    let sum: f64 = delivered.iter().sum();
    let squares: f64 = delivered.iter().map(|x| x * x).sum();
    Outcome {
        utilisation: sum * aimd::MSS * 8.0 / path.rate_bps / seconds,
        jain: sum * sum / squares / delivered.len() as f64,
        slowest_to_fastest: delivered.iter().copied().fold(f64::INFINITY, f64::min)
            / delivered.iter().copied().fold(0.0, f64::max),
        losses: fluid.losses,
    }
}

#[test]
fn table() {
    for seconds in [60.0, 600.0] {
        for flows in [16, 32] {
            for buffer in [0.05, 0.25, 1.0] {
                for loss in [0.0, 1e-6] {
                    let path = Path {
                        loss,
                        ..path(flows, buffer)
                    };
                    for (name, settings) in [
                        ("none", None),
                        ("lift", Some(Settings::default())),
                        (
                            "hold",
                            Some(Settings {
                                hold: true,
                                ..Settings::default()
                            }),
                        ),
                        (
                            "fill",
                            Some(Settings {
                                refill: true,
                                ..Settings::default()
                            }),
                        ),
                    ] {
                        let o = run(path, settings, seconds);
                        println!(
                            "{seconds:5} s {flows} flows buffer {buffer:4} loss {loss:e} {name}: util {:.3} jain {:.3} s/f {:.3} losses {}",
                            o.utilisation, o.jain, o.slowest_to_fastest, o.losses
                        );
                    }
                }
            }
        }
    }
}
