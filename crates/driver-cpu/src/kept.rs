//! What of a kernel lies in the cache, as bytes: its signature, and its machine code with what belongs to it.
//!
//! Every field of every type is named here: one that is added does not compile until it is kept, too.

use std::sync::atomic::AtomicU64;

use elinvar_cache::{Reader, Writer};
use elinvar_code::{Bounds, read_checks, write_checks};
use elinvar_driver::Signature;
use elinvar_msl::record;
use elinvar_spmd::bounds::Checks;

use crate::crash::Description;
use crate::kernel::Kernel;
use crate::loader::Code;

/// A kernel built for one threadgroup size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// The shared object.
    pub(crate) bytes: Vec<u8>,
    pub(crate) scratch_bytes: u64,
    /// Whether groups have to start in ascending order.
    pub(crate) ascending: bool,
    /// Message, and `file:line` when known, of each fault code.
    pub(crate) faults: Vec<(String, Option<String>)>,
    /// Of a kernel with bounds checks.
    pub(crate) checks: Option<Checks>,
}

impl Object {
    /// The kernel of this signature, with its code loaded.
    pub(crate) fn kernel(self, code: Code, signature: &Signature) -> Kernel {
        Kernel {
            name: signature.name.clone(),
            code,
            crash: Description::new(&signature.name, self.checks.is_some()),
            scratch_bytes: self.scratch_bytes,
            faults: self.faults,
            bounds: self.checks.map(|checks| Bounds::new(checks, signature.clone())),
            ascending: self.ascending,
            group_ns: AtomicU64::new(0),
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let Self { bytes, scratch_bytes, ascending, faults, checks } = self;
        let mut w = Writer::new();
        w.bytes(bytes);
        w.number(*scratch_bytes);
        w.flag(*ascending);
        w.list(faults, |w, (message, place)| {
            w.text(message);
            w.option(place.as_deref(), Writer::text);
        });
        w.option(checks.as_ref(), write_checks);
        w.finish()
    }

    pub(crate) fn read(record: &[u8]) -> Option<Self> {
        let mut r = Reader::new(record);
        let object = Self {
            bytes: r.bytes()?.to_vec(),
            scratch_bytes: r.number()?,
            ascending: r.flag()?,
            faults: r.list(|r| Some((r.text()?, r.option(Reader::text)?)))?,
            checks: r.option(read_checks)?,
        };
        r.end(object)
    }
}

pub(crate) fn write_signature(signature: &Signature) -> Vec<u8> {
    let mut w = Writer::new();
    record::write_signature(&mut w, signature);
    w.finish()
}

pub(crate) fn read_signature(bytes: &[u8]) -> Option<Signature> {
    let mut r = Reader::new(bytes);
    let signature = record::read_signature(&mut r)?;
    r.end(signature)
}

#[cfg(test)]
mod tests {
    use elinvar_spmd::Location;
    use elinvar_spmd::bounds::{Root, RootKind, Site};

    use super::*;

    #[test]
    fn objects() {
        let location = Location { file: "a.metal".into(), line: 3, column: 0 };
        let kinds = [
            RootKind::Argument(2),
            RootKind::Threadgroup("tile".into()),
            RootKind::Private,
            RootKind::Constant("table".into()),
            RootKind::Null,
        ];
        let checks = Checks {
            sites: vec![
                Site { writes: true, bytes: 4, location: Some(location) },
                Site { writes: false, bytes: 0, location: None },
            ],
            roots: kinds.map(|kind| Root { kind, bytes: 77, align: 4 }).into(),
        };
        let plain = Object {
            bytes: vec![1, 2, 255],
            scratch_bytes: 64,
            ascending: true,
            faults: Vec::new(),
            checks: None,
        };
        let faults = vec![("first".into(), None), ("second".into(), Some("a.metal:7".into()))];
        for object in [Object { faults, checks: Some(checks), ..plain.clone() }, plain] {
            let record = object.write();
            assert_eq!(Object::read(&record).as_ref(), Some(&object));
            assert!((0..record.len()).all(|end| Object::read(&record[..end]).is_none()));
        }
    }
}
