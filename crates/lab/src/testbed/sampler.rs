// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sampler of TCP_INFO on all hosts of the testbed, ten times a second: for the raw records, and
//! for metrics and report.

use crate::measure::{
    Recording, Sample,
    recording::{ConnectionKey, INTERVAL},
};
use anyhow::{Context, Result};
use longhaul_linux::{clock, netns::Netns, sock_diag::SockDiag};
use std::{
    collections::HashMap,
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Most samples in memory for metrics and report, about 200 bytes each; all go to the file. Beyond
/// it, every other sampling time is left out.
const SAMPLES_MAX: usize = 500_000;

/// Thread that samples until it is stopped.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Recording>>,
}

impl Sampler {
    /// Samples `hosts` into the file `path`, and keeps in `delivered` the payload bytes that the
    /// hosts in `receivers` have received so far.
    pub(crate) fn start(
        hosts: &[(String, Netns)],
        receivers: Vec<String>,
        delivered: Arc<AtomicU64>,
        path: &Path,
    ) -> Result<Self> {
        let channels = hosts
            .iter()
            .map(|(name, netns)| Ok((Arc::from(name.as_str()), SockDiag::open(netns)?)))
            .collect::<Result<Vec<_>>>()?;
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let work = SamplerThread {
            channels,
            receivers,
            delivered,
            file: BufWriter::new(file),
            stop: stop.clone(),
        };
        let thread = thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(|| work.run())?;
        Ok(Self { stop, thread })
    }

    /// Stops the thread and returns its samples.
    pub(crate) fn stop(self) -> Result<Recording> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread
            .join()
            .map_err(|_| anyhow::anyhow!("the sampler panicked"))?
    }
}

struct SamplerThread {
    channels: Vec<(Arc<str>, SockDiag)>,
    receivers: Vec<String>,
    delivered: Arc<AtomicU64>,
    file: BufWriter<File>,
    stop: Arc<AtomicBool>,
}

impl SamplerThread {
    fn run(mut self) -> Result<Recording> {
        let start = clock::now();
        let mut recording = Recording::default();
        let mut received = HashMap::new();
        let (mut round, mut keep_every) = (0u64, 1);
        while !self.stop.load(Ordering::Relaxed) {
            let at_s = clock::now().since(start).as_secs_f64();
            for sample in self.sample_hosts(at_s)? {
                self.update_delivered(&sample, &mut received);
                serde_json::to_writer(&mut self.file, &sample)?;
                self.file.write_all(b"\n")?;
                if round.is_multiple_of(keep_every) {
                    recording.0.push(sample);
                }
            }
            round += 1;
            if recording.0.len() >= SAMPLES_MAX {
                recording.halve();
                keep_every *= 2;
            }
            thread::park_timeout(INTERVAL);
        }
        self.file.flush()?;
        Ok(recording)
    }

    fn sample_hosts(&mut self, at_s: f64) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for (host, channel) in &mut self.channels {
            let found = channel.connections()?.into_iter();
            samples.extend(found.map(|connection| Sample {
                at_s,
                host: host.clone(),
                connection,
            }));
        }
        Ok(samples)
    }

    fn update_delivered(&self, sample: &Sample, received: &mut HashMap<ConnectionKey, u64>) {
        if self.receivers.iter().any(|host| **host == *sample.host) {
            received.insert(sample.key(), sample.connection.bytes_received);
            self.delivered
                .store(received.values().sum(), Ordering::Relaxed);
        }
    }
}
