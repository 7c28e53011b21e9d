// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this process uses of the machine (proc_pid_stat(5)).

use rustix::time::{ClockId, clock_gettime};
use std::{
    fs, io,
    time::{Duration, SystemTime},
};

/// What is used now, or was since the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    /// Time on a processor, user's and kernel's, of all threads, in seconds.
    pub cpu_s: f64,
    /// Memory in RAM, in bytes.
    pub resident_bytes: u64,
    /// Address space, in bytes.
    pub virtual_bytes: u64,
    /// Threads that there are.
    pub threads: u64,
    /// Descriptors that are open.
    pub descriptors: u64,
    /// When the process started.
    pub start_time: SystemTime,
}

/// Reads it from /proc; takes no rights.
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
        // The listing itself has one open.
        descriptors: fs::read_dir("/proc/self/fd")?.count() as u64 - 1,
        start_time: SystemTime::now() - Duration::from_secs_f64(age.max(0.0)),
    })
}

/// Times in ticks of the kernel's clock.
#[derive(Debug, PartialEq)]
struct Fields {
    cpu: u64,
    threads: u64,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

/// The program's name, in brackets, may hold blanks and brackets: fields are counted from its end.
fn fields(stat: &str) -> Option<Fields> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let values: Vec<&str> = rest.split_whitespace().collect();
    // The first of them is field 3.
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
    fn a_name_with_brackets_and_blanks_shifts_nothing() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 110 15 12 13 20 0 4 0 900 5000 60 1 2";
        let want = Fields {
            cpu: 125,
            threads: 4,
            start_ticks: 900,
            virtual_bytes: 5000,
            resident_pages: 60,
        };
        assert_eq!(fields(stat), Some(want));
        assert_eq!(fields("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_uses_something() {
        let usage = own().unwrap();
        assert!(usage.resident_bytes > 0 && usage.virtual_bytes >= usage.resident_bytes);
        assert!(usage.threads >= 1 && usage.descriptors >= 3);
        assert!(usage.start_time <= SystemTime::now());
    }
}
