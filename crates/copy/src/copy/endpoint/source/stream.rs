// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thread of a stream: takes the next parcel, reads and hashes it, and sends it.

use super::{
    file::{OutgoingFile, ReadError, SourceFile},
    state::{Source, next_parcel},
};
use crate::{
    connection::Connection,
    copy::endpoint::{
        metrics::ThreadMeasurement,
        rendezvous::{StreamHandler, StreamOpener},
    },
    protocol::{
        block::{Content, Header},
        message::SourceMsg,
        options::Switch,
        sections::{SectionHash, Sections},
    },
};
use anyhow::{Result, bail};
use longhaul_linux::clock;
use longhaul_scheduling::{Parcel, Stage, StreamEnded};
use longhaul_store::{
    blocks::{BLOCK_LEN, BlockContent, BlockHash, FileHash},
    piece,
    tree::scan::OpenFile,
};
use std::{
    collections::HashMap,
    io::{self, BufWriter, Write},
    ops::Range,
    sync::Arc,
};

/// Bytes of headers and small files collected before they are encrypted.
const SEND_BUFFER_LEN: usize = 256 << 10;

/// Bytes sent in one step under a `--limit`: half a second at 1 Mbit/s.
const LIMITED_CHUNK_LEN: usize = 64 << 10;

/// Maximum blocks of read-ahead, however many streams there are: 64 MiB of page cache.
const READ_AHEAD_BLOCKS_MAX: usize = 16;

/// Stream with the state of its thread.
struct Stream {
    number: u64,
    to: BufWriter<Connection>,
    /// Buffer of one block.
    buffer: Vec<u8>,
    /// File that was read last: the next block is likely from it.
    open: Option<(u64, OpenFile)>,
    measurement: ThreadMeasurement,
}

/// Properties of a block that is about to be sent.
struct OutgoingBlock {
    /// Whether another stream has the block in flight, but is slow.
    is_duplicate: bool,
    /// Set if the block completes the reading of its file.
    sealed: Option<Sealed>,
}

/// File whose last missing block was read.
struct Sealed {
    /// Its hash, if all of it was read.
    hash: Option<FileHash>,
    /// Hashes of the blocks that were read, if the file may have grown meanwhile.
    to_check: Option<HashMap<u64, BlockHash>>,
}

impl StreamHandler for Source {
    fn handle_stream(&self, number: u64, stream: Connection) {
        let Ok(handle) = stream.handle() else { return };
        self.tuning.apply(&handle);
        self.shared
            .update(|state| state.streams.insert(number, handle));
        // The peer reports how many blocks arrived, however the stream ended.
        if self.send(number, stream).is_err() {
            self.to_target
                .push(SourceMsg::StreamAbandoned { stream: number });
        }
        self.shared.update(|state| state.streams.remove(&number));
    }

    fn is_over(&self) -> bool {
        self.shared.is_over()
    }

    fn opener(&self) -> &StreamOpener {
        &self.opener
    }
}

impl Source {
    /// Sends until nothing is left; an error is the stream's.
    fn send(&self, number: u64, stream: Connection) -> Result<()> {
        let handle = stream.handle()?;
        let mut stream = Stream {
            number,
            measurement: self
                .counters
                .metrics
                .measure_thread(Stage::Idle, Some(handle)),
            to: BufWriter::with_capacity(SEND_BUFFER_LEN, stream),
            buffer: Vec::with_capacity(BLOCK_LEN as usize),
            open: None,
        };
        while let Some(parcel) = next_parcel(&self.shared, number) {
            match parcel {
                Parcel::Block { file, block } => self.send_block(&mut stream, file, block)?,
                Parcel::Files(files) => self.send_files(&mut stream, files)?,
            }
            stream.to.flush()?;
            stream.measurement.enter(Stage::Idle);
        }
        let mut to = stream
            .to
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        Ok(to.close()?)
    }

    /// Sends small files. If the stream breaks, the remaining files go to another one.
    fn send_files(&self, stream: &mut Stream, files: Vec<u64>) -> Result<()> {
        let mut files = files.into_iter();
        while let Some(file) = files.next() {
            if let Err(broken) = self.send_block(stream, file, 0) {
                let remaining = Parcel::Files(files.collect());
                self.shared.update(|state| state.work.requeue(remaining));
                return Err(broken);
            }
        }
        Ok(())
    }

    /// Reads a block and sends it, or handles the error of its file.
    fn send_block(&self, stream: &mut Stream, file: u64, block: u64) -> Result<()> {
        let outgoing = |outgoing: &OutgoingFile| (outgoing.file.clone(), outgoing.known(block));
        let (outgoing, streams) = self.shared.read(|state| {
            let outgoing = state.outgoing.get(&file).map(outgoing);
            (outgoing, state.streams.len())
        });
        // Aborted, or failed by the target.
        let Some((source, known)) = outgoing else {
            return Ok(());
        };
        // Streams take blocks in turn: the next block of this stream is likely that many further on.
        let next = block + streams.min(READ_AHEAD_BLOCKS_MAX) as u64;
        match stream.read(file, &source, block..next, self.hash) {
            Ok(mut header) => {
                header.content = stream.leave_out_known(&source, header.content, &known);
                self.send_buffered(stream, &source, &header)
            }
            Err(error) => {
                self.handle_read_error(file, &source, &error);
                Ok(())
            }
        }
    }

