//! [`Shelf`]: the idle blocks of a pool and its counters, as one value under one lock.
//!
//! A request is a [`Shelf::take`], which returns an idle block or reserves room for one that the caller then has the driver
//! allocate; [`Shelf::made`] or [`Shelf::refuse`] reports the result. Blocks to be freed are moved to a list that the caller
//! drops after releasing the lock. The shelf does not call the driver, and receives the time as an argument.
//!
//! Invariant: whenever the lock is free, the counters match the blocks in use and the idle blocks.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::class::largest_fit;
use super::stats::{PoolLimits, PoolStats, Pressure};

/// Class of interchangeable blocks: kind `K`, and size in bytes.
type Class<K> = (K, u64);

/// A block and the time when it became idle. Within a class, the most recent is reused first and the oldest is freed first.
struct Idle<B> {
    block: B,
    since: Instant,
}

/// Result of [`Shelf::take`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<B> {
    /// An idle block and its size in bytes.
    Block(B, u64),
    /// No idle block; room for a new one is reserved.
    Room,
    /// No idle block, and a new one would exceed the budget, of which this many bytes are left.
    Full(u64),
}

/// Idle blocks and counters.
pub(super) struct Shelf<K, B> {
    idle: BTreeMap<Class<K>, VecDeque<Idle<B>>>,
    /// Number of blocks in use, current and maximum.
    given: BTreeMap<Class<K>, (u64, u64)>,
    pub(super) limits: PoolLimits,
    /// Pressure by the system's available memory.
    pub(super) outside: Pressure,
    /// Pressure reported by the platform.
    noticed: Pressure,
    /// Bytes of blocks that are being allocated.
    reserved: u64,
    counts: PoolStats,
}

impl<K: Copy + Ord, B> Shelf<K, B> {
    pub(super) fn new(limits: PoolLimits) -> Self {
        let (outside, noticed) = (Pressure::Normal, Pressure::Normal);
        let (idle, given, counts) = (BTreeMap::new(), BTreeMap::new(), PoolStats::default());
        Self { idle, given, limits, outside, noticed, reserved: 0, counts }
    }

    pub(super) fn stats(&self) -> PoolStats {
        let largest =
            self.idle.iter().filter(|(_, blocks)| !blocks.is_empty()).map(|((_, size), _)| *size).max();
        PoolStats { largest_idle_bytes: largest.unwrap_or(0), pressure: self.pressure(), ..self.counts }
    }

    pub(super) fn live_and_idle(&self) -> (u64, u64) {
        (self.counts.live_bytes, self.counts.idle_bytes)
    }

    pub(super) fn pressure(&self) -> Pressure {
        Pressure::of_budget(self.block_bytes(), self.limits.budget).max(self.outside).max(self.noticed)
    }

    /// Takes a block of kind `kind` for a request of `bytes`, for which a new block would have `size` bytes. Blocks that must be
    /// freed to make room are moved to `gone`.
    pub(super) fn take(&mut self, kind: K, bytes: u64, size: u64, gone: &mut Vec<B>) -> Taken<B> {
        let fitting = self.idle.range_mut((kind, size)..=(kind, largest_fit(size)));
        let found = fitting.into_iter().find_map(|((_, size), blocks)| Some((blocks.pop_back()?, *size)));
        if let Some((Idle { block, .. }, size)) = found {
            self.counts.idle_bytes -= size;
            self.counts.idle_blocks -= 1;
            self.counts.hits += 1;
            self.give_out(kind, bytes, size);
            return Taken::Block(block, size);
        }
        let left = self.limits.budget.saturating_sub(self.counts.live_block_bytes + self.reserved);
        if size > left {
            self.counts.refused += 1;
            return Taken::Full(left);
        }
        self.shrink(left - size, gone);
        self.reserved += size;
        Taken::Room
    }

    /// The block for which [`Taken::Room`] reserved room was allocated.
    pub(super) fn made(&mut self, kind: K, bytes: u64, size: u64) {
        self.reserved -= size;
        self.counts.misses += 1;
        self.give_out(kind, bytes, size);
    }

    /// The block for which [`Taken::Room`] reserved room could not be allocated.
    pub(super) fn refuse(&mut self, size: u64) {
        self.reserved -= size;
        self.counts.refused += 1;
    }

    /// Returns a block that served a request of `bytes`.
    pub(super) fn put(&mut self, kind: K, bytes: u64, size: u64, block: B, now: Instant, gone: &mut Vec<B>) {
        self.end(kind, bytes, size);
        self.counts.idle_bytes += size;
        self.counts.idle_blocks += 1;
        self.idle.entry((kind, size)).or_default().push_back(Idle { block, since: now });
        self.shrink(self.to_keep(), gone);
    }

    /// Sets the pressure reported by the platform.
    pub(super) fn notice(&mut self, pressure: Pressure, gone: &mut Vec<B>) {
        self.noticed = pressure;
        self.shrink(self.to_keep(), gone);
    }

