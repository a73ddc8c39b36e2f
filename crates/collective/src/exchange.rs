//! Concurrent transfers of one member: all of them progress until all are done, or a member fails.
//!
//! Each transfer begins with a word that identifies the call. A different word is a call that does not match, such as one with another number of elements. On a
//! simulated [`Network`](crate::Network) it is followed by the times at which the first segment and the last byte arrive.

use std::time::Duration;

use elinvar_driver::{Error, Reduction, Result, Scalar};

use crate::model::SEGMENT;
use crate::network::{LinkCost, Network};
use crate::reduce::reduce;
use crate::ring::Shared;
use crate::segment::Channel;
use crate::wait::Patience;

/// Bytes of the word.
const WORD: usize = 8;
/// Bytes of the word and of both times.
const HEAD: usize = 24;
/// Bytes that are reduced at once: they stay in the first-level cache.
const BLOCK: usize = 16 << 10;

/// Bytes for another rank.
pub(crate) struct Put<'b> {
    to: u32,
    bytes: &'b [u8],
    head: Head,
    done: usize,
}

/// Bytes from another rank, which replace those at the target or are reduced into them.
pub(crate) struct Get<'b> {
    from: u32,
    into: &'b mut [u8],
    head: Head,
    done: usize,
    reduction: Option<(Scalar, Reduction)>,
}

/// What precedes the bytes of a transfer.
#[derive(Clone, Copy, Default)]
struct Head {
    bytes: [u8; HEAD],
    len: usize,
}

impl Head {
    fn new(tag: u64, times: Option<Arrival>) -> Self {
        let mut bytes = [0; HEAD];
        bytes[..WORD].copy_from_slice(&tag.to_ne_bytes());
        let Some(Arrival { first, last }) = times else { return Self { bytes, len: WORD } };
        bytes[WORD..2 * WORD].copy_from_slice(&first.to_ne_bytes());
        bytes[2 * WORD..].copy_from_slice(&last.to_ne_bytes());
        Self { bytes, len: HEAD }
    }

    /// The `index`-th word.
    fn word(&self, index: usize) -> [u8; WORD] {
        let mut word = [0; WORD];
        word.copy_from_slice(&self.bytes[index * WORD..(index + 1) * WORD]);
        word
    }

    fn arrival(&self) -> Arrival {
        let [first, last] = [1, 2].map(|index| f64::from_ne_bytes(self.word(index)));
        // Another process may have written anything.
        let valid = |time: f64| if time.is_finite() { time } else { 0.0 };
        Arrival { first: valid(first), last: valid(last) }
    }
}

/// Simulated times in seconds at which the first segment and the last byte arrive.
#[derive(Clone, Copy)]
struct Arrival {
    first: f64,
    last: f64,
}

/// Simulated times of one member in seconds.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// Until when it has computed.
    pub(crate) now: f64,
    /// Until when it receives.
    receiving: f64,
}

impl<'b> Put<'b> {
    pub(crate) fn new(to: u32, bytes: &'b [u8]) -> Self {
        Self { to, bytes, head: Head::default(), done: 0 }
    }

    fn is_done(&self) -> bool {
        self.done == self.head.len + self.bytes.len()
    }

    /// Writes what there is room for, up to `limit` bytes in all. Returns the number of bytes.
    fn step(&mut self, channel: &Channel<'_>, limit: usize) -> Option<usize> {
        let (before, head) = (self.done, self.head.len);
        if self.done < head {
            self.done += channel.write(&self.head.bytes[self.done..head])?;
        }
        if self.done >= head {
            self.done += channel.write(&self.bytes[self.done - head..limit])?;
        }
        Some(self.done - before)
    }
}

impl<'b> Get<'b> {
    pub(crate) fn new(from: u32, into: &'b mut [u8]) -> Self {
        Self { from, into, head: Head::default(), done: 0, reduction: None }
    }

    pub(crate) fn reducing(self, reduction: Option<(Scalar, Reduction)>) -> Self {
        Self { reduction, ..self }
    }

    fn is_done(&self) -> bool {
        self.done == self.head.len + self.into.len()
    }

