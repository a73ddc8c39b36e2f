//! [`TransferStats`]: statistics of copies between two devices.

use std::collections::VecDeque;
use std::time::Duration;

use elinvar_driver::sync::Mutex;

use super::Route;
use crate::{Completion, Device, Timestamp};

/// Number of pending copies at which all are asked whether they have ended.
const MANY: usize = 256;

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
    pending: VecDeque<Pending>,
}

struct Pending {
    to: u64,
    route: Route,
    bytes: u64,
    /// Begin and end; `None` for those of the submission.
    times: Option<(Timestamp, Timestamp)>,
    done: Completion,
}

impl Pending {
    /// How long the copy took; `None` if it failed.
    fn time(&self) -> Option<Duration> {
        let whole = self.done.timing()?;
        match &self.times {
            Some((begin, end)) => end.since(begin),
            None => Some(Duration::from_nanos(whole.end_ns.saturating_sub(whole.start_ns))),
        }
    }
}

impl TransferLog {
    /// Enters a copy that has been submitted.
    pub(crate) fn begin(
        &self,
        to: &Device,
        route: Route,
        bytes: u64,
        times: Option<(Timestamp, Timestamp)>,
        done: &Completion,
    ) {
        let pending = Pending { to: to.number(), route, bytes, times, done: done.outcome_only() };
        let mut log = self.0.lock();
        log.pending.push_back(pending);
        // Those of one stream end in order.
        while log.pending.front().is_some_and(|first| first.done.is_done()) {
            log.pending.pop_front().into_iter().for_each(|first| log.enter(&first));
        }
        if log.pending.len() >= MANY {
            log.settle();
        }
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
        let all = std::mem::take(&mut self.pending).into_iter();
        let (ended, pending): (VecDeque<Pending>, _) = all.partition(|one| one.done.is_done());
        self.pending = pending;
        ended.iter().for_each(|one| self.enter(one));
    }

    /// Enters a copy that has ended.
    fn enter(&mut self, one: &Pending) {
        let row = self.row(one.to, one.route);
        match one.time() {
            Some(time) => {
                (row.copies, row.bytes, row.time) = (row.copies + 1, row.bytes + one.bytes, row.time + time);
            }
            None => row.failed += 1,
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
