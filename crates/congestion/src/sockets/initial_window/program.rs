// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program for initial windows, and its storage beside sockets.

use libbpf_rs::{
    Link, MapCore, MapFlags, MapHandle, ObjectBuilder, ProgramAttachType,
    query::{LinkInfoIter, LinkTypeInfo},
};
use longhaul_linux::cgroup;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::OnceLock,
};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/initial_window.bpf.o"));

/// Reason why initial windows can't be set.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process's cgroup was not found, or could not be opened.
    #[error("no cgroup2 can be reached")]
    Cgroup(#[source] io::Error),
    /// The rights are missing, or a program above this cgroup excludes others.
    #[error(
        "{0} needs CAP_BPF and CAP_NET_ADMIN (run it as root of the machine), and no cgroup above with an exclusive program"
    )]
    Denied(&'static str, #[source] libbpf_rs::Error),
    /// The kernel is older than Linux 5.10 or was built without it.
    #[error("{0} needs Linux 5.10 with CONFIG_CGROUP_BPF")]
    Kernel(&'static str, #[source] libbpf_rs::Error),
}

impl Error {
    fn during(step: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Self {
        move |error| match error.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::Denied(step, error),
            _ => Self::Kernel(step, error),
        }
    }
}

/// The attached program. A process is in one cgroup, so one is enough.
static ATTACHED: OnceLock<Attached> = OnceLock::new();

#[derive(Debug)]
struct Attached {
    /// Map of the segments of each socket.
    windows: MapHandle,
    /// Detaches when it is closed.
    _link: Link,
}

/// Attaches the program to this process's current cgroup, until the process ends. Does nothing if it is attached.
///
/// # Errors
/// See [`Error`].
pub fn attach() -> Result<(), Error> {
    if ATTACHED.get().is_none() {
        // Of two attached concurrently, one is dropped, which detaches it.
        let _ = ATTACHED.set(Attached::new()?);
    }
    Ok(())
}

/// Checks that the kernel accepts the program: attaches it to this process's cgroup briefly.
pub(crate) fn check_permission() -> Result<(), Error> {
    Attached::new().map(drop)
}

/// Sets the initial window of this socket's connections, in segments ([`super::RANGE`]): of its own, if set before connect(2),
/// and of those that it accepts later. Costs one system call.
///
/// # Errors
/// Those of [`attach`], or of bpf(2).
pub fn set(socket: &impl AsFd, segments: u32) -> io::Result<()> {
    set_start(socket, Some(segments), false)
}

/// Like [`set`], with `None` for the kernel's default. Also sets whether the socket's own connection offers ECN
/// (RFC 3168 §6.1.1) regardless of `net.ipv4.tcp_ecn`, which still applies to accepted connections.
///
/// # Errors
/// Those of [`attach`], or of bpf(2).
pub fn set_start(socket: &impl AsFd, segments: Option<u32>, offers_ecn: bool) -> io::Result<()> {
    const OFFERS_ECN: u32 = 1 << 31;
    attach().map_err(io::Error::other)?;
    let attached = ATTACHED.get().expect("attached right now");
    let value = segments.unwrap_or(0) | (OFFERS_ECN * u32::from(offers_ecn));
    let key = socket.as_fd().as_raw_fd().to_ne_bytes();
    let written = attached
        .windows
        .update(&key, &value.to_ne_bytes(), MapFlags::ANY);
    written.map_err(io::Error::other)
}

/// Returns the number of programs, of any process, attached to socket events of the cgroup at this directory. It is 0
/// without CAP_SYS_ADMIN.
///
/// # Errors
/// If the directory cannot be read.
pub fn attached_to(cgroup: impl AsFd) -> io::Result<usize> {
    let id = rustix::fs::fstat(cgroup)?.st_ino;
    let is_here = |link: &LinkTypeInfo| {
        matches!(link, LinkTypeInfo::Cgroup(info)
            if info.cgroup_id == id && matches!(info.attach_type, ProgramAttachType::CgroupSockOps))
    };
    Ok(LinkInfoIter::default()
        .filter(|link| is_here(&link.info))
        .count())
}

impl Attached {
    fn new() -> Result<Self, Error> {
        let cgroup = cgroup::own().map_err(Error::Cgroup)?;
        crate::feature_probe::capture_warnings(|| Self::serve(&cgroup))
    }

    fn serve(cgroup: &OwnedFd) -> Result<Self, Error> {
        let load = || ObjectBuilder::default().open_memory(OBJECT)?.load();
        let object = load().map_err(Error::during("a program for initial windows"))?;
        let program = object.progs_mut().next().expect("it has one program");
        let link = program
            .attach_cgroup(cgroup.as_raw_fd())
            .map_err(Error::during("a program at the cgroup"))?;
        let map = object.maps().next().expect("it has one map");
        let windows = MapHandle::try_from(&map);
        Ok(Self {
            windows: windows.map_err(Error::during("storage beside sockets"))?,
            _link: link,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{attach, set};
    use longhaul_linux::{
        netns::Netns,
        socket::{Options, listen, outgoing},
        sysctl,
        tcp_info::TcpInfo,
    };
    use longhaul_testnet::namespace::Namespace;
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    /// Runs in a network namespace with the kernel's defaults, where idle time reduces a window.
    /// Skipped in a user namespace, where BPF is not allowed.
    fn alone(work: impl FnOnce() + Send) {
        let missing = attach().err().map(|error| error.to_string());
        if !longhaul_testprograms::skip::require_privileged(
            missing.is_none(),
            missing.unwrap_or_default(),
        ) {
            return;
        }
        let inside = || {
            sysctl::write_here("net.ipv4.tcp_slow_start_after_idle", "1")?;
            work();
            Ok(())
        };
        Namespace::new("window").run(inside).unwrap();
    }

    /// Options with reno: other controls, such as bbr, keep their window when idle.
    fn reno() -> Options {
        Options {
            congestion_control: Some("reno".into()),
            ..Options::default()
        }
    }

    fn listener(window: Option<u32>) -> TcpListener {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = listen(any, 1, &reno()).unwrap().remove(0);
        listener.set_nonblocking(false).unwrap();
        if let Some(segments) = window {
            set(&listener, segments).unwrap();
        }
        listener
    }

    fn pair(window: Option<u32>, server: &TcpListener) -> [TcpStream; 2] {
        let to = server.local_addr().unwrap();
        let socket: socket2::Socket = outgoing(to, None, &reno()).unwrap().into();
        if let Some(segments) = window {
            set(&socket, segments).unwrap();
        }
        socket.set_nonblocking(false).unwrap();
        socket.connect(&to.into()).unwrap();
        [socket.into(), server.accept().unwrap().0]
    }

    fn windows(pair: &[TcpStream; 2]) -> [u32; 2] {
        pair.each_ref()
            .map(|stream| TcpInfo::of(stream).unwrap().cwnd_segments)
    }

    #[test]
    fn marked_sockets_begin_with_their_window() {
        alone(|| {
            let marked = listener(Some(33));
            let unmarked = listener(None);
            assert_eq!(windows(&pair(Some(64), &marked)), [64, 33]);
            assert_eq!(windows(&pair(None, &marked)), [10, 33]);
            assert_eq!(windows(&pair(Some(1), &unmarked)), [1, 10]);
            assert_eq!(windows(&pair(None, &unmarked)), [10, 10]);
        });
    }

    /// Long enough for the kernel to reduce 512 to 10 by halves: the time-out is 0.2 s here.
    const SILENCE: Duration = Duration::from_millis(1800);

    #[test]
    fn idle_time_before_the_first_data_keeps_the_window() {
        alone(|| {
            let marked = listener(Some(512));
            let mut pair = pair(Some(512), &marked);
            std::thread::sleep(SILENCE);
            for end in 0..2 {
                pair[end].write_all(b"x").unwrap();
                pair[1 - end].read_exact(&mut [0]).unwrap();
            }
            let windows = windows(&pair);
            assert!(windows.iter().all(|w| *w >= 512), "{windows:?}");
            // Later idle time reduces the window as usual.
            std::thread::sleep(SILENCE);
            pair[0].write_all(b"x").unwrap();
            pair[1].read_exact(&mut [0]).unwrap();
            let later = TcpInfo::of(&pair[0]).unwrap().cwnd_segments;
            assert!(later < 64, "{later}");
        });
    }

    #[test]
    fn applies_in_other_namespaces_of_the_process() {
        let here = Netns::current().unwrap();
        alone(move || {
            let marked = listener(Some(20));
            assert_eq!(windows(&pair(None, &marked)), [10, 20]);
            let again = || Ok(windows(&pair(Some(21), &listener(Some(22)))));
            assert_eq!(here.run(again).unwrap(), [21, 22]);
        });
    }
}
