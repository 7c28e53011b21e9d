// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much a TCP connection may send before its first acknowledgement, socket by socket.
//!
//! Linux has no socket option for it: it is a route's `initcwnd`, or what a BPF program says when
//! the connection is established. Such a program serves this process's cgroup, but only sockets that
//! have a number put down beside them ([`set`]), so that other processes' are left alone. The kernel
//! takes it away when this process ends, however that comes about.
//!
//! A connection that stays silent at first loses its window again, half of it each retransmission
//! time-out, down to the route's `initcwnd` (RFC 2861 and `tcp_cwnd_restart` in
//! net/ipv4/tcp_output.c, at its first data). So the program also asks to be called for each segment
//! until data has left, and sets the window anew right before the first of it does. Later silences
//! are the kernel's matter: it lets nobody set a window once data has been sent.

use crate::{
    bpf::{
        instruction::{
            Instruction, Line, Register::*, Width::*, and, assemble, call, copy, exit, jump,
            jump_if, jump_unless, load, map, or, set as put,
        },
        syscall,
    },
    cgroup,
};
use std::{
    io,
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

/// Segments that can be asked for. The kernel's own choice is 10 (RFC 6928).
pub const RANGE: RangeInclusive<u32> = 1..=1024;

/// Why initial windows can't be set here.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process's cgroup was not found, or could not be opened.
    #[error("no cgroup2 can be reached")]
    Cgroup(#[source] io::Error),
    /// The rights are missing, or a program above this cgroup excludes others.
    #[error("{0} needs CAP_BPF and CAP_NET_ADMIN, and no cgroup above with an exclusive program")]
    Denied(&'static str, #[source] io::Error),
    /// The kernel is older than Linux 5.10 or was built without it.
    #[error("{0} needs Linux 5.10 with CONFIG_CGROUP_BPF")]
    Kernel(&'static str, #[source] io::Error),
}

impl Error {
    fn during(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(step, error),
            _ => Self::Kernel(step, error),
        }
    }
}

/// The program at work. A process is in one cgroup, so one is enough.
static ATTACHED: OnceLock<Attached> = OnceLock::new();

#[derive(Debug)]
struct Attached {
    /// Segments by socket.
    windows: OwnedFd,
    /// Detaches when it is closed.
    _link: OwnedFd,
}

/// Puts the program to work for this process's cgroup as it is now, until the process ends. Does
/// nothing where that has been done.
pub fn attach() -> Result<(), Error> {
    if ATTACHED.get().is_none() {
        // Of two that are made at once, one is dropped, which takes it away.
        let _ = ATTACHED.set(Attached::new()?);
    }
    Ok(())
}

/// Lets connections of this socket begin with a window of so many segments: its own, if it is set
/// before connect(2), and those that it accepts later. It costs one system call.
pub fn set(socket: &impl AsFd, segments: u32) -> io::Result<()> {
    attach().map_err(io::Error::other)?;
    let attached = ATTACHED.get().expect("attached right now");
    syscall::store(attached.windows.as_fd(), socket.as_fd(), segments)
}

/// How many programs of any process are attached to the cgroup at this directory for its sockets'
/// events; needs CAP_NET_ADMIN.
pub fn attached_to(cgroup: impl AsFd) -> io::Result<usize> {
    syscall::programs_of(cgroup.as_fd())
}

impl Attached {
    fn new() -> Result<Self, Error> {
        let cgroup = cgroup::own().map_err(Error::Cgroup)?;
        let windows = syscall::socket_storage(*b"longhaul_window\0")
            .map_err(Error::during("storage beside sockets"))?;
        let code = program(windows.as_fd());
        let program = syscall::sock_ops_program(*b"longhaul_window\0", &code)
            .map_err(Error::during("a program for initial windows"))?;
        let link = syscall::link(program.as_fd(), cgroup.as_fd())
            .map_err(Error::during("a program at the cgroup"))?;
        Ok(Self {
            windows,
            _link: link,
        })
    }
}

/// Offsets in `struct bpf_sock_ops` (include/uapi/linux/bpf.h).
const OP: i16 = 0;
const CALLBACK_FLAGS: i16 = 84;
const DATA_SEGS_OUT: i16 = 152;
const SK: i16 = 184;

/// Events: BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB and its like.
const CONNECTED: i32 = 4;
const ACCEPTED: i32 = 5;
/// A segment is about to leave, and its options are being measured.
const SEGMENT_LEAVES: i32 = 14;
/// BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG: asks for the latter.
const ASK_FOR_SEGMENTS: i32 = 1 << 6;

/// Helpers (include/uapi/linux/bpf.h, `___BPF_FUNC_MAPPER`).
const SETSOCKOPT: i32 = 49;
const SOCK_OPS_CB_FLAGS_SET: i32 = 59;
const SK_STORAGE_GET: i32 = 107;

/// TCP_BPF_IW. Fails once data has been sent (net/core/filter.c, `bpf_sol_tcp_setsockopt`), as in an
/// answer to TCP Fast Open: then the window stays what it is.
const TCP_BPF_IW: i32 = 1001;

fn program(windows: BorrowedFd<'_>) -> Vec<Instruction> {
    assemble(&[
        // Which event?
        copy(R6, R1),
        load(U32, R2, R6, OP),
        jump_if(R2, CONNECTED, "established"),
        jump_if(R2, ACCEPTED, "established"),
        jump_unless(R2, SEGMENT_LEAVES, "done"),
        // A segment of a connection that has sent data before: don't ask any more.
        load(U32, R2, R6, DATA_SEGS_OUT),
        jump_if(R2, 0, "window"),
        load(U32, R2, R6, CALLBACK_FLAGS),
        and(R2, !ASK_FOR_SEGMENTS),
        copy(R1, R6),
        call(SOCK_OPS_CB_FLAGS_SET),
        jump("done"),
        // What is put down beside the socket?
        Line::Label("established"),
        Line::Label("window"),
        load(U64, R2, R6, SK),
        jump_if(R2, 0, "done"),
        map(R1, windows),
        put(R3, 0),
        put(R4, 0),
        call(SK_STORAGE_GET),
        jump_if(R0, 0, "done"),
        // setsockopt(context, IPPROTO_TCP, TCP_BPF_IW, number, 4)
        copy(R1, R6),
        put(R2, libc::IPPROTO_TCP),
        put(R3, TCP_BPF_IW),
        copy(R4, R0),
        put(R5, 4),
        call(SETSOCKOPT),
        // (Asked for already when a segment is what this call is about.)
        load(U32, R2, R6, CALLBACK_FLAGS),
        or(R2, ASK_FOR_SEGMENTS),
        copy(R1, R6),
        call(SOCK_OPS_CB_FLAGS_SET),
        Line::Label("done"),
        put(R0, 1),
        exit(),
    ])
}

#[cfg(test)]
mod tests {
    use super::attach;
    use crate::{
        netns::Netns,
        socket::{Options, listen, outgoing},
        tcp_info::TcpInfo,
    };
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        time::Duration,
    };

    /// A network namespace of its own, where the kernel's defaults hold and silence costs a window.
    /// Skipped in a user namespace, where nobody may use BPF.
    fn alone(work: impl FnOnce() + Send) {
        let missing = attach().err().map(|error| error.to_string());
        if !longhaul_testbed::skip::unless_confined(missing.is_none(), missing.unwrap_or_default())
        {
            return;
        }
        std::thread::scope(|scope| scope.spawn(|| isolated(work)).join()).unwrap();
    }

    fn isolated(work: impl FnOnce()) {
        use rustix::thread::{UnshareFlags, unshare_unsafe};
        // SAFETY: only this thread's network namespace changes.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET).unwrap() };
        let up = std::process::Command::new("ip")
            .args(["link", "set", "lo", "up"])
            .status();
        assert!(up.unwrap().success());
        crate::sysctl::write_here("net.ipv4.tcp_slow_start_after_idle", "1").unwrap();
        work();
    }

    /// With reno: controls of their own making, as bbr, lose nothing by silence.
    fn window(segments: u32) -> Options {
        Options {
            congestion_control: Some("reno".into()),
            initial_window: Some(segments),
            ..Options::default()
        }
    }

    fn listener(options: &Options) -> TcpListener {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = listen(any, 1, options).unwrap().remove(0);
        listener.set_nonblocking(false).unwrap();
        listener
    }

    fn pair(client: &Options, server: &TcpListener) -> [TcpStream; 2] {
        let to = server.local_addr().unwrap();
        let socket: socket2::Socket = outgoing(to, None, client).unwrap().into();
        socket.set_nonblocking(false).unwrap();
        socket.connect(&to.into()).unwrap();
        [socket.into(), server.accept().unwrap().0]
    }

    fn windows(pair: &[TcpStream; 2]) -> [u32; 2] {
        pair.each_ref()
            .map(|stream| TcpInfo::of(stream).unwrap().cwnd_segments)
    }

    #[test]
    fn marked_sockets_begin_with_their_window_and_others_with_ten() {
        alone(|| {
            let plain = Options::default();
            let marked = listener(&window(33));
            let unmarked = listener(&plain);
            assert_eq!(windows(&pair(&window(64), &marked)), [64, 33]);
            assert_eq!(windows(&pair(&plain, &marked)), [10, 33]);
            assert_eq!(windows(&pair(&window(1), &unmarked)), [1, 10]);
            assert_eq!(windows(&pair(&plain, &unmarked)), [10, 10]);
        });
    }

    /// Long enough that the kernel would have halved 512 to 10: the time-out is 0.2 s here.
    const SILENCE: Duration = Duration::from_millis(1800);

    #[test]
    fn silence_before_the_first_data_costs_nothing() {
        alone(|| {
            let marked = listener(&window(512));
            let mut pair = pair(&window(512), &marked);
            std::thread::sleep(SILENCE);
            for end in 0..2 {
                pair[end].write_all(b"x").unwrap();
                pair[1 - end].read_exact(&mut [0]).unwrap();
            }
            let windows = windows(&pair);
            assert!(windows.iter().all(|w| *w >= 512), "{windows:?}");
            // Later silence is what it was for the kernel.
            std::thread::sleep(SILENCE);
            pair[0].write_all(b"x").unwrap();
            pair[1].read_exact(&mut [0]).unwrap();
            let later = TcpInfo::of(&pair[0]).unwrap().cwnd_segments;
            assert!(later < 64, "{later}");
        });
    }

    #[test]
    fn other_namespaces_of_the_process_are_served_too() {
        let here = Netns::current().unwrap();
        alone(move || {
            let marked = listener(&window(20));
            assert_eq!(windows(&pair(&Options::default(), &marked)), [10, 20]);
            let again = || Ok(windows(&pair(&window(21), &listener(&window(22)))));
            assert_eq!(here.run(again).unwrap(), [21, 22]);
        });
    }
}
