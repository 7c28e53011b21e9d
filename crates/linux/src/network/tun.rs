// SPDX-License-Identifier: MIT OR Apache-2.0
//! TUN devices with vnet_hdr, which read and write super-packets.
//!
//! Source: `Documentation/networking/tuntap.rst`, `drivers/net/tun.c`.

use longhaul_packet::vnet;
use rustix::io::writev;
use std::{
    fs::{File, OpenOptions},
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    os::unix::fs::OpenOptionsExt,
};

/// The largest packet that a TUN device returns, without its vnet header, in bytes.
pub const PACKET_MAX: usize = 65_535;

/// Offloads that super-packets need: checksum, and TSO for IPv4 and IPv6, ECN included.
const OFFLOADS: u32 = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
/// UDP segmentation offload, kernel ≥ 6.2: `TUN_F_USO4 | TUN_F_USO6` (`include/uapi/linux/if_tun.h`).
const USO: u32 = 0x20 | 0x40;
/// Request that makes the vnet headers little-endian: `_IOW('T', 220, int)`.
const TUNSETVNETLE: libc::c_ulong = 0x4004_54dc;

/// An open TUN device that is not persistent. The kernel removes the interface when the last clone is dropped, also
/// when the process is killed.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    /// Whether the device passes UDP super-packets.
    pub uso: bool,
}

impl Tun {
    /// Creates the interface `name` in the calling thread's network namespace.
    ///
    /// With `offload` the device reads and writes super-packets of up to 64 KiB. Without it, no packet exceeds the MTU.
    pub fn create(name: &str, offload: bool) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")?;
        attach(&file, name)?;
        let mut uso = false;
        if offload {
            uso = set_offload(&file, OFFLOADS | USO).is_ok();
            if !uso {
                set_offload(&file, OFFLOADS)?;
            }
        }
        Ok(Self {
            file,
            name: name.to_owned(),
            uso,
        })
    }

    /// Returns the interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Duplicates the handle, for the thread of the other direction.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            name: self.name.clone(),
            uso: self.uso,
        })
    }

    /// Reads a vnet header and its packet into `buffer`, and returns the length of both. Bytes that do not fit are
    /// lost. The error is `WouldBlock` if no packet is queued.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    /// Writes one packet: `head` begins with the vnet header, `payload` may be empty.
    pub fn write(&self, head: &[u8], payload: &[u8]) -> io::Result<()> {
        writev(&self.file, &[IoSlice::new(head), IoSlice::new(payload)])?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Creates the interface, and sets the form of its vnet headers.
fn attach(file: &File, name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("interface name {name:?} must have 1 to 15 bytes"),
        ));
    }
    // SAFETY: an all-zero ifreq is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) })?;
    let size = vnet::LEN as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &size) })?;
    let little_endian: libc::c_int = 1;
    // SAFETY: TUNSETVNETLE reads one int.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETVNETLE, &little_endian) })
}

fn set_offload(file: &File, flags: u32) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its flags by value.
    check(unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(flags),
        )
    })
}

/// Converts the result of an ioctl(2) to a `Result`.
fn check(result: libc::c_int) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
