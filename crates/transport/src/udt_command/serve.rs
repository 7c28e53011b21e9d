// SPDX-License-Identifier: MIT OR Apache-2.0
//! Server of a bench. The first byte of a connection tells its kind: `{` starts a request, `D` and a number a data
//! connection of that bench.

use super::{
    bench::{BenchRequest, LINE_LEN_MAX, StreamResult, read_line, receive_data, send_data},
    config::ServeConfig,
    transfer_stats::{TransferStats, process_cpu_time},
};
use anyhow::{Context as _, Result, ensure};
use longhaul_linux::random::random_bytes;
use longhaul_udt::socket::Stream;
use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::{JoinSet, LocalSet},
    time::timeout,
};
use tracing::{info, warn};

/// Maximum number of concurrent benches.
const BENCHES_MAX: usize = 16;

/// Time within which the connections of a bench must arrive.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Channels for data connections, by the number of their bench.
type PendingBenches = Rc<RefCell<HashMap<u64, UnboundedSender<Stream>>>>;

/// Serves benches until the process ends.
pub(super) async fn run(config: &ServeConfig) -> Result<()> {
    let socket = config.port.bind(config.listen)?;
    socket.listen();
    info!("serving at {}", socket.local_addr());
    let pending = PendingBenches::default();
    let serve = async {
        loop {
            let stream = socket.accept().await?;
            let pending = pending.clone();
            tokio::task::spawn_local(async move {
                if let Err(error) = handle_connection(stream, &pending).await {
                    warn!("{error:#}");
                }
            });
        }
    };
    LocalSet::new().run_until(serve).await
}

async fn handle_connection(mut stream: Stream, pending: &PendingBenches) -> Result<()> {
    let kind = timeout(HANDSHAKE_TIMEOUT, stream.read_u8()).await;
    match kind.context("no data on a new connection")?? {
        b'D' => {
            let number = timeout(HANDSHAKE_TIMEOUT, stream.read_u64()).await??;
            let pending = pending.borrow();
            let to = pending
                .get(&number)
                .context("data connection of an unknown bench")?;
            // The bench may have ended.
            drop(to.send(stream));
            Ok(())
        }
        b'{' => {
            let line = timeout(HANDSHAKE_TIMEOUT, read_line(&mut stream, LINE_LEN_MAX)).await??;
            let request = serde_json::from_str(&format!("{{{line}"));
            serve(stream, request.context("invalid request")?, pending).await
        }
        _ => anyhow::bail!("unknown kind of connection"),
    }
}

async fn serve(mut control: Stream, request: BenchRequest, pending: &PendingBenches) -> Result<()> {
    request.check()?;
    ensure!(
        pending.borrow().len() < BENCHES_MAX,
        "too many concurrent benches"
    );
    let (to, from) = unbounded_channel();
    let number = random()?;
    pending.borrow_mut().insert(number, to);
    let outcome = async {
        control.write_all(format!("{number}\n").as_bytes()).await?;
        let stats = measure(&request, from).await?;
        let line = serde_json::to_string(&stats)? + "\n";
        control.write_all(line.as_bytes()).await?;
        Ok(control.shutdown().await?)
    };
    let outcome = outcome.await;
    pending.borrow_mut().remove(&number);
    outcome
}

async fn measure(
    request: &BenchRequest,
    mut from: UnboundedReceiver<Stream>,
) -> Result<TransferStats> {
    let mut all = JoinSet::new();
    let mut start = None;
    for _ in 0..request.streams {
        let stream = timeout(HANDSHAKE_TIMEOUT, from.recv()).await;
        let stream = stream
            .ok()
            .flatten()
            .context("the connections of the bench did not arrive")?;
        let (started_at, _) = *start.get_or_insert((Instant::now(), process_cpu_time()));
        let request = request.clone();
        all.spawn_local(async move {
            if request.reverse {
                send_data(stream, &request, started_at).await
            } else {
                receive_data(stream, request.time_series(started_at)).await
            }
        });
    }
    let results: Vec<Result<StreamResult>> = all.join_all().await;
    let (started_at, cpu_start) = start.context("no connections")?;
    let mut stats = TransferStats::default();
    for result in results {
        result?.add_to(&mut stats);
    }
    Ok(stats.with_duration(started_at.elapsed(), process_cpu_time() - cpu_start))
}

/// Returns an unpredictable number for a bench.
fn random() -> Result<u64> {
    Ok(u64::from_ne_bytes(random_bytes()?))
}
