// SPDX-License-Identifier: MIT OR Apache-2.0
//! The thread of one stream: it takes what is next, reads and hashes it, and sends it.

use super::{
    file::{Lost, Sending, SourceFile},
    state::{Source, next_parcel},
};
use crate::{
    copy::{end::gauges::Gauge, open_file::OpenFile},
    protocol::{
        block::{BLOCK_LEN, Content, Header},
        message::Order,
        options::Switch,
    },
    transport::connection::Connection,
};
use anyhow::{Result, bail};
use longhaul_linux::clock;
use longhaul_scheduling::{HasEnded, Parcel, Stage};
use longhaul_store::{
    blocks::{BlockHash, FileHash},
    piece,
};
use std::{
    io::{self, BufWriter, Write},
    ops::Range,
    sync::Arc,
};

/// Headers and small files are gathered up to this before they are encrypted.
const GATHERED: usize = 256 << 10;

/// What a `--limit` lets pass in one go: at 1 Mbit/s half a second.
const LIMITED: usize = 64 << 10;

/// So many blocks ahead the disk is told to read at most, however many streams there are: 64 MiB of page cache.
const AHEAD_MAX: usize = 16;

/// A stream and what its thread has at hand.
struct Stream {
    number: u64,
    to: BufWriter<Connection>,
    /// One block.
    buffer: Vec<u8>,
    /// The file that was read last: the next block is likely another of it.
    open: Option<(u64, OpenFile)>,
    gauge: Gauge,
}

/// What a stream begins to send.
struct Begun {
    /// Another has it under way, but is slow.
    repeated: bool,
    /// With it all of its file was read, which has this hash, if it has one.
    sealed: Option<Option<FileHash>>,
}

impl Source {
    /// Sends until nothing is left; an error is the stream's.
    pub(super) fn send(&self, number: u64, stream: Connection) -> Result<()> {
        let handle = stream.handle()?;
        let mut stream = Stream {
            number,
            gauge: self.tally.gauges.of_thread(Stage::Idle, Some(handle)),
            to: BufWriter::with_capacity(GATHERED, stream),
            buffer: Vec::with_capacity(BLOCK_LEN as usize),
            open: None,
        };
        while let Some(parcel) = next_parcel(&self.shared, number) {
            match parcel {
                Parcel::Block { file, block } => self.send_block(&mut stream, file, block)?,
                Parcel::Files(files) => self.send_files(&mut stream, files)?,
            }
            stream.to.flush()?;
            stream.gauge.begin(Stage::Idle);
        }
        let mut to = stream
            .to
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(to.close()?)
    }

    /// Sends small files. Should the stream break, those behind are for another.
    fn send_files(&self, stream: &mut Stream, files: Vec<u64>) -> Result<()> {
        let mut files = files.into_iter();
        while let Some(file) = files.next() {
            if let Err(broken) = self.send_block(stream, file, 0) {
                let behind = Parcel::Files(files.collect());
                self.shared.change(|state| state.work.again(behind));
                return Err(broken);
            }
        }
        Ok(())
    }

    /// Reads a block and sends it, or gives its file up, at least for now.
    fn send_block(&self, stream: &mut Stream, file: u64, block: u64) -> Result<()> {
        let sending = |sending: &Sending| sending.file.clone();
        let (source, streams) = self.shared.look(|state| {
            let source = state.sending.get(&file).map(sending);
            (source, state.streams.len())
        });
        // Withdrawn, or given up by the target.
        let Some(source) = source else { return Ok(()) };
        // Streams take blocks in turn: by then each will have had another one.
        let next = block + streams.min(AHEAD_MAX) as u64;
        match stream.read(file, &source, block..next, self.hash) {
            Ok(header) => self.send_read(stream, &header),
            Err(lost) => {
                self.lose(file, &source, &lost);
                Ok(())
            }
        }
    }

    fn send_read(&self, stream: &mut Stream, header: &Header) -> Result<()> {
        let Header { file, block, .. } = *header;
        let length = match header.content {
            Content::Data(length) => length.into(),
            Content::Hole => 0,
        };
        let begun = self.shared.change(|state| {
            let Some(sending) = state.sending.get_mut(&file) else {
                return Ok(None);
            };
            let parcel = match sending.file.blocks().count() {
                1 => Parcel::Files(vec![file]),
                _ => Parcel::Block { file, block },
            };
            let repeated = state.stragglers.has_repeated(&parcel);
            // Before it leaves: the answer may be quick.
            let begun = state
                .ledger
                .sent(stream.number, parcel, length, clock::now());
            if let Err(HasEnded(parcel)) = begun {
                state.work.again(parcel);
                bail!("the far end has ended it");
            }
            let last = sending.was_read(block, BlockHash(header.hash));
            let sealed = last.then(|| sending.hash());
            Ok(Some(Begun { repeated, sealed }))
        });
        let Some(Begun { repeated, sealed }) = begun? else {
            return Ok(());
        };
        // Even if this stream breaks now: the file was read as it was announced, and what is lost goes again.
        if let Some(hash) = sealed {
            let hash = hash.map(|hash| hash.0);
            self.orders.put(Order::Sealed { file, hash });
        }
        stream.to.write_all(&header.encode())?;
        if length > 0 {
            self.send_bytes(stream)?;
        }
        self.tally.add(|now| match repeated {
            true => now.repeated += length,
            false => now.sent += length,
        });
        Ok(())
    }

    /// The block that was read.
    fn send_bytes(&self, stream: &mut Stream) -> io::Result<()> {
        let Some(limit) = &self.limit else {
            return stream.to.write_all(&stream.buffer);
        };
        for piece in stream.buffer.chunks(LIMITED) {
            stream.gauge.begin(Stage::Limited);
            limit.wait_for(piece.len() as u64)?;
            stream.gauge.begin(Stage::Sending);
            stream.to.write_all(piece)?;
        }
        Ok(())
    }

    pub(super) fn withdraw(&self, file: u64, source: &SourceFile, lost: &Lost) {
        if self.shared.change(|state| state.settle(file)).is_some() {
            self.orders.put(Order::Withdrawn { file });
            let why = format!("{}: {lost}", source.path);
            self.count_down(Some(source), Some(why.clone()));
            self.fail(why);
        }
    }
}

impl Stream {
    /// Reads the first of these blocks into the buffer; its header. The one behind them will be the next.
    fn read(
        &mut self,
        file: u64,
        source: &Arc<SourceFile>,
        blocks: Range<u64>,
        hash: Switch,
    ) -> Result<Header, Lost> {
        let block = blocks.start;
        self.gauge.begin(Stage::Reading);
        let opened = match self.open.take() {
            Some((number, opened)) if number == file => opened,
            _ => source.open()?,
        };
        source.expect(&opened, blocks.end);
        let hole = source.read(&opened, block, &mut self.buffer)?;
        self.gauge.begin(Stage::Hashing);
        let hash = match hash {
            Switch::On => source.blocks().hash(block, &self.buffer),
            Switch::Off => Ok(BlockHash::UNKNOWN),
        };
        self.gauge.begin(Stage::Sending);
        let hash = hash.map_err(|error| Lost::Unreadable(error.to_string()))?;
        if !opened.agrees(block, hash) {
            return Err(Lost::Damaged {
                offset: block * source.blocks().block_len(),
                own: piece::part_name(source.path.name()),
            });
        }
        self.open = Some((file, opened));
        Ok(Header {
            file,
            block,
            content: match hole {
                true => Content::Hole,
                false => Content::Data(self.buffer.len() as u32),
            },
            hash: hash.0,
        })
    }
}
