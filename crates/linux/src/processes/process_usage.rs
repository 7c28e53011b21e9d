// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources that this process uses (proc_pid_stat(5)).

use rustix::time::{ClockId, clock_gettime};
use std::{
    fs, io,
    time::{Duration, SystemTime},
};

/// Resources in use now, and CPU time since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// User and system CPU time of all threads, in seconds.
    pub cpu_s: f64,
    /// Memory in RAM, in bytes.
    pub resident_bytes: u64,
    /// Address space, in bytes.
    pub virtual_bytes: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of open descriptors.
    pub descriptors: u64,
    /// Start time of the process.
    pub start_time: SystemTime,
}

/// Reads this process's usage from /proc; needs no rights.
pub fn own() -> io::Result<Usage> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let fields = fields(&stat).ok_or_else(|| io::Error::other("/proc/self/stat is cut short"))?;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let boot = clock_gettime(ClockId::Boottime);
    let age = boot.tv_sec as f64 + boot.tv_nsec as f64 / 1e9 - fields.start_ticks as f64 / ticks;
    Ok(Usage {
        cpu_s: fields.cpu as f64 / ticks,
        resident_bytes: fields.resident_pages * rustix::param::page_size() as u64,
        virtual_bytes: fields.virtual_bytes,
        threads: fields.threads,
        // Listing the directory opens one itself.
        descriptors: fs::read_dir("/proc/self/fd")?.count() as u64 - 1,
        start_time: SystemTime::now() - Duration::from_secs_f64(age.max(0.0)),
    })
}

/// Fields of /proc/self/stat, times in ticks of the kernel's clock.
#[derive(Debug, PartialEq)]
struct Fields {
    cpu: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// Parses the fields, counted from the end of the program's name, which may contain blanks and brackets.
fn fields(stat: &str) -> Option<Fields> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let values: Vec<&str> = rest.split_whitespace().collect();
    // The first value is field 3.
    let field = |number: usize| values.get(number - 3)?.parse::<u64>().ok();
    Some(Fields {
        cpu: field(14)? + field(15)?,
        threads: field(20)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_names_with_brackets_and_blanks() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 110 15 12 13 20 0 4 0 900 5000 60 1 2";
        let expected = Fields {
            cpu: 125,
            threads: 4,
            start_ticks: 900,
            virtual_bytes: 5000,
            resident_pages: 60,
        };
        assert_eq!(fields(stat), Some(expected));
        assert_eq!(fields("7 (a) S 1"), None);
    }

    #[test]
    fn reads_the_usage_of_this_process() {
        let usage = own().unwrap();
        assert!(usage.resident_bytes > 0 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.threads >= 1 && usage.descriptors >= 3);
        assert!(usage.start_time <= SystemTime::now());
    }
}
