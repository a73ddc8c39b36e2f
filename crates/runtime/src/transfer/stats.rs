//! [`TransferStats`]: statistics of copies between two devices.

use std::time::Duration;

use elinvar_driver::sync::Mutex;

use super::Route;
use crate::{Completion, Device, Timestamp};

/// Statistics of the copies from one device to another that took one route.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TransferStats {
    /// The route.
    pub route: Route,
    /// Number of copies that have succeeded.
    pub copies: u64,
    /// Number of copies that have failed, or did not run.
    pub failed: u64,
    /// Number of copies that are pending.
    pub pending: u64,
    /// Bytes of those that have succeeded.
    pub bytes: u64,
    /// Sum of their durations, on the clocks of the streams' devices. Copies may overlap.
    pub time: Duration,
}

impl TransferStats {
    /// Bytes per second of the copies that have succeeded; `None` before the first.
    pub fn bandwidth(&self) -> Option<f64> {
        let seconds = self.time.as_secs_f64();
        (seconds > 0.0).then(|| self.bytes as f64 / seconds)
    }
}

/// The copies from one device to others.
#[derive(Default)]
pub(crate) struct TransferLog(Mutex<Log>);

#[derive(Default)]
struct Log {
    /// By number of the target's device.
    ended: Vec<(u64, TransferStats)>,
    pending: Vec<Pending>,
}

struct Pending {
    to: u64,
    route: Route,
    bytes: u64,
    begin: Timestamp,
    end: Timestamp,
    done: Completion,
}

impl TransferLog {
    /// Enters a copy that has been submitted.
    pub(crate) fn begin(
        &self,
        to: &Device,
        route: Route,
        bytes: u64,
        (begin, end): (Timestamp, Timestamp),
        done: &Completion,
    ) {
        let pending = Pending { to: to.number(), route, bytes, begin, end, done: done.clone() };
        let mut log = self.0.lock();
        log.settle();
        log.pending.push(pending);
    }

    /// Statistics of the copies to a device.
    pub(crate) fn stats(&self, to: &Device) -> Vec<TransferStats> {
        let mut log = self.0.lock();
        log.settle();
        let to = to.number();
        for at in 0..log.pending.len() {
            let route = log.pending[at].route;
            if log.pending[at].to == to {
                log.row(to, route);
            }
        }
        let pending =
            |route| log.pending.iter().filter(|one| one.to == to && one.route == route).count() as u64;
        let rows = log.ended.iter().filter(|(number, _)| *number == to);
        rows.map(|(_, row)| TransferStats { pending: pending(row.route), ..row.clone() }).collect()
    }
}

impl Log {
    /// Enters the copies that have ended.
    fn settle(&mut self) {
        let (ended, pending) =
            std::mem::take(&mut self.pending).into_iter().partition(|one| one.done.is_done());
        self.pending = pending;
        let ended: Vec<Pending> = ended;
        for one in ended {
            let time = one.end.since(&one.begin).filter(|_| one.done.timing().is_some());
            let row = self.row(one.to, one.route);
            match time {
                Some(time) => {
                    (row.copies, row.bytes, row.time) =
                        (row.copies + 1, row.bytes + one.bytes, row.time + time);
                }
                None => row.failed += 1,
            }
        }
    }

    fn row(&mut self, to: u64, route: Route) -> &mut TransferStats {
        let known = self.ended.iter().position(|(number, row)| (*number, row.route) == (to, route));
        let at = known.unwrap_or_else(|| {
            let (copies, failed, pending, bytes, time) = (0, 0, 0, 0, Duration::ZERO);
            self.ended.push((to, TransferStats { route, copies, failed, pending, bytes, time }));
            self.ended.len() - 1
        });
        &mut self.ended[at].1
    }
}
