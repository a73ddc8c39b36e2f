//! What fault records say in words, that their meaning survives as bytes, and what a launch gives for arguments.

use elinvar_cache::{decode, encode};
use elinvar_code::{Bounds, given, least_bytes};
use elinvar_driver::{Access, Arg, ArgKind, ElementType, Scalar, Signature};
use elinvar_spmd::Location;
use elinvar_spmd::bounds::{Checks, FaultRecord, Given, Root, RootKind, Site};

fn arg(kind: ArgKind, element_size: u64, element_align: u64) -> Arg {
    Arg {
        name: "out".into(),
        kind,
        index: 0,
        element: ElementType::Scalar(Scalar::U32),
        element_size,
        element_align,
        access: Access::ReadWrite,
        constant: false,
    }
}

fn signature(args: Vec<Arg>) -> Signature {
    Signature {
        name: "k".into(),
        args,
        builtins: Vec::new(),
        file: "k.metal".into(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    }
}

/// A read and a write of four bytes, one whose size is not known, and a root of each kind.
fn checks() -> Checks {
    let at = |line: u32| Some(Location { file: "k.metal".into(), line, column: 5 });
    let kinds = [
        RootKind::Argument(0),
        RootKind::Threadgroup("part".into()),
        RootKind::Private,
        RootKind::Constant("table".into()),
        RootKind::Null,
        RootKind::Argument(7),
    ];
    Checks {
        sites: vec![
            Site { writes: false, bytes: 4, location: at(3) },
            Site { writes: true, bytes: 4, location: at(300) },
            Site { writes: true, bytes: 0, location: None },
        ],
        roots: kinds
            .into_iter()
            .zip(1..)
            .map(|(kind, bytes)| Root { kind, bytes, align: bytes * 2 })
            .collect(),
    }
}

fn said(site: u32, root: u32, offset: i64, size: u64) -> (String, Option<String>) {
    let bounds = Bounds::new(checks(), signature(vec![arg(ArgKind::Pointer, 4, 4)]));
    let record = FaultRecord { taken: 1, site, root, thread: [1, 2, 3], offset, size };
    let fault = bounds.fault(&record);
    assert_eq!((fault.kernel.as_str(), fault.launch), ("k", None));
    let message = fault.message.strip_suffix(", by the thread at (1, 2, 3)").expect("the thread");
    (message.to_owned(), fault.location)
}

#[test]
fn an_access_is_named_by_its_element() {
    let line_3 = Some("k.metal:3".to_owned());
    assert_eq!(
        said(0, 0, 40, 40),
        ("read of element 10 of argument 0 `out` (uint, 10 elements)".into(), line_3)
    );
    assert_eq!(said(1, 0, -1, 43).0, "write to element -1 of argument 0 `out` (uint, 10 elements)");
    assert_eq!(said(1, 0, 40, 43).1, Some("k.metal:300".into()));
    assert_eq!(said(2, 0, 8, 8), ("write to element 2 of argument 0 `out` (uint, 2 elements)".into(), None));
    assert_eq!(said(0, 5, 8, 8).0, "read of argument 7", "a root that is not in the signature");
    // An element without size is a byte.
    let bounds = Bounds::new(checks(), signature(vec![arg(ArgKind::Pointer, 0, 1)]));
    let fault = bounds.fault(&FaultRecord { offset: 9, size: 8, ..FaultRecord::default() });
    assert!(fault.message.contains("element 9 of argument 0 `out` (uint, 8 elements)"), "{}", fault.message);
}

#[test]
fn an_access_within_its_memory_was_misaligned() {
    assert_eq!(said(0, 0, 6, 10).0, "misaligned read of element 1 of argument 0 `out` (uint, 2 elements)");
    assert_eq!(said(1, 0, 6, 11).0, "misaligned write to element 1 of argument 0 `out` (uint, 2 elements)");
    assert_eq!(said(0, 0, 7, 10).0, "read of element 1 of argument 0 `out` (uint, 2 elements)");
    // Before the start, and beyond what a size can be.
    assert!(said(0, 0, -4, 10).0.starts_with("read of element -1 "));
    assert!(said(0, 0, i64::MAX, u64::MAX).0.starts_with("misaligned read of element "));
    // How long it was is not known.
    assert!(said(2, 0, 1, 100).0.starts_with("write to element 0 "));
}

#[test]
fn other_memory_is_named_by_its_kind() {
    let text = |root: u32| said(0, root, 16, 16).0;
    assert_eq!(text(1), "read of byte 16 of the threadgroup variable `part` of 16 bytes");
    assert_eq!(text(2), "read of byte 16 of a private array of 16 bytes");
    assert_eq!(text(3), "read of byte 16 of a constant array of 16 bytes");
    assert_eq!(text(4), "read of address 0x10 by a null pointer");
    assert_eq!(text(99), "read of byte 16 of memory of 16 bytes");
    assert_eq!(said(99, 99, 0, 0), ("read of byte 0 of memory of 0 bytes".into(), None));
}

#[test]
fn what_records_mean_is_kept_as_bytes() {
    let record = encode(&checks());
    assert_eq!(decode(&record), Some(checks()));
    for end in 0..record.len() {
        assert_eq!(decode::<Checks>(&record[..end]), None, "cut at {end}");
    }
    assert_eq!(decode::<Checks>(&[0, 1, 5, 0, 0]), None, "there is no such kind");
    assert!(decode::<Checks>(&[0, 1, 4, 0, 0]).is_some());
}

#[test]
fn a_launch_gives_a_value_whole_and_of_a_pointer_nothing_for_sure() {
    let [reference, pointer, threadgroup] =
        [ArgKind::Reference, ArgKind::Pointer, ArgKind::Threadgroup].map(|kind| arg(kind, 48, 16));
    assert_eq!([&reference, &pointer, &threadgroup].map(least_bytes), [48, 0, 0]);
    assert_eq!(given(&reference), Given { bytes: 48, align: 16 });
    assert_eq!(given(&pointer), Given { bytes: 0, align: 16 });
    assert_eq!(given(&arg(ArgKind::Threadgroup, 4, 4)), Given { bytes: 0, align: 16 });
    // Memory begins at multiples of 64; what is not a power of two says nothing.
    assert_eq!(given(&arg(ArgKind::Pointer, 256, 256)).align, 64);
    assert_eq!(given(&arg(ArgKind::Pointer, 12, 12)).align, 1);
}
