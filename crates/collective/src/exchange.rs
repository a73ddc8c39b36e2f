//! Concurrent transfers of one member: all of them progress until all are done, or a member fails.
//!
//! Each transfer begins with a word that identifies the call. A different word is a call that does not match, such as one with another number of elements.

use std::time::Duration;

use elinvar_driver::{Error, Reduction, Result, Scalar};

use crate::reduce::reduce;
use crate::ring::Shared;
use crate::segment::Channel;
use crate::wait::Patience;

/// Bytes of the word.
const WORD: usize = 8;
/// Bytes that are reduced at once: they stay in the first-level cache.
const BLOCK: usize = 16 << 10;

/// Bytes for another rank.
pub(crate) struct Put<'b> {
    to: u32,
    bytes: &'b [u8],
    done: usize,
}

/// Bytes from another rank, which replace those at the target or are reduced into them.
pub(crate) struct Get<'b> {
    from: u32,
    into: &'b mut [u8],
    word: [u8; WORD],
    done: usize,
    reduction: Option<(Scalar, Reduction)>,
}

impl<'b> Put<'b> {
    pub(crate) fn new(to: u32, bytes: &'b [u8]) -> Self {
        Self { to, bytes, done: 0 }
    }

    fn is_done(&self) -> bool {
        self.done == WORD + self.bytes.len()
    }

    /// Writes what there is room for, up to `limit` bytes in all. Returns the number of bytes.
    fn step(&mut self, channel: &Channel<'_>, tag: u64, limit: usize) -> Option<usize> {
        let before = self.done;
        if self.done < WORD {
            self.done += channel.write(&tag.to_ne_bytes()[self.done..])?;
        }
        if self.done >= WORD {
            self.done += channel.write(&self.bytes[self.done - WORD..limit])?;
        }
        Some(self.done - before)
    }
}

impl<'b> Get<'b> {
    pub(crate) fn new(from: u32, into: &'b mut [u8]) -> Self {
        Self { from, into, word: [0; WORD], done: 0, reduction: None }
    }

    pub(crate) fn reducing(self, reduction: Option<(Scalar, Reduction)>) -> Self {
        Self { reduction, ..self }
    }

    fn is_done(&self) -> bool {
        self.done == WORD + self.into.len()
    }

    /// Bytes that have come.
    fn received(&self) -> usize {
        self.done.saturating_sub(WORD)
    }
}

/// The transfers of one call.
pub(crate) struct Exchange<'r> {
    pub(crate) shared: &'r Shared,
    pub(crate) rank: u32,
    pub(crate) tag: u64,
    pub(crate) timeout: Duration,
    /// Whether all members take part, so that one that has not begun is the cause of a delay.
    pub(crate) by_all: bool,
    /// The call, for messages.
    pub(crate) what: String,
    pub(crate) block: Vec<u8>,
}

