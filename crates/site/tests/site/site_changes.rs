// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests whose file, locks or directory change while they are in progress, and exports in a directory that other
//! users may write.

use crate::site_process::{
    Client, Home, SiteProcess,
    web::{Web, curl, lock_body, names, wait_until},
};
use longhaul_testprograms::skip;
use rustix::{
    fs::{
        FlockOperation, XattrFlags, flock, getxattr,
        inotify::{self, CreateFlags, ReadFlags, WatchFlags},
        setxattr,
    },
    process::Signal,
};
use std::{
    fs::{self, File, Permissions},
    io::{Read, Write},
    net::TcpStream,
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::Path,
    time::Duration,
};

/// PUT of "abcd", half of which has been sent.
struct Upload(TcpStream);

impl Upload {
    fn begin(web: &Web, path: &str, headers: &str) -> Self {
        let directory = web.data(path.rsplit_once('/').unwrap().0);
        let under_way = || {
            let is_own = |name: &String| name.ends_with(".put");
            names(&directory)
                .into_iter()
                .filter(is_own)
                .collect::<Vec<_>>()
        };
        let before = under_way();
        let headers = format!("Content-Length: 4\r\nConnection: close\r\n{headers}");
        let stream = web.send(&format!("PUT /data/{path}"), &headers, "ab");
        wait_until(|| under_way().len() > before.len());
        Self(stream)
    }

    /// Sends the other half, and returns the status.
    fn end(mut self) -> u16 {
        self.0.write_all(b"cd").unwrap();
        let mut message = String::new();
        self.0.read_to_string(&mut message).unwrap();
        message.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

fn web_with_files() -> Web {
    let web = Web::new();
    fs::create_dir(web.data("dir")).unwrap();
    fs::write(web.data("dir/file"), "old").unwrap();
    web
}

#[test]
fn one_of_two_conditional_uploads_succeeds() {
    let web = web_with_files();
    let tag = || web.field("etag", "/data/dir/file");
    let first_tag = tag();
    for (path, header, first) in [
        ("dir/new", "If-None-Match: *\r\n", 201),
        ("dir/file", &*format!("If-Match: {first_tag}\r\n"), 204),
        ("dir/file", &*format!("If: ([{first_tag}])\r\n"), 204),
    ] {
        fs::write(web.data("dir/again"), "old").unwrap();
        let header = header.replace(&first_tag, &tag());
        let uploads = [(); 2].map(|()| Upload::begin(&web, path, &header));
        assert_eq!(uploads.map(Upload::end), [first, 412], "{header}");
        assert_eq!(fs::read(web.data(path)).unwrap(), b"abcd");
    }
    let upload = Upload::begin(&web, "dir/moved", "If-None-Match: *\r\n");
    let to = ["-X", "MOVE", "-H", "Destination: /data/dir/moved"];
    assert_eq!(web.status(&to, "/data/dir/again"), 201);
    assert_eq!(upload.end(), 412);
    assert_eq!(fs::read(web.data("dir/moved")).unwrap(), b"old");
    // A program that does not know the site.
    let upload = Upload::begin(&web, "dir/theirs", "If-None-Match: *\r\n");
    symlink("file", web.data("dir/theirs")).unwrap();
    assert_eq!(upload.end(), 412);
    assert!(web.data("dir/theirs").is_symlink());
    let own = |name: &String| name.ends_with(".put");
    assert!(!names(&web.data("dir")).iter().any(own));
}

#[test]
fn upload_does_not_replace_a_file_locked_meanwhile() {
    let web = web_with_files();
    let body = lock_body("exclusive", "me");
    for (path, status) in [("dir/file", 200), ("dir/new", 201)] {
        let upload = Upload::begin(&web, path, "");
        let lock = ["-X", "LOCK", "-d", &body];
        assert_eq!(web.status(&lock, &format!("/data/{path}")), status);
        let before = fs::read(web.data(path)).unwrap();
        assert_eq!(upload.end(), 423);
        assert_eq!(fs::read(web.data(path)).unwrap(), before);
    }
    assert_eq!(names(&web.data("dir")), ["file", "new"]);
}

#[test]
fn keeps_attributes_set_during_an_upload() {
    let web = web_with_files();
    let file = web.data("dir/file");
    let upload = Upload::begin(&web, "dir/file", "");
    let patch = "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><x xmlns='urn:x'>kept</x></D:prop></D:set>\
                 </D:propertyupdate>";
    assert_eq!(
        web.status(&["-X", "PROPPATCH", "-d", patch], "/data/dir/file"),
        207
    );
    setxattr(&file, "user.theirs", b"1", XattrFlags::empty()).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(upload.end(), 204);
    let meta = fs::metadata(&file).unwrap();
    assert_eq!((meta.len(), meta.permissions().mode() & 0o7777), (4, 0o640));
    assert_eq!(attribute(&file, "user.theirs"), b"1");
    let message = web.curl(&["-X", "PROPFIND", "-H", "Depth: 0"], "/data/dir/file");
    assert!(String::from_utf8(message.1).unwrap().contains("kept"));
}

fn attribute(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 1024];
    let len = getxattr(path, name, &mut value[..]).unwrap_or(0);
    value.truncate(len);
    value
}

const ACCESS_LIST: &str = "system.posix_acl_access";

/// Access list in the format of acl(5): the owner and user 0 may read and write, the group and others nothing. The
/// mask is in the place of the group's mode bits.
fn access_list() -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, may, who) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 6, 0),
        (4, 0, u32::MAX),
        (16, 6, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(may.to_le_bytes());
        list.extend(who.to_le_bytes());
    }
    list
}

