// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors or memory have run out. To wait is better than to refuse: the first one that comes
//! free would go to the next client, only for that one to be refused as well.

use longhaul_protocol::failure::Failure;
use rustix::io::Errno;
use std::{
    fs::File,
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::time::{sleep, timeout};

/// How long to wait for a descriptor or memory to come free.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// How often anything in this process has waited for one.
static WAITS: AtomicU64 = AtomicU64::new(0);

/// Whether the process or the system has run out of what every socket takes (accept(2),
/// socket(2)).
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    use Errno as E;
    let scarce = [E::MFILE, E::NFILE, E::NOBUFS, E::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| scarce.contains(&errno))
}

/// Opens what takes descriptors or memory, as often as there are none. The caller bounds the time.
pub(crate) async fn patiently<T, F>(mut open: impl FnMut() -> F) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    loop {
        match open().await {
            Err(error) if is_shortage(&error) => {
                WAITS.fetch_add(1, Relaxed);
                sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Gives `attempt` so much time. If it takes longer and descriptors were missing meanwhile, that is
/// to blame, and nobody at the other end.
pub(crate) async fn within<T>(
    limit: Duration,
    attempt: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let before = WAITS.load(Relaxed);
    let late = |_| match WAITS.load(Relaxed) == before {
        true => Failure::TimedOut,
        false => Failure::Exhausted,
    };
    timeout(limit, attempt).await.map_err(late)?
}

/// Descriptors that lookups may hold at the same time. They are free again a moment after one of them has
/// failed for want of them, so it is not enough that one can be had then.
const ROOM: usize = 16;

/// The error of whoever wants that many descriptors now.
pub(crate) fn missing() -> Option<io::Error> {
    let room: io::Result<Vec<_>> = (0..ROOM).map(|_| File::open("/dev/null")).collect();
    room.err().filter(is_shortage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    /// One that came free at the last moment changes nothing: the time was spent on waiting for it.
    #[tokio::test]
    async fn time_spent_without_descriptors_is_nobodys_fault() {
        let mut missing = 3;
        let attempt = async {
            let open = || {
                missing -= 1;
                ready(match missing {
                    0 => Ok(()),
                    _ => Err(Errno::MFILE.into()),
                })
            };
            patiently(open).await.map_err(|_| Failure::Other)?;
            pending::<Result<(), _>>().await
        };
        let outcome = within(PAUSE * 5, attempt).await;
        assert!(matches!(outcome, Err(Failure::Exhausted)), "{outcome:?}");
        let silent = pending::<Result<(), _>>();
        let outcome = within(PAUSE, silent).await;
        assert!(matches!(outcome, Err(Failure::TimedOut)), "{outcome:?}");
    }
}
