// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exhaustion of descriptors or kernel memory. To wait is better than to refuse. A refused client frees its descriptor,
//! the next client gets that descriptor but no second one, and is refused as well.

use longhaul_protocol::failure::Failure;
use rustix::io::Errno;
use std::{
    fs::File,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// Time between two attempts to get a descriptor or memory.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Number of retries of this process so far.
static RETRIES: AtomicU64 = AtomicU64::new(0);

/// Whether `error` says that the process or the system has no descriptor or memory for a socket (accept(2), socket(2)).
pub fn is_exhaustion(error: &io::Error) -> bool {
    use Errno as E;
    let errnos = [E::MFILE, E::NFILE, E::NOBUFS, E::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| errnos.contains(&errno))
}

/// Returns the number of waits for descriptors or memory so far.
pub fn retries() -> u64 {
    RETRIES.load(Relaxed)
}

/// Waits before the next attempt to get a descriptor or memory.
pub async fn wait_to_retry() {
    RETRIES.fetch_add(1, Relaxed);
    sleep(RETRY_INTERVAL).await;
}

/// Calls `open` until it does not fail for want of descriptors or memory. The caller bounds the time.
pub async fn retry_on_exhaustion<T, F>(mut open: impl FnMut() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match open().await {
            Err(error) if is_exhaustion(&error) => wait_to_retry().await,
            outcome => return outcome,
        }
    }
}

/// Runs `attempt` for `limit` at most.
///
/// # Errors
///
/// [`Failure::TimedOut`] after `limit`. [`Failure::Exhausted`] instead, if this process lacked descriptors or memory
/// meanwhile: then the other end is not to blame.
pub async fn with_timeout<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let before = RETRIES.load(Relaxed);
    let timeout_failure = |_| {
        if RETRIES.load(Relaxed) == before {
            Failure::TimedOut
        } else {
            Failure::Exhausted
        }
    };
    timeout(limit, attempt).await.map_err(timeout_failure)?
}

/// Number of descriptors that [`descriptor_error`] opens. A failed lookup frees its descriptors at once, so a single
/// free descriptor does not show that the lookup had one.
const TRIAL_DESCRIPTORS: usize = 16;

/// Tries to open 16 more descriptors. Returns the error if that fails for want of descriptors or memory.
pub fn descriptor_error() -> Option<io::Error> {
    let trial: io::Result<Vec<_>> = (0..TRIAL_DESCRIPTORS)
        .map(|_| File::open("/dev/null"))
        .collect();
    trial.err().filter(is_exhaustion)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    /// A descriptor that comes free at the last moment changes nothing: the time was spent on waiting for it.
    #[tokio::test]
    async fn blames_exhaustion_for_a_timeout_without_descriptors() {
        let mut attempts_left = 3;
        let attempt = async {
            let open = || {
                attempts_left -= 1;
                ready(match attempts_left {
                    0 => Ok(()),
                    _ => Err(Errno::MFILE.into()),
                })
            };
            retry_on_exhaustion(open)
                .await
                .map_err(|_| Failure::Other)?;
            pending::<Result<(), _>>().await
        };
        let outcome = with_timeout(RETRY_INTERVAL * 5, attempt).await;
        assert!(matches!(outcome, Err(Failure::Exhausted)), "{outcome:?}");
        let silent = pending::<Result<(), _>>();
        let outcome = with_timeout(RETRY_INTERVAL, silent).await;
        assert!(matches!(outcome, Err(Failure::TimedOut)), "{outcome:?}");
    }
}