#[test]
fn copies_access_control_lists() {
    let web = web_with_files();
    let list = access_list();
    for name in ["dir/file", "dir"] {
        setxattr(web.data(name), ACCESS_LIST, &list, XattrFlags::empty()).unwrap();
    }
    assert_eq!(
        web.status(&["-X", "PUT", "-d", "new"], "/data/dir/file"),
        204
    );
    let copy = ["-X", "COPY", "-H", "Destination: /data/copied"];
    assert_eq!(web.status(&copy, "/data/dir"), 201);
    for name in ["dir/file", "copied/file"] {
        assert_eq!(attribute(&web.data(name), ACCESS_LIST), list, "{name}");
        let mode = web.data(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o660, "{name}");
    }
    assert_eq!(
        attribute(&web.data("copied"), ACCESS_LIST)[4..8],
        [1, 0, 7, 0]
    );
    // A file without a list gets none, whatever the default list of its directory.
    fs::write(web.data("dir/plain"), "x").unwrap();
    setxattr(
        web.data("dir"),
        "system.posix_acl_default",
        &list,
        XattrFlags::empty(),
    )
    .unwrap();
    fs::set_permissions(web.data("dir/plain"), Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        web.status(&["-X", "PUT", "-d", "new"], "/data/dir/plain"),
        204
    );
    assert!(attribute(&web.data("dir/plain"), ACCESS_LIST).is_empty());
}

/// On NFS a lock needs a file that is open for reading or writing. An upload is open for both.
#[test]
fn opens_uploads_for_reading_and_writing() {
    let web = web_with_files();
    let upload = Upload::begin(&web, "dir/new", "");
    let open = web.site.http_processes().into_iter().flat_map(|pid| {
        let opened = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        opened.map(move |entry| (pid, entry.unwrap().path()))
    });
    let flags = open.filter_map(|(pid, path)| {
        let target = fs::read_link(&path).ok()?;
        let is_put = target.to_string_lossy().ends_with(".put");
        let number = path.file_name()?.to_str()?.to_owned();
        let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
        is_put.then(|| info.lines().nth(1).unwrap().chars().last().unwrap())
    });
    assert_eq!(flags.collect::<String>(), "2", "O_RDWR");
    assert_eq!(upload.end(), 201);
}

/// If the process ended in between, the only copy would have an internal name.
#[test]
fn moves_no_file_to_an_internal_name() {
    let web = web_with_files();
    fs::write(web.data("moved"), "moved").unwrap();
    let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
    for directory in [web.home.data(), web.data("dir")] {
        inotify::add_watch(&watch, directory, WatchFlags::MOVED_TO | WatchFlags::CREATE).unwrap();
    }
    let onto = ["-X", "MOVE", "-H", "Destination: /data/dir/file"];
    assert_eq!(web.status(&onto, "/data/moved"), 204);
    assert_eq!(fs::read(web.data("dir/file")).unwrap(), b"moved");
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&watch, &mut buffer);
    let mut made = Vec::new();
    while let Ok(event) = events.next() {
        assert!(!event.events().contains(ReadFlags::QUEUE_OVERFLOW));
        made.extend(
            event
                .file_name()
                .map(|name| name.to_str().unwrap().to_owned()),
        );
    }
    assert_eq!(made, ["file"]);
}