    /// Bytes that have come.
    fn received(&self) -> usize {
        self.done.saturating_sub(self.head.len)
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
    /// Of a simulated network.
    pub(crate) times: Times,
}

impl Exchange<'_> {
    /// Does all transfers.
    pub(crate) fn run(&mut self, puts: &mut [Put<'_>], gets: &mut [Get<'_>]) -> Result<()> {
        let sent = self.begin_transfers(puts, gets);
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
                self.end_transfers(sent, gets);
                return Ok(());
            }
            let waits = puts.iter().filter(|put| !put.is_done()).map(|put| put.to);
            let waits = waits.chain(gets.iter().filter(|get| !get.is_done()).map(|get| get.from));
            self.wait(&mut patience, moved, &mut gone, waits)?;
        }
    }

    fn network(&self) -> Option<&Network> {
        self.shared.network.as_deref()
    }

    /// The simulated link between two ranks of this communicator.
    fn link(&self, network: &Network, from: u32, to: u32) -> LinkCost {
        let job_rank = |rank: u32| self.shared.job_ranks.get(rank as usize).copied().unwrap_or(rank);
        network.link(job_rank(from), job_rank(to))
    }

    /// Sets what precedes the bytes. Returns the simulated time when all are sent, one after the other.
    fn begin_transfers(&self, puts: &mut [Put<'_>], gets: &mut [Get<'_>]) -> f64 {
        let mut sent = self.times.now;
        for put in puts {
            let times = self.network().map(|network| {
                let link = self.link(network, self.rank, put.to);
                sent += link.occupied(put.bytes.len());
                Arrival { first: sent + link.latency, last: sent + link.latency }
            });
            put.head = Head::new(self.tag, times);
        }
        let len = if self.network().is_some() { HEAD } else { WORD };
        gets.iter_mut().for_each(|get| get.head.len = len);
        sent
    }

    /// Advances the simulated time to when all is sent, received and reduced.
    fn end_transfers(&mut self, sent: f64, gets: &[Get<'_>]) {
        let Some(network) = self.network() else { return };
        let mut messages: Vec<(f64, &Get<'_>)> =
            gets.iter().map(|get| (get.head.arrival().last, get)).collect();
        messages.sort_by(|one, other| one.0.total_cmp(&other.0));
        let Times { mut now, mut receiving } = self.times;
        for (last, get) in messages {
            let bytes = get.into.len();
            let occupied = self.link(network, get.from, self.rank).occupied(bytes);
            receiving = receiving.max(last - occupied) + occupied;
            let reducing = if get.reduction.is_some() { network.reducing(bytes) } else { 0.0 };
            now = now.max(receiving) + reducing;
        }
        self.times = Times { now: now.max(sent), receiving };
    }

    /// What precedes the bytes that are passed on, of which the first segment and the last byte are `ready`, and when they are sent.
    fn relayed(&self, to: u32, bytes: usize, ready: Arrival) -> (Head, f64) {
        let Some(network) = self.network() else { return (Head::new(self.tag, None), 0.0) };
        let link = self.link(network, self.rank, to);
        let segment = link.occupied(bytes.min(SEGMENT));
        let sent = (ready.first + link.occupied(bytes)).max(ready.last + segment);
        let arrival = Arrival { first: ready.first + segment + link.latency, last: sent + link.latency };
        (Head::new(self.tag, Some(arrival)), sent)
    }

    /// When the first segment and the last byte from another rank can be passed on.
    fn ready(&self, get: &Get<'_>) -> Arrival {
        let (now, Some(network)) = (self.times.now, self.network()) else {
            return Arrival { first: self.times.now, last: self.times.now };
        };
        let bytes = get.into.len();
        let reducing = |bytes: usize| if get.reduction.is_some() { network.reducing(bytes) } else { 0.0 };
        let (arrival, segment) = (get.head.arrival(), reducing(bytes.min(SEGMENT)));
        let first = arrival.first.max(now);
        Arrival {
            first: first + segment,
            last: (arrival.last.max(now) + segment).max(first + reducing(bytes)),
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
        let (mut gone, len) = (None, bytes.len());
        let mut get = Get::new(from.unwrap_or(0), bytes).reducing(reduction);
        get.head.len = if self.network().is_some() { HEAD } else { WORD };
        let is_simulated = self.network().is_some();
        let now = self.times.now;
        let mut ready = Arrival { first: now, last: now };
        let mut head = to.map(|to| self.relayed(to, len, ready));
        if from.is_none() {
            get.done = get.head.len + len;
        }
        let (mut put_done, mut has_begun) = (0, from.is_none());
        loop {
            let mut moved = if get.is_done() { 0 } else { self.get(&mut get)? };
            if !has_begun && get.done >= get.head.len {
                has_begun = true;
                ready = self.ready(&get);
                head = to.map(|to| self.relayed(to, len, ready));
            }
            let received = get.received();
            let mut sent_all = true;
            // The times that are passed on follow from those that come.
            if let Some((to, (head, _))) = to.zip(head) {
                let mut put = Put { to, bytes: get.into, head, done: put_done };
                if !put.is_done() && (has_begun || !is_simulated) {
                    moved += self.put(&mut put, received)?;
                }
                (put_done, sent_all) = (put.done, put.is_done());
            }
            if get.is_done() && sent_all {
                let sent = head.map_or(0.0, |(_, sent)| sent);
                self.times.now = now.max(ready.last).max(sent);
                self.times.receiving = self.times.receiving.max(ready.last);
                return Ok(());
            }
            let waits = from.filter(|_| !get.is_done()).into_iter().chain(to.filter(|_| !sent_all));
            self.wait(&mut patience, moved, &mut gone, waits)?;
        }
    }

    fn put(&self, put: &mut Put<'_>, limit: usize) -> Result<usize> {
        let channel = self.shared.segment.channel(self.rank, put.to);
        put.step(&channel, limit).ok_or_else(|| self.fail(put.to, "its queue is damaged"))
    }

    fn get(&mut self, get: &mut Get<'_>) -> Result<usize> {
        let shared = self.shared;
        let channel = shared.segment.channel(get.from, self.rank);
        let before = get.done;
        let damaged = |this: &Self| this.fail(get.from, "its queue is damaged");
        let head = get.head.len;
        if get.done < head {
            get.done += channel.read(&mut get.head.bytes[get.done..head], 1).ok_or_else(|| damaged(self))?;
            if get.done >= WORD && u64::from_ne_bytes(get.head.word(0)) != self.tag {
                let (rank, what) = (self.rank, &self.what);
                return Err(
                    self.fail(get.from, &format!("its call does not match that of rank {rank}, {what}"))
                );
            }
        }
        while get.done >= head && !get.is_done() {
            let at = get.done - head;
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
