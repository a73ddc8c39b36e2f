//! What fault records mean, as bytes.
//!
//! Every field of every type is named here: one that is added does not compile until it is kept, too.

use elinvar_cache::{Reader, Writer};
use elinvar_spmd::Location;
use elinvar_spmd::bounds::{Checks, Root, RootKind, Site};

/// Append what a kernel's fault records mean.
pub fn write_checks(w: &mut Writer, Checks { sites, roots }: &Checks) {
    w.list(sites, write_site);
    w.list(roots, write_root);
}

/// Read what [`write_checks`] has written.
pub fn read_checks(r: &mut Reader) -> Option<Checks> {
    Some(Checks { sites: r.list(read_site)?, roots: r.list(read_root)? })
}

fn write_site(w: &mut Writer, Site { writes, bytes, location }: &Site) {
    w.flag(*writes);
    w.number(*bytes);
    w.option(location.as_ref(), |w, Location { file, line, column }| {
        w.text(file);
        w.number(u64::from(*line));
        w.number(u64::from(*column));
    });
}

fn read_site(r: &mut Reader) -> Option<Site> {
    let location = |r: &mut Reader| Some(Location { file: r.text()?, line: r.small()?, column: r.small()? });
    Some(Site { writes: r.flag()?, bytes: r.number()?, location: r.option(location)? })
}

fn write_root(w: &mut Writer, Root { kind, bytes, align }: &Root) {
    match kind {
        RootKind::Argument(index) => {
            w.number(0);
            w.number(*index as u64);
        }
        RootKind::Threadgroup(name) => {
            w.number(1);
            w.text(name);
        }
        RootKind::Private => w.number(2),
        RootKind::Constant(name) => {
            w.number(3);
            w.text(name);
        }
        RootKind::Null => w.number(4),
    }
    w.number(*bytes);
    w.number(*align);
}

fn read_root(r: &mut Reader) -> Option<Root> {
    let kind = match r.number()? {
        0 => RootKind::Argument(r.small()?),
        1 => RootKind::Threadgroup(r.text()?),
        2 => RootKind::Private,
        3 => RootKind::Constant(r.text()?),
        4 => RootKind::Null,
        _ => return None,
    };
    Some(Root { kind, bytes: r.number()?, align: r.number()? })
}
