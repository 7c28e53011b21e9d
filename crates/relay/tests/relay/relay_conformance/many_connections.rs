// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ten thousand idle and two thousand busy connections through one relay, or as many as the
//! descriptor limit allows.

use longhaul_testnet::relay_process::Relay;
use std::{net::SocketAddr, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

const CONNECTIONS: usize = 12_000;
/// Fewer connections make the test meaningless.
const CONNECTIONS_MIN: usize = 5_000;
/// One connection in so many is busy, the others are idle.
const BUSY_ONE_IN: usize = 6;
/// Descriptors that the relay needs for pipes and itself, and this process for other tests.
const DESCRIPTORS_SPARE: usize = 2_000;
/// Connections that the relay has room for besides.
const SPARE: usize = 400;
const ROUNDS: usize = 20;
const MESSAGE: usize = 1000;

#[test]
fn serves_ten_thousand_idle_and_two_thousand_busy_connections() {
    let Some(count) = connection_count() else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (listener, address) = listen();
        // A relay that is full says so.
        let most = (count + SPARE).to_string();
        let forward = format!("127.0.0.1:0={address}");
        let relay = Relay::start(&["--forward", &forward, "--max-connections", &most]);
        tokio::spawn(serve(listener));
        let relay_address = relay.address("forward");
        let mut idle = connect_all(relay_address, count - count / BUSY_ONE_IN).await;
        let busy = connect_all(relay_address, count / BUSY_ONE_IN).await;
        let mut transfers: JoinSet<()> = busy.into_iter().map(exchange_messages).collect();
        while let Some(done) = transfers.join_next().await {
            done.unwrap();
        }
        for (number, stream) in idle.iter_mut().enumerate() {
            echo(stream, &number.to_be_bytes()).await;
        }
        drop(idle);
        // The server's sockets close meanwhile, on this thread.
        let (_, log) = tokio::task::spawn_blocking(|| relay.stop()).await.unwrap();
        assert!(log.contains("no connection reset"), "{log}");
        assert!(!log.contains("wait"), "{log}");
    });
}

fn listen() -> (TcpListener, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(4096).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Echo server.
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

/// Opens connections, each checked by an echo; no more at once than listen queues hold.
async fn connect_all(relay_address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let permits = Arc::new(Semaphore::new(500));
    let connect = |number: usize| {
        let permits = permits.clone();
        async move {
            let _permit = permits.acquire_owned().await.unwrap();
            let mut stream = TcpStream::connect(relay_address).await.unwrap();
            echo(&mut stream, &number.to_be_bytes()).await;
            stream
        }
    };
    let connecting: JoinSet<_> = (0..count).map(connect).collect();
    connecting.join_all().await
}

async fn exchange_messages(mut stream: TcpStream) {
    for round in 0..ROUNDS {
        echo(&mut stream, &[round as u8; MESSAGE]).await;
    }
}

async fn echo(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(message).await.unwrap();
    let mut received = vec![0; message.len()];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(received, message);
}

/// Number of connections. Each takes two descriptors, here (client and server) as in the relay,
/// which has the same limit. Too few fail the test; with ALLOW_SKIP=1, they skip it.
fn connection_count() -> Option<usize> {
    let limit = longhaul_linux::descriptors::raise_limit().map_or(usize::MAX, |n| n as usize);
    let count = CONNECTIONS.min(limit.saturating_sub(DESCRIPTORS_SPARE) / 2);
    if count < CONNECTIONS {
        eprintln!("RLIMIT_NOFILE of {limit} has room for {count} of {CONNECTIONS} connections");
    }
    let needed = format!("RLIMIT_NOFILE above {limit}");
    longhaul_testprograms::skip::require(count >= CONNECTIONS_MIN, needed).then_some(count)
}