    fn send_buffered(
        &self,
        stream: &mut Stream,
        source: &SourceFile,
        header: &Header,
    ) -> Result<()> {
        let Header { file, block, .. } = *header;
        let length = match header.content {
            Content::Data(length) | Content::Changed { length, .. } => length.into(),
            Content::Hole => 0,
        };
        let outgoing_block = self.shared.update(|state| {
            let Some(outgoing) = state.outgoing.get_mut(&file) else {
                return Ok(None);
            };
            let parcel = match outgoing.file.blocks().count() {
                1 => Parcel::Files(vec![file]),
                _ => Parcel::Block { file, block },
            };
            let is_duplicate = state.ledger.is_resent(&parcel);
            // Before the block is sent: the answer may be quick.
            let recorded = state
                .ledger
                .record_sent(stream.number, parcel, length, clock::now());
            if let Err(StreamEnded(parcel)) = recorded {
                state.work.requeue(parcel);
                bail!("the peer has ended the stream");
            }
            let last = outgoing.record_read(block, header.hash);
            let sealed = last.then(|| Sealed {
                hash: outgoing.hash(),
                to_check: source.may_grow().then(|| outgoing.hashes().clone()),
            });
            Ok(Some(OutgoingBlock {
                is_duplicate,
                sealed,
            }))
        });
        let Some(OutgoingBlock {
            is_duplicate,
            sealed,
        }) = outgoing_block?
        else {
            return Ok(());
        };
        // Valid even if this stream breaks now: the file was read as announced, and lost blocks are
        // retransmitted.
        if let Some(Sealed { hash, to_check }) = sealed {
            if let Some(read) = to_check
                && let Err(error) = self.check_growth(stream, source, &read)
            {
                self.handle_read_error(file, source, &error);
                return Ok(());
            }
            self.to_target.push(SourceMsg::Sealed { file, hash });
        }
        stream.to.write_all(&header.encode())?;
        if length > 0 {
            self.send_bytes(stream)?;
        }
        self.counters.update(|progress| {
            if is_duplicate {
                progress.duplicate += length;
            } else {
                progress.sent += length;
            }
        });
        Ok(())
    }

    /// Checks that what was read of a growing file is what it still begins with.
    fn check_growth(
        &self,
        stream: &Stream,
        source: &SourceFile,
        read: &HashMap<u64, BlockHash>,
    ) -> Result<(), ReadError> {
        if let Some((_, opened)) = &stream.open
            && source.check_growth(opened, read)?
        {
            let why = "it grew while it was read: copied as it was at the start";
            self.reporter
                .send_problem(format!("{}: {why}", source.path));
        }
        Ok(())
    }

    /// Sends the block in the buffer.
    fn send_bytes(&self, stream: &mut Stream) -> io::Result<()> {
        let Some(limit) = &self.limit else {
            return stream.to.write_all(&stream.buffer);
        };
        for piece in stream.buffer.chunks(LIMITED_CHUNK_LEN) {
            stream.measurement.enter(Stage::Limited);
            limit.wait_for(piece.len() as u64)?;
            stream.measurement.enter(Stage::Sending);
            stream.to.write_all(piece)?;
        }
        Ok(())
    }

    pub(super) fn abort_file(&self, file: u64, source: &SourceFile, error: &ReadError) {
        if self.shared.update(|state| state.complete(file)).is_some() {
            self.to_target.push(SourceMsg::Aborted { file });
            let why = format!("{}: {error}", source.path);
            self.complete_file(Some(source), Some(why.clone()));
            match error {
                ReadError::Vanished => self.report_vanished(why),
                _ => self.report_failure(why),
            }
        }
    }
}

impl Stream {
    /// Removes the sections that the target has from the block in the buffer. Returns what is left.
    fn leave_out_known(
        &mut self,
        source: &SourceFile,
        content: Content,
        known: &[SectionHash],
    ) -> Content {
        if known.is_empty() || content == Content::Hole {
            return content;
        }
        let division = Sections::of(source.version.size);
        let sections = division.differing(&self.buffer, known);
        division.retain(&mut self.buffer, sections);
        let length = self.buffer.len() as u32;
        match content {
            Content::Data(whole) if whole == length => content,
            _ => Content::Changed { sections, length },
        }
    }

    /// Reads the first block of a range into the buffer, and returns its header. Starts read-ahead of the
    /// block after the range.
    fn read(
        &mut self,
        file: u64,
        source: &Arc<SourceFile>,
        blocks: Range<u64>,
        hash: Switch,
    ) -> Result<Header, ReadError> {
        let block = blocks.start;
        self.measurement.enter(Stage::Reading);
        let opened = match self.open.take() {
            Some((number, opened)) if number == file => opened,
            _ => source.open()?,
        };
        source.read_ahead(&opened, blocks.end);
        let read = source.read(&opened, block, &mut self.buffer)?;
        self.measurement.enter(Stage::Hashing);
        let hash = match hash {
            Switch::On => source.blocks().hash_content(block, read),
            Switch::Off => Ok(BlockHash::UNKNOWN),
        };
        self.measurement.enter(Stage::Sending);
        let hash = hash.map_err(|error| ReadError::Unreadable(error.to_string()))?;
        if !opened.hash_matches(block, hash) {
            return Err(ReadError::Damaged {
                offset: block * source.blocks().block_len(),
                part_name: piece::piece_data_name(source.path.name()),
            });
        }
        self.open = Some((file, opened));
        Ok(Header {
            file,
            block,
            content: match read {
                BlockContent::Hole => Content::Hole,
                BlockContent::Data(bytes) => Content::Data(bytes.len() as u32),
            },
            hash,
        })
    }
}
