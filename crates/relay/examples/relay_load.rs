// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load generator for `bench/relay.toml`. One program is the origin and the clients, and measures the times. So every relay
//! gets the same load.
//!
//! ```text
//! relay_load serve ADDR:PORT
//! relay_load bulk|connects|echo|idle --protocol plain|socks5|connect --relay ADDR:PORT --origin ADDR:PORT
//!            [--flows N] [--seconds S] [--count N]
//! ```
//! The first byte of a connection is a command to the origin. After `E` it echoes. After `D` it sends until the client
//! closes. The result is one line of JSON on standard output, whose names are those of metrics.

use std::{
    io::{BufRead, Read, Result, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes of one read or write.
const CHUNK_BYTES: usize = 1 << 18;
/// Stack size of a thread in bytes. The origin has one thread per connection, up to 10,000.
const STACK_BYTES: usize = 64 << 10;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let _ = longhaul_linux::descriptors::raise_limit();
    match args[0].as_str() {
        "serve" => serve(args[1].parse().expect("an address")),
        job => run(job, &LoadOptions::from(&args[1..])),
    }
}

/// Values of the flags.
struct LoadOptions {
    protocol: String,
    relay: SocketAddr,
    origin: SocketAddr,
    flows: usize,
    seconds: f64,
    count: usize,
}

impl LoadOptions {
    fn from(args: &[String]) -> Self {
        let flag = |name: &str, default: &str| {
            let at = args.iter().position(|arg| *arg == format!("--{name}"));
            at.map_or(default, |at| &args[at + 1]).to_owned()
        };
        let number = |name, default| flag(name, default).parse().expect("a number");
        Self {
            protocol: flag("protocol", "plain"),
            relay: flag("relay", "").parse().expect("--relay ADDR:PORT"),
            origin: flag("origin", "").parse().expect("--origin ADDR:PORT"),
            flows: number("flows", "1"),
            seconds: flag("seconds", "3").parse().expect("seconds"),
            count: number("count", "5000"),
        }
    }

    /// Connects to the origin through the relay and sends the command.
    fn open(&self, command: u8) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.relay)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        match self.protocol.as_str() {
            "socks5" => socks5(&mut stream, self.origin)?,
            "connect" => connect(&mut stream, self.origin)?,
            _ => {}
        }
        stream.write_all(&[command])?;
        Ok(stream)
    }
}

fn socks5(stream: &mut TcpStream, to: SocketAddr) -> Result<()> {
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    let SocketAddr::V4(to) = to else {
        panic!("IPv4 only");
    };
    let mut request = vec![5, 1, 0, 1];
    request.extend(to.ip().octets());
    request.extend(to.port().to_be_bytes());
    stream.write_all(&request)?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    assert_eq!(reply[1], 0, "the SOCKS5 relay refused");
    Ok(())
}

fn connect(stream: &mut TcpStream, to: SocketAddr) -> Result<()> {
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "the HTTP proxy refused");
    Ok(())
}

fn serve(address: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept()?;
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        // A client that disconnects ends only its own thread.
        builder.spawn(move || drop(handle(stream)))?;
    }
}

fn handle(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut command = [0];
    stream.read_exact(&mut command)?;
    match command[0] {
        b'D' => send_forever(stream),
        _ => echo(stream),
    }
}

fn send_forever(mut stream: TcpStream) -> Result<()> {
    let chunk = vec![0x5a; CHUNK_BYTES];
    loop {
        stream.write_all(&chunk)?;
    }
}

fn echo(mut stream: TcpStream) -> Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

fn run(job: &str, options: &LoadOptions) -> Result<()> {
    match job {
        "bulk" => bulk(options),
        "connects" => connects(options),
        "echo" => round_trips(options),
        "idle" => idle(options),
        other => panic!("{other} is not a job"),
    }
}

/// Measures the bytes that all flows receive in the given time.
fn bulk(options: &LoadOptions) -> Result<()> {
    let streams: Vec<TcpStream> = (0..options.flows)
        .map(|_| options.open(b'D'))
        .collect::<Result<_>>()?;
    let (total, stop) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let start = Instant::now();
    let drain = |mut stream: TcpStream| {
        let (total, stop) = (total.clone(), stop.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; CHUNK_BYTES];
            while !stop.load(Relaxed) {
                match stream.read(&mut buffer) {
                    Ok(n @ 1..) => total.fetch_add(n as u64, Relaxed),
                    end => panic!("the flow ended: {end:?}"),
                };
            }
        })
    };
    let threads: Vec<_> = streams.into_iter().map(drain).collect();
    thread::sleep(Duration::from_secs_f64(options.seconds));
    let (bytes, elapsed) = (total.load(Relaxed), start.elapsed().as_secs_f64());
    stop.store(true, Relaxed);
    for thread in threads {
        thread.join().expect("a flow failed");
    }
    let rate = bytes as f64 * 8.0 / elapsed;
    println!(r#"{{"rate_bps": {rate}, "payload_bytes": {bytes}}}"#);
    Ok(())
}

/// Counts connections in the given time: connect, one byte in each direction, close. Each flow makes one after another.
fn connects(options: &LoadOptions) -> Result<()> {
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(options.seconds);
    let completed = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..options.flows {
            scope.spawn(|| {
                while Instant::now() < end {
                    let mut stream = options.open(b'E').expect("a connection");
                    stream.write_all(b"x").expect("a request");
                    stream.read_exact(&mut [0]).expect("a reply");
                    completed.fetch_add(1, Relaxed);
                }
            });
        }
    });
    let rate = completed.into_inner() as f64 / start.elapsed().as_secs_f64();
    println!(r#"{{"connections_per_s": {rate}}}"#);
    Ok(())
}

/// Measures round trips of one byte on one connection. The first ones, a tenth of `--count`, are warm-up and not
/// measured.
fn round_trips(options: &LoadOptions) -> Result<()> {
    let mut stream = options.open(b'E')?;
    let mut times = Vec::with_capacity(options.count);
    for _ in 0..options.count + options.count / 10 {
        let start = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        times.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    let mut times = times.split_off(options.count / 10);
    times.sort_unstable_by(f64::total_cmp);
    let percentile = |percent: usize| times[times.len() * percent / 100];
    println!(
        r#"{{"p50_us": {}, "p99_us": {}}}"#,
        percentile(50),
        percentile(99)
    );
    Ok(())
}

/// Opens connections, sends one byte in each direction, and keeps them open and idle until standard input has a line or
/// ends.
fn idle(options: &LoadOptions) -> Result<()> {
    let open = |_| {
        let mut stream = options.open(b'E')?;
        stream.write_all(b"x")?;
        stream.read_exact(&mut [0])?;
        Ok(stream)
    };
    let streams: Vec<TcpStream> = (0..options.count).map(open).collect::<Result<_>>()?;
    println!(r#"{{"open": {}}}"#, streams.len());
    let _ = std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