#[test]
fn finishes_a_copy_at_shutdown() {
    let web = web_with_files();
    for number in 0..30 {
        fs::write(web.data(&format!("dir/{number}")), "x").unwrap();
    }
    let bearer = format!("Authorization: Bearer {}", web.token);
    let url = web.url("/data/dir");
    let asked = std::thread::spawn(move || {
        let to = [
            "-X",
            "COPY",
            "-H",
            "Destination: /data/copied",
            "-H",
            &bearer,
        ];
        curl_ignoring_errors(&to, &url);
    });
    wait_until(|| web.data("copied").exists());
    let Web { home, site, .. } = web;
    assert!(site.end(Signal::TERM).success());
    asked.join().unwrap();
    assert_eq!(names(&home.data().join("copied")).len(), 31);
}

fn curl_ignoring_errors(arguments: &[&str], url: &str) {
    let mut command = std::process::Command::new("curl");
    command.arg("--silent").args(arguments).arg(url);
    command.output().unwrap();
}

/// Time for which another process holds a claim. A request that does not wait responds far sooner.
const CLAIM_HELD: Duration = Duration::from_millis(700);

/// Each listener is a process of its own.
#[test]
fn waits_for_claims_of_other_processes() {
    let web = web_with_files();
    let claims = Path::new(&web.home.state()).join("claims-other");
    let place = web.data("dir").canonicalize().unwrap();
    let held = format!("[{{\"path\":\"{}\",\"read\":false}}]", place.display());
    let body = lock_body("shared", "me");
    for (arguments, path, status) in [
        (
            vec!["-X", "LOCK", "-d", &body, "-H", "Timeout: Second-1"],
            "/data/dir/file",
            200,
        ),
        (
            vec!["-X", "COPY", "-H", "Destination: /data/dir/new"],
            "/data/dir/file",
            201,
        ),
        (
            vec!["-X", "MOVE", "-H", "Destination: /data/away"],
            "/data/dir/new",
            201,
        ),
        (vec!["-X", "DELETE"], "/data/away", 204),
    ] {
        fs::write(&claims, &held).unwrap();
        let file = File::options()
            .read(true)
            .write(true)
            .open(&claims)
            .unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let (url, bearer) = (
            web.url(path),
            format!("Authorization: Bearer {}", web.token),
        );
        let request = [&["-H", &bearer][..], &arguments].concat();
        std::thread::scope(|scope| {
            let response = scope.spawn(|| curl(&request, &url).0);
            if path.starts_with("/data/dir") {
                std::thread::sleep(CLAIM_HELD);
                assert!(!response.is_finished(), "{arguments:?} does not wait");
                drop(file);
                assert_eq!(response.join().unwrap(), status, "{arguments:?}");
            } else {
                assert_eq!(response.join().unwrap(), status, "{arguments:?}");
                drop(file);
            }
        });
    }
    // The lock expires.
    wait_until(|| web.status(&["-X", "DELETE"], "/data/dir") == 204);
    assert!(!claims.exists(), "nobody has it any more");
}

/// Leftovers of a COPY whose process has ended belong to no request.
#[test]
fn removes_directories_with_abandoned_copies() {
    let web = web_with_files();
    fs::create_dir_all(web.data("dir/.longhaul-0123456789abcdef.put/deep")).unwrap();
    fs::write(web.data("dir/.longhaul-0123456789abcdef.put/deep/x"), "x").unwrap();
    assert_eq!(web.status(&["-X", "DELETE"], "/data/dir"), 204);
    assert!(!web.data("dir").exists());
    // The old contents that a MOVE or COPY has put aside may be the only copy.
    fs::create_dir_all(web.data("dir/.longhaul-0123456789abcdef.replaced")).unwrap();
    assert_eq!(web.status(&["-X", "DELETE"], "/data/dir"), 423);
}

/// `inner` is in the export `data`, and is accessed through both.
fn nested_exports() -> Web {
    let home = Home::new();
    fs::create_dir(home.data().join("inner")).unwrap();
    fs::write(home.data().join("inner/file"), "x").unwrap();
    let token = home.token(&["new", "me"]);
    let inner = format!("inner={}", home.data().join("inner").display());
    let site = home.site(&["--export", &inner, "--http", "127.0.0.1:0"]);
    Web { home, site, token }
}