impl Exchange<'_> {
    /// Does all transfers.
    pub(crate) fn run(&mut self, puts: &mut [Put<'_>], gets: &mut [Get<'_>]) -> Result<()> {
        let mut patience = Patience::new();
        let mut gone = None;
        loop {
            let mut moved = 0;
            for put in puts.iter_mut().filter(|put| !put.is_done()) {
                moved += self.put(put, put.bytes.len())?;
            }
            for get in gets.iter_mut().filter(|get| !get.is_done()) {
                moved += self.get(get)?;
            }
            if puts.iter().all(Put::is_done) && gets.iter().all(Get::is_done) {
                return Ok(());
            }
            let waits = puts.iter().filter(|put| !put.is_done()).map(|put| put.to);
            let waits = waits.chain(gets.iter().filter(|get| !get.is_done()).map(|get| get.from));
            self.wait(&mut patience, moved, &mut gone, waits)?;
        }
    }

    /// Receives bytes from one rank, if any, and passes them to another, if any, as they come.
    pub(crate) fn relay(
        &mut self,
        from: Option<u32>,
        to: Option<u32>,
        bytes: &mut [u8],
        reduction: Option<(Scalar, Reduction)>,
    ) -> Result<()> {
        let mut patience = Patience::new();
        let (mut gone, mut put_done, len) = (None, 0, bytes.len());
        let mut get = Get::new(from.unwrap_or(0), bytes).reducing(reduction);
        if from.is_none() {
            get.done = WORD + len;
        }
        loop {
            let mut moved = if get.is_done() { 0 } else { self.get(&mut get)? };
            let received = get.received();
            let mut sent_all = true;
            if let Some(to) = to {
                let mut put = Put { to, bytes: get.into, done: put_done };
                if !put.is_done() {
                    moved += self.put(&mut put, received)?;
                }
                (put_done, sent_all) = (put.done, put.is_done());
            }
            if get.is_done() && sent_all {
                return Ok(());
            }
            let waits = from.filter(|_| !get.is_done()).into_iter().chain(to.filter(|_| !sent_all));
            self.wait(&mut patience, moved, &mut gone, waits)?;
        }
    }

    fn put(&self, put: &mut Put<'_>, limit: usize) -> Result<usize> {
        let channel = self.shared.segment.channel(self.rank, put.to);
        put.step(&channel, self.tag, limit).ok_or_else(|| self.fail(put.to, "its queue is damaged"))
    }

    fn get(&mut self, get: &mut Get<'_>) -> Result<usize> {
        let shared = self.shared;
        let channel = shared.segment.channel(get.from, self.rank);
        let before = get.done;
        let damaged = |this: &Self| this.fail(get.from, "its queue is damaged");
        if get.done < WORD {
            get.done += channel.read(&mut get.word[get.done..], 1).ok_or_else(|| damaged(self))?;
            if get.done == WORD && u64::from_ne_bytes(get.word) != self.tag {
                let (rank, what) = (self.rank, &self.what);
                return Err(
                    self.fail(get.from, &format!("its call does not match that of rank {rank}, {what}"))
                );
            }
        }
        while get.done >= WORD && !get.is_done() {
            let at = get.done - WORD;
            let count = match get.reduction {
                None => channel.read(&mut get.into[at..], 1).ok_or_else(|| damaged(self))?,
                Some((element, reduction)) => {
                    self.block.resize(BLOCK, 0);
                    let most = BLOCK.min(get.into.len() - at);
                    let read = channel.read(&mut self.block[..most], element.size() as usize);
                    let count = read.ok_or_else(|| damaged(self))?;
                    reduce(element, reduction, &mut get.into[at..at + count], &self.block[..count]);
                    count
                }
            };
            get.done += count;
            if count == 0 {
                break;
            }
        }
        Ok(get.done - before)
    }

    /// Records progress, or pauses and looks what the others do.
    fn wait(
        &self,
        patience: &mut Patience,
        moved: usize,
        gone: &mut Option<(u32, String)>,
        waits: impl Iterator<Item = u32>,
    ) -> Result<()> {
        self.shared.expect_whole()?;
        if moved > 0 {
            self.shared
                .segment
                .line(self.rank)
                .moved
                .fetch_add(moved as u64, std::sync::atomic::Ordering::Relaxed);
            patience.reset();
            *gone = None;
            return Ok(());
        }
        // Found a moment ago; what it has sent before it ended has been read since.
        if let Some((rank, how)) = gone.take() {
            return Err(self.fail(rank, &how));
        }
        if !patience.pause() {
            return Ok(());
        }
        let waits: Vec<u32> = waits.collect();
        *gone = waits.iter().find_map(|rank| Some((*rank, self.shared.end_of(*rank)?)));
        if gone.is_none() && patience.is_over(self.timeout) {
            let (rank, why) = self.shared.slowest(self.rank, &waits, self.by_all);
            return Err(self.fail(rank, &format!("{why} within {:?}: {}", self.timeout, self.what)));
        }
        Ok(())
    }

    /// Publishes the failure of a rank, and returns the first one.
    fn fail(&self, rank: u32, why: &str) -> Error {
        self.shared.segment.fail(rank, why);
        self.shared.failure().unwrap_or_else(|| Error::RankFailed { rank, reason: why.into() })
    }
}
