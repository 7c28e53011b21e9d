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
use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    sync::Arc,
};
use tokio::{
    net::{TcpListener, TcpStream},
    select,
    sync::mpsc::Receiver,
    time::sleep,
};

/// A worker before its thread starts.
pub(crate) struct Worker {
    pub(crate) relay: Arc<Relay>,
    /// Among the relay's threads.
    pub(crate) index: usize,
    /// Its shares of listeners, as they are opened.
    pub(crate) openings: Receiver<Opening>,
}

/// A socket to accept on.
pub(crate) struct Opening {
    pub(crate) door: Arc<Door>,
    /// The set of the door's sockets that this one is of.
    pub(crate) generation: u64,
    pub(crate) socket: StdListener,
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

    async fn serve(mut self) -> io::Result<()> {
        tokio::spawn(beat(self.relay.clone(), self.index));
        let pool = Arc::new(Pool::new(self.relay.config().pool));
        let ready = Arc::new(Ready::default());
        let means = (pool, ready.clone());
        let relay = self.relay.clone();
        let kept = async {
            select! {
                () = ready.keep(&relay) => {}
                () = relay.drain.reached(Phase::Drain) => ready.clear(),
            }
            relay.drain.reached(Phase::Stop).await;
        };
        tokio::pin!(kept);
        loop {
            select! {
                Some(opening) = self.openings.recv() => self.open(opening, &means)?,
                () = &mut kept => return Ok(()),
            }
        }
    }

    fn open(&self, opening: Opening, means: &Means) -> io::Result<()> {
        let entrance = Entrance {
            relay: self.relay.clone(),
            door: opening.door,
            means: means.clone(),
        };
        let listener = TcpListener::from_std(opening.socket)?;
        tokio::spawn(entrance.accept_all(opening.generation, listener));
        Ok(())
    }
}

/// What the connections of one worker share.
type Means = (Arc<Pool>, Arc<Ready>);

/// A worker's share of a listener.
struct Entrance {
    relay: Arc<Relay>,
    door: Arc<Door>,
    means: Means,
}

impl Entrance {
    /// Accepts until the relay drains or a reload closes the socket.
    async fn accept_all(self, generation: u64, listener: TcpListener) {
        let accepting = async {
            self.accept_until_closed(generation, &listener).await;
            self.accept_queue(listener).await;
        };
        select! {
            () = accepting => {}
            () = self.relay.drain.reached(Phase::Drain) => {}
        }
    }

    async fn accept_until_closed(&self, generation: u64, listener: &TcpListener) {
        let mut shortage = Shortage::default();
        loop {
            let accepted = select! {
                accepted = listener.accept() => accepted,
                () = self.door.closed(generation) => return,
            };
            match accepted {
                Ok((client, address)) => {
                    shortage.ended();
                    self.admit(client, address).await;
                }
                Err(error) => shortage.wait(&error).await,
            }
        }
    }

    /// Those whose handshake is done count as connected: the kernel would reset them when the
    /// socket is closed. Bounded by the listen queue.
    async fn accept_queue(&self, listener: TcpListener) {
        let Ok(listener) = listener.into_std() else {
            return;
        };
        let mut queue = Vec::new();
        while let Ok(newcomer) = listener.accept() {
            queue.push(newcomer);
        }
        drop(listener);
        for (client, address) in queue {
            let client = client.set_nonblocking(true).map(|()| client);
            if let Ok(client) = client.and_then(TcpStream::from_std) {
                self.admit(client, address).await;
            }
        }
    }

    /// The newcomer waits here for memory and its place, the rest in the listen queue.
    async fn admit(&self, client: TcpStream, address: SocketAddr) {
        self.relay.memory.room().await;
        let Ok(place) = self.relay.places.clone().acquire_owned().await else {
            return;
        };
        let (relay, door, means) = (self.relay.clone(), self.door.clone(), self.means.clone());
        let session = Session::new(relay, door, means, client, address);
        tokio::spawn(async move {
            session.run().await;
            drop(place);
        });
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
