//! Formats the fault records of kernels with bounds checks.

use elinvar_driver::{Arg, Fault, Signature};
use elinvar_spmd::bounds::{Checks, FaultRecord, RootKind, Site};

/// The meaning of a kernel's fault records.
pub struct Bounds {
    checks: Checks,
    signature: Signature,
}

impl Bounds {
    /// For a kernel with these checks.
    pub fn new(checks: Checks, signature: Signature) -> Self {
        Self { checks, signature }
    }

    /// The fault of a record.
    pub fn fault(&self, record: &FaultRecord) -> Fault {
        let site = self.checks.sites.get(record.site as usize);
        let root = self.checks.roots.get(record.root as usize).map(|root| &root.kind);
        let verb =
            match (site.is_some_and(|site| site.writes), site.is_some_and(|site| is_within(site, record))) {
                (true, false) => "write to",
                (false, false) => "read of",
                (true, true) => "misaligned write to",
                (false, true) => "misaligned read of",
            };
        let [x, y, z] = record.thread;
        let place = match root {
            Some(RootKind::Argument(index)) => match self.signature.args.get(*index) {
                Some(arg) => element(*index, arg, record),
                None => format!("argument {index}"),
            },
            Some(RootKind::Threadgroup(name)) => bytes(&format!("the threadgroup variable `{name}`"), record),
            Some(RootKind::Private) => bytes("a private array", record),
            Some(RootKind::Constant(_)) => bytes("a constant array", record),
            Some(RootKind::Null) => format!("address {:#x} by a null pointer", record.offset),
            None => bytes("memory", record),
        };
        let location = site.and_then(|site| site.location.as_ref());
        Fault {
            kernel: self.signature.name.clone(),
            message: format!("{verb} {place}, by the thread at ({x}, {y}, {z})"),
            location: location.map(|l| format!("{}:{}", l.file, l.line)),
            launch: None,
        }
    }
}

/// Whether an access is in bounds; then it was misaligned.
fn is_within(site: &Site, record: &FaultRecord) -> bool {
    let end = u64::try_from(record.offset).ok().and_then(|offset| offset.checked_add(site.bytes));
    site.bytes > 0 && end.is_some_and(|end| end <= record.size)
}

fn element(index: usize, arg: &Arg, record: &FaultRecord) -> String {
    let size = i64::try_from(arg.element_size.max(1)).unwrap_or(i64::MAX);
    let (at, count) = (record.offset.div_euclid(size), record.size / size.unsigned_abs());
    let elements = match record.size {
        0 => "unbound or empty".into(),
        _ => format!("{count} elements"),
    };
    format!("element {at} of argument {index} `{}` ({}, {elements})", arg.name, arg.element)
}

fn bytes(what: &str, record: &FaultRecord) -> String {
    format!("byte {} of {what} of {} bytes", record.offset, record.size)
}
