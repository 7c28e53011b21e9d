// SPDX-License-Identifier: MIT OR Apache-2.0
//! One thread of the relay: it accepts on its own share of every listener and serves what it
//! accepted.

use super::{
    Relay,
    connect::{SHORTAGE_PAUSE, is_shortage},
    door::Door,
    drain::Phase,
    intercept::beat,
    ready::Ready,
    session::Session,
};
use host::pipe_pool::Pool;
use std::{io, net::TcpListener as StdListener, sync::Arc};
use tokio::{net::TcpListener, select, time::sleep};

/// A worker before its thread starts.
pub(crate) struct Worker {
    pub(crate) relay: Arc<Relay>,
    /// Among the relay's threads.
    pub(crate) index: usize,
    pub(crate) doors: Vec<(Arc<Door>, StdListener)>,
}

/// Threads that resolve names, a worker; more lookups than that wait.
const RESOLVERS_MAX: usize = 8;

impl Worker {
    /// Serves until the relay stops.
    pub(crate) fn run(self) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(RESOLVERS_MAX)
            .build()?;
        let outcome = runtime.block_on(self.serve());
        // A lookup that hangs must not hold up the exit.
        runtime.shutdown_background();
        outcome
    }

    async fn serve(self) -> io::Result<()> {
        tokio::spawn(beat(self.relay.clone(), self.index));
        let pool = Arc::new(Pool::new(self.relay.config().pool));
        let ready = Arc::new(Ready::default());
        for (door, listener) in self.doors {
            let listener = TcpListener::from_std(listener)?;
            let means = (pool.clone(), ready.clone());
            tokio::spawn(accept_all(self.relay.clone(), door, means, listener));
        }
        select! {
            () = ready.keep(&self.relay) => {}
            () = self.relay.drain.reached(Phase::Drain) => ready.clear(),
        }
        self.relay.drain.reached(Phase::Stop).await;
        Ok(())
    }
}

/// What the connections of one worker share.
type Means = (Arc<Pool>, Arc<Ready>);

/// Accepts until the relay drains.
async fn accept_all(relay: Arc<Relay>, door: Arc<Door>, means: Means, listener: TcpListener) {
    let accepting = async {
        let mut shortage = Shortage::default();
        loop {
            match listener.accept().await {
                Ok((client, address)) => {
                    shortage.ended();
                    // The newcomer waits here for memory and its place, the rest in the listen
                    // queue.
                    relay.memory.room().await;
                    let Ok(place) = relay.places.clone().acquire_owned().await else {
                        return;
                    };
                    let (relay, door, means) = (relay.clone(), door.clone(), means.clone());
                    let session = Session::new(relay, door, means, client, address);
                    tokio::spawn(async move {
                        session.run().await;
                        drop(place);
                    });
                }
                Err(error) => shortage.wait(&error).await,
            }
        }
    };
    select! {
        () = accepting => {}
        () = relay.drain.reached(Phase::Drain) => {}
    }
}

/// A time without descriptors or memory: the accept loop waits, and says so once.
#[derive(Default)]
struct Shortage {
    told: bool,
}

impl Shortage {
    /// After a failed accept(2). Errors of the connection itself (accept(2), "Error handling")
    /// ask for no pause.
    async fn wait(&mut self, error: &io::Error) {
        if !is_shortage(error) {
            return;
        }
        if !std::mem::replace(&mut self.told, true) {
            eprintln!("longhaul relay: {error}; new connections wait");
        }
        sleep(SHORTAGE_PAUSE).await;
    }

    fn ended(&mut self) {
        if std::mem::take(&mut self.told) {
            eprintln!("longhaul relay: accepting again");
        }
    }
}