#[test]
fn follows_no_link_in_place_of_an_export() {
    let web = nested_exports();
    assert_eq!(web.status(&[], "/inner/file"), 200);
    fs::rename(web.data("inner"), web.data("away")).unwrap();
    symlink(web.home.state(), web.data("inner")).unwrap();
    for path in ["/inner/identity.pem", "/inner/", "/inner/file"] {
        assert_eq!(web.status(&[], path), 503, "{path}");
    }
    let client = Client::with_tokens(&[(&web.site, &web.token)]);
    let at = format!("longhaul://{}/inner/identity.pem", web.site.address);
    let folder = tempfile::tempdir().unwrap();
    let message = client.copy_fails(2, &[&at, folder.path().to_str().unwrap()]);
    assert!(message.contains("inner"), "{message}");
    assert!(names(folder.path()).is_empty());
    fs::remove_file(web.data("inner")).unwrap();
    fs::rename(web.data("away"), web.data("inner")).unwrap();
    assert_eq!(web.status(&[], "/inner/file"), 200);
}

/// With `--delete`, a client that may write the outer export could otherwise remove the inner one and put something
/// else in its place.
#[test]
fn copy_removes_no_export() {
    let web = nested_exports();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("new"), "x").unwrap();
    let client = Client::with_tokens(&[(&web.site, &web.token)]);
    let from = format!("{}/", folder.path().display());
    let delete = ["--delete", "--max-delete", "100%"];
    client.copy_fails(1, &[&delete[..], &[&from, &web.site.at("")]].concat());
    assert!(web.data("inner").is_dir() && web.data("new").exists());
    symlink("/etc", folder.path().join("inner")).unwrap();
    client.copy_fails(1, &[&from, &web.site.at("")]);
    assert!(web.data("inner").is_dir() && !web.data("inner").is_symlink());
    assert_eq!(web.status(&[], "/inner/"), 200);
}

#[test]
fn refuses_an_export_through_a_link_in_another() {
    let home = Home::new();
    symlink("/usr", home.data().join("link")).unwrap();
    for name in ["link", "link/share"] {
        let inner = format!("inner={}", home.data().join(name).display());
        let output = home.command(&["--export", &inner]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(
            message.contains("is a symbolic link in the export data"),
            "{message}"
        );
    }
}

const NOBODY: u32 = 65534;

/// Starts a site of an unprivileged user.
fn unprivileged() -> Option<Web> {
    if !skip::require_privileged(!skip::is_in_user_namespace(), "another user") {
        return None;
    }
    let home = Home::new();
    let token = home.token(&["new", "me"]);
    let top = home.data().parent().unwrap().to_owned();
    let mut all = vec![top];
    while let Some(path) = all.pop() {
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        if path.is_dir() {
            all.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    let mut command = home.command(&["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.uid(NOBODY).gid(NOBODY);
    let site = SiteProcess::spawn(command);
    Some(Web { home, site, token })
}

#[test]
fn uploads_into_an_unreadable_directory() {
    let Some(web) = unprivileged() else {
        return;
    };
    fs::create_dir(web.data("drop")).unwrap();
    chown(web.data("drop"), Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(web.data("drop"), Permissions::from_mode(0o300)).unwrap();
    for status in [201, 204] {
        let put = ["-X", "PUT", "-d", "x"];
        assert_eq!(web.status(&put, "/data/drop/file"), status);
    }
    assert_eq!(names(&web.data("drop")), ["file"]);
}

#[test]
fn keeps_a_file_with_unreadable_attributes() {
    let Some(web) = unprivileged() else {
        return;
    };
    let file = web.data("file");
    for (attribute, status) in [(Some("user.kept"), 403), (None, 204)] {
        fs::write(&file, "old").unwrap();
        let mode = |mode| fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        mode(0o600);
        if let Some(name) = attribute {
            setxattr(&file, name, b"1", XattrFlags::empty()).unwrap();
        }
        mode(0o200);
        let put = ["-X", "PUT", "-d", "new"];
        assert_eq!(web.status(&put, "/data/file"), status);
        let wanted: &[u8] = if status == 403 { b"old" } else { b"new" };
        assert_eq!(fs::read(&file).unwrap(), wanted);
        fs::remove_file(&file).unwrap();
    }
}
