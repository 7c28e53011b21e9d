// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten thousand idle connections and two thousand busy ones through one relay, or as many as the
//! limit on descriptors lets one process have.

use longhaul_testnet::relay_process::Relay;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

const CROWD: usize = 12_000;
/// Below this it is no crowd.
const CROWD_MIN: usize = 5_000;
/// One in so many is busy, the others are idle.
const BUSY_ONE_IN: usize = 6;
/// What the relay keeps for pipes and itself, and this process for other tests.
const DESCRIPTORS_SPARE: usize = 1_000;
const ROUNDS: usize = 20;
const MESSAGE: usize = 1000;
#[test]
fn ten_thousand_idle_and_two_thousand_busy_at_once() {
    let Some(crowd) = crowd_size() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (listener, address) = listen();
        let (forward, most) = (format!("127.0.0.1:0={address}"), crowd.to_string());
        let relay = Relay::start(&["--forward", &forward, "--max-connections", &most]);
        tokio::spawn(serve(listener));
        let door = relay.address("forward");
        let mut idle = connect_all(door, crowd - crowd / BUSY_ONE_IN).await;
        let busy = connect_all(door, crowd / BUSY_ONE_IN).await;
        let mut talking: JoinSet<()> = busy.into_iter().map(talk).collect();
        while let Some(done) = talking.join_next().await {
            done.unwrap();
        }
        for (number, stream) in idle.iter_mut().enumerate() {
            echo(stream, &number.to_be_bytes()).await;
        }
        drop(idle);
        // The server's ends close meanwhile, on this thread.
        let (_, said) = tokio::task::spawn_blocking(|| relay.stop()).await.unwrap();
        assert!(said.contains("no connection cut"), "{said}");
        assert!(!said.contains("wait"), "{said}");
    });
}

fn listen() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Echoes whatever comes.
async fn serve(listener: TcpListener) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let (mut from, mut to) = stream.split();
            let mut block = [0; MESSAGE];
            while let Ok(read @ 1..) = from.read(&mut block).await {
                to.write_all(&block[..read]).await.unwrap();
            }
        });
    }
}

/// Each has come through: it had an echo. No more at once than listen queues take.
async fn connect_all(door: SocketAddr, count: usize) -> Vec<TcpStream> {
    let turns = Arc::new(Semaphore::new(500));
    let connect = |number: usize| {
        let turns = turns.clone();
        async move {
            let _turn = turns.acquire_owned().await.unwrap();
            let mut stream = TcpStream::connect(door).await.unwrap();
            echo(&mut stream, &number.to_be_bytes()).await;
            stream
        }
    };
    let connecting: JoinSet<_> = (0..count).map(connect).collect();
    connecting.join_all().await
}

async fn talk(mut stream: TcpStream) {
    for round in 0..ROUNDS {
        echo(&mut stream, &[round as u8; MESSAGE]).await;
    }
}

async fn echo(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(message).await.unwrap();
    let mut heard = vec![0; message.len()];
    stream.read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, message);
}

/// Two descriptors a connection, here (client and server) as in the relay, which has the same
/// limit. Too few are a reason to fail; with ALLOW_SKIP=1, to skip.
fn crowd_size() -> Option<usize> {
    let limit = longhaul_linux::descriptors::raise_limit().map_or(usize::MAX, |n| n as usize);
    let crowd = CROWD.min(limit.saturating_sub(DESCRIPTORS_SPARE) / 2);
    if crowd < CROWD {
        eprintln!("RLIMIT_NOFILE of {limit} has room for {crowd} of {CROWD} connections");
    }
    let needed = format!("RLIMIT_NOFILE above {limit}");
    longhaul_testbed::skip::unless(crowd >= CROWD_MIN, needed).then_some(crowd)
}
