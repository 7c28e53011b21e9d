// SPDX-License-Identifier: MIT OR Apache-2.0
//! An export on a file system that does not respond, as NFS may do, blocks no other export.

use crate::site_process::{
    Home,
    web::{curl, wait_until},
};
use longhaul_testprograms::skip;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    mount::{MountFlags, UnmountFlags, mount, unmount},
};
use std::{
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Mount whose server never responds. When it is dropped, all pending accesses fail.
struct Hang {
    at: PathBuf,
    _server: File,
}

impl Hang {
    fn new(at: PathBuf) -> Self {
        let server = File::options()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .unwrap();
        // The site must not hold it open.
        fcntl_setfd(&server, FdFlags::CLOEXEC).unwrap();
        let fd = server.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let options = std::ffi::CString::new(options).unwrap();
        mount("none", &at, "fuse", MountFlags::empty(), &*options).unwrap();
        Self {
            at,
            _server: server,
        }
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

#[test]
fn hanging_export_blocks_no_other() {
    if !skip::require(Path::new("/dev/fuse").exists(), "/dev/fuse") {
        return;
    }
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    fs::write(home.data().join("file"), "x").unwrap();
    let at = home.data().parent().unwrap().join("hang");
    fs::create_dir(&at).unwrap();
    let export = format!("hang={}", at.display());
    let site = home.site(&["--http", "127.0.0.1:0", "--export", &export]);
    let url = site.http.clone().unwrap();
    let bearer = format!("Authorization: Bearer {token}");
    let send_request = |method: &str, path: &str, body: &str| {
        let arguments = [
            "-H",
            &bearer,
            "-H",
            "Depth: 1",
            "-X",
            method,
            "--data-binary",
            body,
        ];
        curl(&arguments, &format!("{url}{path}"))
    };
    assert_eq!(send_request("GET", "/hang/", "").0, 200);
    let hang = Hang::new(at);
    let set = "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><x>1</x></D:prop></D:set></D:propertyupdate>";
    let lock = "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>";
    thread::scope(|scope| {
        let waiting: Vec<_> = ["GET", "PUT", "LOCK", "PROPPATCH", "PROPFIND", "DELETE"]
            .repeat(8)
            .into_iter()
            .map(|method| {
                let body = match method {
                    "LOCK" => lock,
                    "PROPPATCH" => set,
                    _ => "",
                };
                scope.spawn(move || send_request(method, "/hang/file", body).0)
            })
            .collect();
        thread::sleep(Duration::from_secs(2));
        let begin = Instant::now();
        assert_eq!(send_request("GET", "/data/file", ""), (200, b"x".to_vec()));
        assert_eq!(send_request("PROPPATCH", "/data/file", set).0, 207);
        let deep = ["-H", &bearer, "-X", "LOCK", "--data-binary", lock];
        assert_eq!(curl(&deep, &format!("{url}/data/locked")).0, 201);
        assert_eq!(send_request("PUT", "/data/new", "x").0, 201);
        home.token(&["new", "other"]);
        home.token(&["remove", "other"]);
        assert!(begin.elapsed() < Duration::from_secs(5));
        let (status, all) = send_request("PROPFIND", "/", "");
        let all = String::from_utf8(all).unwrap();
        assert!(
            all.contains("/data/<") && all.contains("/hang/<"),
            "{status}: {all}"
        );
        assert!(begin.elapsed() < Duration::from_secs(15));
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), 503);
        }
        assert!(begin.elapsed() < Duration::from_secs(40));
        drop(hang);
    });
    // The file system responds again.
    wait_until(|| send_request("PROPFIND", "/hang/", "").0 == 207);
}
