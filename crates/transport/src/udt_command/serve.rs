// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a bench that serves. A connection says first what it is: `{` begins what is asked for, `D` and a number data of
//! that bench.

use super::{
    bench::{BenchRequest, LINE_LEN_MAX, StreamResult, read_line, receive_data, send_data},
    config::Serve,
    transfer_stats::{TransferStats, process_cpu_time},
};
use anyhow::{Context as _, Result, ensure};
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

/// Benches at a time.
const BENCHES_MAX: usize = 16;

/// How long a bench's connections may take to come.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Where connections with data go, by the number of the bench.
type PendingBenches = Rc<RefCell<HashMap<u64, UnboundedSender<Stream>>>>;

/// Until the process ends.
pub(super) async fn run(config: &Serve) -> Result<()> {
    let socket = config.port.bind(config.at)?;
    socket.listen();
    info!("serving at {}", socket.local_addr());
    let waiting = PendingBenches::default();
    let serve = async {
        loop {
            let stream = socket.accept().await?;
            let waiting = waiting.clone();
            tokio::task::spawn_local(async move {
                if let Err(error) = handle_connection(stream, &waiting).await {
                    warn!("{error:#}");
                }
            });
        }
    };
    LocalSet::new().run_until(serve).await
}

async fn handle_connection(mut stream: Stream, waiting: &PendingBenches) -> Result<()> {
    let kind = timeout(HANDSHAKE_TIMEOUT, stream.read_u8()).await;
    match kind.context("a connection says nothing")?? {
        b'D' => {
            let number = timeout(HANDSHAKE_TIMEOUT, stream.read_u64()).await??;
            let waiting = waiting.borrow();
            let to = waiting.get(&number).context("data of no bench")?;
            // It may be over.
            drop(to.send(stream));
            Ok(())
        }
        b'{' => {
            let line = timeout(HANDSHAKE_TIMEOUT, read_line(&mut stream, LINE_LEN_MAX)).await??;
            let asked = serde_json::from_str(&format!("{{{line}"));
            serve(stream, asked.context("not a bench")?, waiting).await
        }
        _ => anyhow::bail!("a connection for nothing that is known"),
    }
}

async fn serve(mut control: Stream, asked: BenchRequest, waiting: &PendingBenches) -> Result<()> {
    asked.check()?;
    ensure!(
        waiting.borrow().len() < BENCHES_MAX,
        "too many benches at a time"
    );
    let (to, from) = unbounded_channel();
    let number = random()?;
    waiting.borrow_mut().insert(number, to);
    let told = async {
        control.write_all(format!("{number}\n").as_bytes()).await?;
        let figures = measure(&asked, from).await?;
        let line = serde_json::to_string(&figures)? + "\n";
        control.write_all(line.as_bytes()).await?;
        Ok(control.shutdown().await?)
    };
    let told = told.await;
    waiting.borrow_mut().remove(&number);
    told
}

async fn measure(
    asked: &BenchRequest,
    mut from: UnboundedReceiver<Stream>,
) -> Result<TransferStats> {
    let mut all = JoinSet::new();
    let mut begun = None;
    for _ in 0..asked.streams {
        let stream = timeout(HANDSHAKE_TIMEOUT, from.recv()).await;
        let stream = stream
            .ok()
            .flatten()
            .context("a bench's connections do not come")?;
        let (began, _) = *begun.get_or_insert((Instant::now(), process_cpu_time()));
        let asked = asked.clone();
        all.spawn_local(async move {
            match asked.reverse {
                true => send_data(stream, &asked, began).await,
                false => receive_data(stream, asked.time_series(began)).await,
            }
        });
    }
    let shares: Vec<Result<StreamResult>> = all.join_all().await;
    let (at, spent) = begun.context("no connections")?;
    let mut figures = TransferStats::default();
    for share in shares {
        share?.add_to(&mut figures);
    }
    Ok(figures.with_duration(at.elapsed(), process_cpu_time() - spent))
}

/// A bench's number, which nobody else can tell.
fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(bytes))
}