    /// Maximum bytes of idle blocks at the current pressure.
    fn to_keep(&self) -> u64 {
        match self.pressure() {
            Pressure::Normal => self.limits.idle_bytes,
            Pressure::Elevated => self.limits.idle_bytes / 2,
            Pressure::High | Pressure::Critical => 0,
        }
    }

    /// Counts a block that served a request of `bytes` as freed.
    pub(super) fn discard(&mut self, kind: K, bytes: u64, size: u64) {
        self.end(kind, bytes, size);
    }

    /// Maximum number of blocks of each class in use at a time.
    pub(super) fn most_given(&self) -> Vec<(K, u64, u64)> {
        self.given.iter().map(|((kind, size), (_, most))| (*kind, *size, *most)).collect()
    }

    /// Moves the blocks that have been idle for longest to `gone`, until at most `keep` bytes are idle. Returns the number of bytes
    /// moved.
    pub(super) fn shrink(&mut self, keep: u64, gone: &mut Vec<B>) -> u64 {
        let before = self.counts.idle_bytes;
        while self.counts.idle_bytes > keep {
            let age =
                |(class, blocks): (&Class<K>, &VecDeque<Idle<B>>)| Some((blocks.front()?.since, *class));
            let Some((_, class)) = self.idle.iter().filter_map(age).min_by_key(|(since, _)| *since) else {
                break;
            };
            self.drop_oldest(class, gone);
        }
        self.idle.retain(|_, blocks| !blocks.is_empty());
        before - self.counts.idle_bytes
    }

    /// Moves the blocks that became idle at or before `then` to `gone`.
    pub(super) fn drop_idle_since(&mut self, then: Instant, gone: &mut Vec<B>) {
        let stale = |blocks: &VecDeque<Idle<B>>| blocks.iter().take_while(|idle| idle.since <= then).count();
        let stale: Vec<_> = self.idle.iter().map(|(class, blocks)| (*class, stale(blocks))).collect();
        for (class, count) in stale {
            (0..count).for_each(|_| self.drop_oldest(class, gone));
        }
        self.idle.retain(|_, blocks| !blocks.is_empty());
    }

    /// Counts imported host memory.
    pub(super) fn wrap(&mut self, bytes: u64) {
        self.counts.wrapped_bytes += bytes;
        self.counts.live_buffers += 1;
    }

    /// Undoes [`Shelf::wrap`].
    pub(super) fn unwrap(&mut self, bytes: u64) {
        self.counts.wrapped_bytes -= bytes;
        self.counts.live_buffers -= 1;
    }

    fn drop_oldest(&mut self, class: Class<K>, gone: &mut Vec<B>) {
        let oldest = self.idle.get_mut(&class).and_then(VecDeque::pop_front);
        if let Some(Idle { block, .. }) = oldest {
            let size = class.1;
            self.counts.idle_bytes -= size;
            self.counts.idle_blocks -= 1;
            self.counts.trimmed_blocks += 1;
            self.counts.trimmed_bytes += size;
            gone.push(block);
        }
    }

    fn give_out(&mut self, kind: K, bytes: u64, size: u64) {
        let (now, most) = self.given.entry((kind, size)).or_default();
        *now += 1;
        *most = (*most).max(*now);
        let counts = &mut self.counts;
        counts.live_bytes += bytes;
        counts.live_buffers += 1;
        counts.live_block_bytes += size;
        counts.total_bytes += bytes;
        counts.peak_bytes = counts.peak_bytes.max(counts.live_bytes);
        counts.peak_block_bytes = counts.peak_block_bytes.max(counts.live_block_bytes + counts.idle_bytes);
    }

    fn end(&mut self, kind: K, bytes: u64, size: u64) {
        if let Some((now, _)) = self.given.get_mut(&(kind, size)) {
            *now -= 1;
        }
        self.counts.live_bytes -= bytes;
        self.counts.live_buffers -= 1;
        self.counts.live_block_bytes -= size;
    }

    fn block_bytes(&self) -> u64 {
        self.counts.live_block_bytes + self.counts.idle_bytes + self.reserved
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: PoolLimits =
        PoolLimits { budget: 1000, idle_bytes: 500, idle_time: Duration::from_secs(60) };

    /// A shelf of named blocks of one kind, and what has gone from it.
    struct Fixture {
        shelf: Shelf<u8, &'static str>,
        gone: Vec<&'static str>,
        start: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { shelf: Shelf::new(LIMITS), gone: Vec::new(), start: Instant::now() }
        }

        fn at(&self, second: u64) -> Instant {
            self.start + Duration::from_secs(second)
        }

        fn take(&mut self, size: u64) -> Taken<&'static str> {
            let taken = self.shelf.take(0, size, size, &mut self.gone);
            if taken == Taken::Room {
                self.shelf.made(0, size, size);
            }
            taken
        }

