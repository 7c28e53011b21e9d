// SPDX-License-Identifier: MIT OR Apache-2.0
//! Status page in a real browser.

use crate::{
    relay_admin::ANY,
    relay_admin::endpoint::{Answer, Endpoint},
};
use longhaul_testnet::relay_process::{Relay, accept, connect, listen_as_origin};
use longhaul_testprograms::{
    browser::axe,
    browser::frame,
    browser::{self, ColourScheme, RenderedPage},
};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

/// A hostile listener name. Names in the configuration file may contain any text.
const HOSTILE_NAME: &str = "<img src=x onerror=alert(1)>";

/// Starts a relay with the hostile listener name, which forwards to `to`.
fn start_relay(to: SocketAddr) -> Relay {
    let text = format!(
        "[[listener]]\nname = '{HOSTILE_NAME}'\nkind = 'forward'\naddress = '{ANY}'\n\
         destination = '{to}'\n[peer.tokyo]\naddress = '192.0.2.9'\n[admin]\naddress = '{ANY}'"
    );
    Relay::start_with_config(&text, 2)
}

fn assert_console_empty(shown: &RenderedPage) {
    assert!(shown.console.is_empty(), "{:#?}", shown.console);
}

/// Returns a relay with an entry in each table of its page, the origin's address, and both ends of the open connection.
fn relay_with_connection() -> (Relay, SocketAddr, [TcpStream; 2]) {
    let (listener, address) = listen_as_origin();
    let relay = start_relay(address);
    let mut client = connect(relay.address("forward"));
    let mut server = accept(&listener);
    client.write_all(&[0; 4000]).unwrap();
    server.read_exact(&mut [0; 4000]).unwrap();
    (relay, address, [client, server])
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn shows_listeners_peers_and_a_live_connection() {
    let (relay, address, [client, _server]) = relay_with_connection();
    let url = format!("http://{}/", relay.address("admin"));
    let Some(shown) = browser::open(&url, 1100) else {
        return;
    };
    for text in [
        ">serving<".to_owned(),
        client.local_addr().unwrap().to_string(),
        address.to_string(),
        relay.address("forward").to_string(),
        ">tokyo <small>192.0.2.9:5124<".to_owned(),
        "nothing more to send".to_owned(),
        "4 kB".to_owned(),
        "1 of 1".to_owned(),
        "<canvas".to_owned(),
        "&lt;img src=x onerror=alert(1)&gt;".to_owned(),
    ] {
        assert!(shown.dom.contains(&text), "no {text} in {}", shown.dom);
    }
    assert!(!shown.dom.contains("<img"), "{}", shown.dom);
    assert_console_empty(&shown);
}

/// Reports the label and layout of each card of a connection, once there is one.
const CARDS_SCRIPT: &str = "<script>
const reportCards = () => {
  const cells = [...document.querySelectorAll('#connections tbody tr > *')];
  if (cells.length === 0) return setTimeout(reportCards, 100);
  for (const cell of cells) report(`${cell.dataset.label ?? 'heading'} ${getComputedStyle(cell).display} ${cell.offsetWidth > 300}`);
  report(`drawn ${document.querySelectorAll('.plot canvas').length}`);
};
addEventListener('load', () => setTimeout(reportCards, 300));
</script>";

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn shows_cards_on_narrow_screen() {
    let (relay, _, _connection) = relay_with_connection();
    let scripts = [CARDS_SCRIPT, frame::OVERFLOW_SCRIPT].concat();
    let Some((mut reports, console)) =
        script_output(Endpoint::of(&relay), &scripts, 390, ColourScheme::Light)
    else {
        return;
    };
    reports.sort();
    let labels = [
        "Age",
        "Client",
        "Down",
        "To the client",
        "To the destination",
        "Up",
        "heading",
    ];
    let cards = labels.map(|label| format!("{label} block true"));
    let rest = ["drawn 1".to_owned(), "wide ".to_owned()];
    let mut wanted = [&cards[..], &rest[..]].concat();
    wanted.sort();
    assert_eq!(reports, wanted);
    assert!(console.is_empty(), "{console:#?}");
}

/// Reports, just before the accessibility check, the number of connections on the page.
const COUNT_SCRIPT: &str = "<script>
addEventListener('load', () => setTimeout(() => report(`${document.querySelectorAll('#connections tbody tr').length} connection to check`), 290));
</script>";

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn fits_wide_screen_and_passes_axe() {
    let (relay, _, _connection) = relay_with_connection();
    let endpoint = Endpoint::of(&relay);
    endpoint.until("/api/v1/connections", |list| {
        (list["total"] == 1).then_some(())
    });
    let Some((wide, _)) =
        script_output(endpoint, frame::OVERFLOW_SCRIPT, 1280, ColourScheme::Light)
    else {
        return;
    };
    assert_eq!(wide, ["wide "]);
    let Some(scripts) = axe::scripts() else {
        return;
    };
    let schemes = |width| [(width, ColourScheme::Light), (width, ColourScheme::Dark)];
    for (width, scheme) in [390, 1280].into_iter().flat_map(schemes) {
        let scripts = [COUNT_SCRIPT, &scripts].concat();
        let mut reports =
            script_output(endpoint, &scripts, width, scheme).expect("the browser that ran before");
        assert_eq!(reports.0.remove(0), "1 connection to check");
        let found = axe::violation_lines(reports);
        assert!(found.is_empty(), "{width} px, {scheme:?}: {found:#?}");
    }
}

/// Opens the page in a frame, with these scripts at its end and without its content security policy. Returns the output
/// of the scripts, and the lines on the console.
fn script_output(
    endpoint: Endpoint,
    scripts: &str,
    width: u32,
    scheme: ColourScheme,
) -> Option<(Vec<String>, Vec<String>)> {
    let scripts = scripts.to_owned();
    let server = modifying_proxy(endpoint, move |path, answer| {
        answer.body = match path {
            "/" => frame::with_scripts(&answer.body, &scripts),
            "/frame" => frame::framing_page("/", width),
            _ => return,
        };
        answer.head = "HTTP/1.1 200 OK\r\ncontent-type: text/html".to_owned();
    });
    frame::collect_output(&format!("http://{server}/frame"), width, scheme)
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn shows_streams_of_leg() {
    let (listener, address) = listen_as_origin();
    let far = Relay::start(&["--convert", ANY]);
    let peer = far.address("convert").to_string();
    let relay = crate::relay_admin::forwarding(address, &["--peer", &peer, "--streams", "3"]);
    let _client = connect(relay.address("forward"));
    let _server = accept(&listener);
    Endpoint::of(&relay).until("/api/v1/connections", |list| {
        let streams = list["connections"][0]["upstream"]["streams"].as_array()?;
        (streams.len() == 3).then_some(())
    });
    let url = format!("http://{}/", relay.address("admin"));
    let Some(shown) = browser::open(&url, 1100) else {
        return;
    };
    assert!(shown.dom.contains("3 streams · RTT"), "{}", shown.dom);
    assert_console_empty(&shown);
}

/// No text from the API becomes markup, wherever the page shows it.
#[test]
#[ignore = "needs Chromium: make test-peers"]
fn escapes_all_text() {
    let (listener, address) = listen_as_origin();
    let relay = start_relay(address);
    let _client = connect(relay.address("forward"));
    let _server = accept(&listener);
    let endpoint = Endpoint::of(&relay);
    endpoint.until("/api/v1/connections", |list| {
        (list["total"] == 1).then_some(())
    });
    let proxy = modifying_proxy(endpoint, |path, answer| {
        if path.starts_with("/api/") {
            let mut value = serde_json::from_str(&answer.body).unwrap();
            inject_markup(&mut value);
            answer.body = value.to_string();
        }
    });
    let Some(shown) = browser::open(&format!("http://{proxy}/"), 1100) else {
        return;
    };
    let escaped_count = shown.dom.matches("&lt;b id=\"owned\"&gt;").count();
    assert!(
        escaped_count > 10,
        "{escaped_count} places in {}",
        shown.dom
    );
    assert!(!shown.dom.contains("<b id"), "{}", shown.dom);
    assert_console_empty(&shown);
}

/// Starts a server that applies `change` to the endpoint's responses and forwards them. Returns its address.
fn modifying_proxy(
    endpoint: Endpoint,
    change: impl Fn(&str, &mut Answer) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(ANY).unwrap();
    let address = listener.local_addr().unwrap();
    let change = Arc::new(change);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let change = change.clone();
            std::thread::spawn(move || forward(client.unwrap(), endpoint, &*change));
        }
    });
    address
}

