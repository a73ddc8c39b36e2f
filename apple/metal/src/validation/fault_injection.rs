//! Fault injection for tests: the n-th operation of a kind on a device fails.
//!
//! `elinvar_apple_inject` injects one fault; `ELINVAR_APPLE_FAULTS` injects faults for the first device, as a comma-separated list of
//! `SITE:NTH[:CODE[:ENCODER]]`: `allocation:3,execution:2:3:0`.

use elinvar_objc::watch::fatal;
use elinvar_objc::{Argument, Id, Ref};
use parking_lot::Mutex;

use crate::device::Device;
use crate::values::execution_error;

/// Operations that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// Allocation of a buffer or heap; returns nil.
    Allocation,
    /// Compilation or loading of a library; returns an error.
    Library,
    /// Creation of a pipeline; returns an error.
    Pipeline,
    /// Creation of a command queue; returns nil.
    Queue,
    /// Creation of a command buffer; returns nil.
    CommandBuffer,
    /// Creation of an encoder; returns nil.
    Encoder,
    /// Creation of an event, a fence, a counter sample buffer, a residency set, an indirect command buffer or an archive; returns nil or an
    /// error.
    Object,
    /// Execution of a command buffer; ends in an error.
    Execution,
    /// Sampling of counters; the sample is `MTLCounterErrorValue`.
    Sample,
}

/// In the order of their numbers.
const SITES: [(&str, Site); 9] = [
    ("allocation", Site::Allocation),
    ("library", Site::Library),
    ("pipeline", Site::Pipeline),
    ("queue", Site::Queue),
    ("command-buffer", Site::CommandBuffer),
    ("encoder", Site::Encoder),
    ("object", Site::Object),
    ("execution", Site::Execution),
    ("sample", Site::Sample),
];

/// An injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// An `MTLCommandBufferError`. The code of a removed device removes the device, at any site.
    pub code: isize,
    /// Index of the encoder that fails, from 0; earlier encoders have run. Negative for none.
    pub encoder: isize,
}

struct Planned {
    site: Site,
    /// Number of operations that succeed before.
    left: u64,
    fault: Fault,
}

/// Injected faults of a device.
#[derive(Default)]
pub struct Plan(Mutex<Vec<Planned>>);

impl Plan {
    /// The faults from the environment.
    pub fn of_environment() -> Self {
        let text = std::env::var("ELINVAR_APPLE_FAULTS").unwrap_or_default();
        let plan = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            if plan.parse(part).is_none() {
                fatal(format_args!("ELINVAR_APPLE_FAULTS: `{part}` is not SITE:NTH[:CODE[:ENCODER]]"));
            }
        }
        plan
    }

    fn parse(&self, part: &str) -> Option<()> {
        let mut fields = part.split(':');
        let name = fields.next()?;
        let site = SITES.iter().find(|(known, _)| *known == name)?.1;
        let nth = fields.next()?.parse().ok()?;
        let code = fields.next().map_or(Some(execution_error::INTERNAL), |code| code.parse().ok())?;
        let encoder = fields.next().map_or(Some(-1), |encoder| encoder.parse().ok())?;
        self.add(site, nth, Fault { code, encoder });
        Some(())
    }

    /// Makes the `nth` operation from now fail; 1 is the next.
    pub fn add(&self, site: Site, nth: u64, fault: Fault) {
        self.0.lock().push(Planned { site, left: nth.saturating_sub(1), fault });
    }

    /// Called for each operation: returns how it fails, if it does.
    pub fn now(&self, site: Site) -> Option<Fault> {
        let mut plan = self.0.lock();
        let due = plan.iter().position(|planned| planned.site == site && planned.left == 0);
        for planned in plan.iter_mut().filter(|planned| planned.site == site) {
            planned.left = planned.left.saturating_sub(1);
        }
        due.map(|at| plan.remove(at).fault)
    }
}

/// Makes the `nth` operation from now at a site of a device fail. Sites are numbered as in [`Site`], from 0; `code` and `encoder` are for
/// executions.
///
/// # Safety
/// `device` is a device.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_inject(device: Id, site: u32, nth: u64, code: isize, encoder: isize) {
    // SAFETY: the caller's promise.
    let device = unsafe { Ref::<Device>::from_raw(device) };
    let Some((_, site)) = SITES.get(site as usize) else {
        fatal(format_args!("elinvar_apple_inject: unknown site {site}"));
    };
    device.faults.add(*site, nth, Fault { code, encoder });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_at_their_number() {
        let plan = Plan::default();
        assert!(plan.parse("allocation:2").is_some() && plan.parse("execution:1:3:0").is_some());
        assert!(plan.parse("nothing:1").is_none() && plan.parse("library").is_none());
        let internal = Fault { code: 1, encoder: -1 };
        let now: Vec<_> = (0..3).map(|_| plan.now(Site::Allocation)).collect();
        assert_eq!(now, [None, Some(internal), None]);
        assert_eq!(plan.now(Site::Execution), Some(Fault { code: 3, encoder: 0 }));
        assert_eq!(plan.now(Site::Execution), None);
    }

    #[test]
    fn faults_of_the_same_site_are_independent() {
        let plan = Plan::default();
        let (a, b) = (Fault { code: 2, encoder: -1 }, Fault { code: 3, encoder: -1 });
        plan.add(Site::Execution, 1, a);
        plan.add(Site::Execution, 2, b);
        assert_eq!([plan.now(Site::Execution), plan.now(Site::Execution)], [Some(a), Some(b)]);
    }
}
