//! [`Team`]: the threads of the baselines, as many as the measured device has.
//!
//! A single thread is the caller's. Several are a pool that lives as long as the team, so that a baseline includes waking
//! threads, but not starting them.

use rayon::prelude::*;

use crate::failure::{Failure, Result};

pub struct Team {
    threads: usize,
    pool: Option<rayon::ThreadPool>,
}

impl Team {
    pub fn new(threads: usize) -> Result<Self> {
        let build = || rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let cannot = |error| Failure::Machine(format!("cannot start {threads} threads: {error}"));
        let pool = (threads > 1).then(build).transpose().map_err(cannot)?;
        Ok(Self { threads, pool })
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on a thread of the pool, from which [`Team::share`] distributes parts faster.
    pub fn inside<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Splits `data` into one part per thread, each (except for the last) with a multiple of `grain` elements; calls `work` with the index
    /// of the part's first element and the part.
    pub fn share<T: Send>(&self, data: &mut [T], grain: usize, work: impl Fn(usize, &mut [T]) + Sync) {
        let part = data.len().div_ceil(grain).div_ceil(self.threads).max(1) * grain;
        match &self.pool {
            Some(pool) => pool.install(|| {
                data.par_chunks_mut(part).enumerate().for_each(|(index, chunk)| work(index * part, chunk));
            }),
            None => work(0, data),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_is_someones() {
        for threads in [1, 2, 3, 7] {
            let team = Team::new(threads).expect("threads");
            let mut data = vec![0; 50];
            team.share(&mut data, 4, |first, part| {
                assert!(
                    threads == 1
                        || first % 4 == 0 && part.len() <= 52usize.div_ceil(threads).next_multiple_of(4)
                );
                part.iter_mut().enumerate().for_each(|(i, value)| *value += first + i);
            });
            assert_eq!(data, (0..50).collect::<Vec<_>>());
        }
    }
}
