//! Model of the pool: two threads allocate and free blocks while a third trims.

use std::time::Duration;

use elinvar_driver::Error;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::model;
use crate::stats::PoolLimits;
use crate::stock::Stock;

/// A driver with a limited number of blocks, and the number of blocks allocated.
struct Driver {
    room: usize,
    out: AtomicUsize,
}

struct Block(Arc<Driver>);

impl Block {
    fn new(driver: &Arc<Driver>) -> Result<Self, Error> {
        if driver.out.fetch_add(1, Ordering::SeqCst) < driver.room {
            return Ok(Self(driver.clone()));
        }
        driver.out.fetch_sub(1, Ordering::SeqCst);
        Err(Error::OutOfMemory { requested: 10, available: 0 })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.0.out.fetch_sub(1, Ordering::SeqCst);
    }
}

fn stock(budget: u64) -> Arc<Stock<u8, Block>> {
    Arc::new(Stock::new(PoolLimits { budget, idle_bytes: budget, idle_time: Duration::ZERO }))
}

/// Allocates and frees a block; returns whether the allocation succeeded.
fn use_one(stock: &Stock<u8, Block>, driver: &Arc<Driver>) -> bool {
    match stock.take(0, 10, 10, || Block::new(driver)) {
        Ok(given) => {
            stock.put(0, 10, given.size, given.block);
            true
        }
        Err(Error::OutOfMemory { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn blocks_and_counts_agree_whatever_the_order() {
    model(|| {
        let driver = Arc::new(Driver { room: 2, out: AtomicUsize::new(0) });
        let stock = stock(1000);
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (stock, driver) = (stock.clone(), driver.clone());
                thread::spawn(move || assert!(use_one(&stock, &driver), "there is a block for each"))
            })
            .collect();
        stock.trim(0);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = stock.stats();
        assert_eq!((stats.live_bytes, stats.live_buffers, stats.hits + stats.misses), (0, 0, 2));
        assert_eq!(stats.idle_blocks as usize, driver.out.load(Ordering::SeqCst));
        assert_eq!(stats.misses, stats.idle_blocks + stats.trimmed_blocks);
        drop(stock);
        assert_eq!(driver.out.load(Ordering::SeqCst), 0);
    });
}

/// The driver has one block, which is being freed when another thread allocates.
#[test]
fn what_is_just_being_freed_is_waited_for() {
    model(|| {
        let driver = Arc::new(Driver { room: 1, out: AtomicUsize::new(0) });
        let stock = stock(1000);
        let idle = stock.take(1, 10, 10, || Block::new(&driver)).map_err(|_| "no room").unwrap();
        stock.put(1, 10, idle.size, idle.block);
        let trims = {
            let stock = stock.clone();
            thread::spawn(move || stock.trim(0))
        };
        assert!(use_one(&stock, &driver), "of another kind");
        trims.join().unwrap();
        assert_eq!(stock.stats().refused, 0);
    });
}

/// A budget of one block holds for overlapping requests.
#[test]
fn a_budget_is_never_exceeded() {
    model(|| {
        let driver = Arc::new(Driver { room: 1, out: AtomicUsize::new(0) });
        let stock = stock(10);
        let other = {
            let (stock, driver) = (stock.clone(), driver.clone());
            thread::spawn(move || use_one(&stock, &driver))
        };
        let served = [use_one(&stock, &driver), other.join().unwrap()];
        let stats = stock.stats();
        assert!(served.contains(&true), "{stats:?}");
        assert_eq!(stats.refused as usize, served.iter().filter(|served| !**served).count());
        assert_eq!((stats.peak_block_bytes, stats.live_bytes), (10, 0));
        assert!(use_one(&stock, &driver), "what was set aside is free again");
    });
}