        fn put(&mut self, size: u64, block: &'static str, second: u64) {
            let now = self.at(second);
            self.shelf.put(0, size, size, block, now, &mut self.gone);
        }
    }

    #[test]
    fn the_block_that_came_last_goes_out_first() {
        let mut all = Fixture::new();
        for _ in 0..3 {
            assert_eq!(all.take(10), Taken::Room);
        }
        all.put(10, "a", 0);
        all.put(10, "b", 1);
        assert_eq!(all.take(10), Taken::Block("b", 10));
        assert_eq!(all.take(10), Taken::Block("a", 10));
        let stats = all.shelf.stats();
        assert_eq!((stats.hits, stats.misses, stats.live_buffers, stats.live_bytes), (2, 3, 3, 30));
        assert_eq!((stats.total_bytes, stats.peak_bytes, stats.idle_bytes), (50, 30, 0));
    }

    #[test]
    fn a_block_serves_its_kind_and_what_is_little_smaller() {
        let mut all = Fixture::new();
        assert_eq!(all.take(100), Taken::Room);
        all.put(100, "a", 0);
        assert_eq!(all.shelf.take(1, 100, 100, &mut all.gone), Taken::Room, "another kind");
        all.shelf.refuse(100);
        assert_eq!(all.take(79), Taken::Room, "more than a quarter larger");
        assert_eq!(all.take(101), Taken::Room);
        assert_eq!(all.take(80), Taken::Block("a", 100));
        let stats = all.shelf.stats();
        assert_eq!((stats.live_bytes, stats.live_block_bytes, stats.refused), (260, 280, 1));
    }

    #[test]
    fn what_was_idle_longest_goes_when_more_is_kept_than_allowed() {
        let mut all = Fixture::new();
        for size in [100, 150, 200, 100] {
            all.take(size);
        }
        all.put(150, "b", 0);
        all.put(100, "a", 1);
        all.put(200, "c", 2);
        assert!(all.gone.is_empty());
        all.put(100, "d", 3);
        assert_eq!(all.gone, ["b"], "400 of 500 bytes are left");
        let stats = all.shelf.stats();
        assert_eq!(
            (stats.trimmed_blocks, stats.trimmed_bytes, stats.idle_bytes, stats.idle_blocks),
            (1, 150, 400, 3)
        );
        assert_eq!((stats.largest_idle_bytes, stats.fragmentation()), (200, 0.5));
        assert_eq!(all.shelf.shrink(0, &mut all.gone), 400);
        assert_eq!((all.gone.len(), all.shelf.stats().fragmentation()), (4, 0.0));
    }

    #[test]
    fn idle_blocks_make_room_before_a_request_is_refused() {
        let mut all = Fixture::new();
        all.take(500);
        all.take(200);
        all.put(200, "a", 0);
        assert_eq!(all.take(501), Taken::Full(500));
        assert!(all.gone.is_empty(), "trimming would not have helped");
        assert_eq!(all.take(400), Taken::Room);
        assert_eq!(all.gone, ["a"]);
        let stats = all.shelf.stats();
        assert_eq!((stats.refused, stats.peak_block_bytes, stats.pressure), (1, 900, Pressure::High));
    }

    #[test]
    fn room_that_is_set_aside_counts_until_the_block_is_made_or_not() {
        let mut all = Fixture::new();
        assert_eq!(all.shelf.take(0, 600, 600, &mut all.gone), Taken::Room);
        assert_eq!(all.take(401), Taken::Full(400));
        all.shelf.refuse(600);
        assert_eq!(all.take(401), Taken::Room);
        let stats = all.shelf.stats();
        assert_eq!((stats.peak_bytes, stats.total_bytes, stats.misses, stats.refused), (401, 401, 1, 2));
    }

    #[test]
    fn the_higher_the_pressure_the_less_is_kept() {
        // At 850 the first is not kept, which leaves 750 for the second; at 1000 neither is.
        for (live, kept) in [(500, 200), (700, 100), (850, 100), (1000, 0)] {
            let mut all = Fixture::new();
            all.shelf.limits.idle_bytes = 200;
            all.take(live - 200);
            for _ in 0..2 {
                all.take(100);
            }
            all.put(100, "a", 0);
            all.put(100, "b", 1);
            assert_eq!(all.shelf.stats().idle_bytes, kept, "{live}");
        }
        let mut all = Fixture::new();
        all.shelf.outside = Pressure::High;
        all.take(100);
        all.put(100, "a", 0);
        assert_eq!(all.gone, ["a"], "the system is short of memory");
    }

    #[test]
    fn blocks_go_when_they_have_been_idle_for_long() {
        let mut all = Fixture::new();
        for size in [10, 10, 20] {
            all.take(size);
        }
        all.put(10, "a", 0);
        all.put(20, "c", 1);
        all.put(10, "b", 2);
        let then = all.at(1);
        all.shelf.drop_idle_since(then, &mut all.gone);
        assert_eq!(all.gone, ["a", "c"]);
        assert_eq!(all.take(10), Taken::Block("b", 10));
        assert_eq!(all.shelf.stats().trimmed_bytes, 30);
    }
}