/// Answers one request with the endpoint's response after `change`.
fn forward(mut client: TcpStream, endpoint: Endpoint, change: &dyn Fn(&str, &mut Answer)) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let mut answer = endpoint.get(path);
    change(path, &mut answer);
    let forwarded = ["content-type", "content-security"];
    let fields = answer
        .head
        .lines()
        .filter(|line| forwarded.iter().any(|name| line.starts_with(name)));
    let fields = fields.collect::<Vec<_>>().join("\r\n");
    let length = answer.body.len();
    let _ = write!(
        client,
        "HTTP/1.1 200 OK\r\n{fields}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{}",
        answer.body
    );
}

/// Replaces each string in `value` with markup.
fn inject_markup(value: &mut Value) {
    match value {
        Value::String(text) => *text = "<b id=\"owned\">".to_owned(),
        Value::Array(all) => all.iter_mut().for_each(inject_markup),
        Value::Object(all) => all.values_mut().for_each(inject_markup),
        _ => {}
    }
}

#[test]
#[ignore = "needs Chromium: make test-peers"]
fn shows_unreachable_relay() {
    let (_listener, address) = listen_as_origin();
    let relay = start_relay(address);
    let endpoint = Endpoint::of(&relay);
    let listener = TcpListener::bind(ANY).unwrap();
    let proxy = listener.local_addr().unwrap();
    // Forwards the page, and closes each connection that requests data.
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let read = client.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or("/api");
            if !path.starts_with("/api") {
                let answer = endpoint.get(path);
                let kind = answer
                    .head
                    .lines()
                    .find(|line| line.starts_with("content-type"));
                let _ = write!(
                    client,
                    "HTTP/1.1 200 OK\r\n{}\r\nconnection: close\r\n\r\n{}",
                    kind.unwrap(),
                    answer.body
                );
            }
        }
    });
    let Some(shown) = browser::open(&format!("http://{proxy}/"), 1100) else {
        return;
    };
    assert!(shown.dom.contains(">unreachable<"), "{}", shown.dom);
    assert!(shown.dom.contains("does not answer"), "{}", shown.dom);
}
