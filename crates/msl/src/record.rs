//! What is known of a source's kernels, as it lies in the cache.
//!
//! Every field of every type is named here: one that is added does not compile until it is kept, too.

use elinvar_cache::{Reader, Writer};
use elinvar_driver::{
    Access, Arg, ArgKind, Builtin, CodeFacts, Diagnostic, ElementType, FunctionConstant, Scalar, Severity,
    Signature, UnsupportedKernel,
};

const SCALARS: [Scalar; 12] = [
    Scalar::Bool,
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
];
const KINDS: [ArgKind; 3] = [ArgKind::Pointer, ArgKind::Reference, ArgKind::Threadgroup];
const SEVERITIES: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Note];

/// Write one of a table's values by its place in it.
fn choice<T: PartialEq>(w: &mut Writer, table: &[T], value: &T) {
    w.number(table.iter().position(|known| known == value).map_or(u64::MAX, |at| at as u64));
}

fn chosen<T: Copy>(r: &mut Reader, table: &[T]) -> Option<T> {
    table.get(r.small::<usize>()?).copied()
}

fn write_type(w: &mut Writer, ty: &ElementType) {
    match ty {
        ElementType::Scalar(scalar) => {
            w.number(0);
            choice(w, &SCALARS, scalar);
        }
        ElementType::Vector { scalar, lanes, packed } => {
            w.number(1);
            choice(w, &SCALARS, scalar);
            w.number(u64::from(*lanes));
            w.flag(*packed);
        }
        ElementType::Atomic(scalar) => {
            w.number(2);
            choice(w, &SCALARS, scalar);
        }
        ElementType::Other(name) => {
            w.number(3);
            w.text(name);
        }
    }
}

fn read_type(r: &mut Reader) -> Option<ElementType> {
    Some(match r.number()? {
        0 => ElementType::Scalar(chosen(r, &SCALARS)?),
        1 => ElementType::Vector { scalar: chosen(r, &SCALARS)?, lanes: r.small()?, packed: r.flag()? },
        2 => ElementType::Atomic(chosen(r, &SCALARS)?),
        3 => ElementType::Other(r.text()?),
        _ => return None,
    })
}

fn write_arg(w: &mut Writer, arg: &Arg) {
    let Arg { name, kind, index, element, element_size, element_align, access, constant } = arg;
    w.text(name);
    choice(w, &KINDS, kind);
    w.number(u64::from(*index));
    write_type(w, element);
    w.number(*element_size);
    w.number(*element_align);
    w.flag(*access == Access::ReadWrite);
    w.flag(*constant);
}

fn read_arg(r: &mut Reader) -> Option<Arg> {
    Some(Arg {
        name: r.text()?,
        kind: chosen(r, &KINDS)?,
        index: r.small()?,
        element: read_type(r)?,
        element_size: r.number()?,
        element_align: r.number()?,
        access: if r.flag()? { Access::ReadWrite } else { Access::Read },
        constant: r.flag()?,
    })
}

/// Write a kernel's signature.
pub fn write_signature(w: &mut Writer, signature: &Signature) {
    let Signature { name, args, builtins, file, line, max_threads_per_threadgroup, code } = signature;
    w.text(name);
    w.list(args, write_arg);
    w.list(builtins, |w, Builtin { attribute, dimensions }| {
        w.text(attribute);
        w.number(u64::from(*dimensions));
    });
    w.text(file);
    w.number(u64::from(*line));
    w.option(*max_threads_per_threadgroup, |w, most| w.number(u64::from(most)));
    w.option(
        *code,
        |w, CodeFacts { threadgroup_memory, barriers, atomics, simdgroup, only_written, may_write }| {
            w.number(threadgroup_memory);
            w.number(u64::from(barriers));
            w.number(u64::from(atomics));
            w.flag(simdgroup);
            w.number(only_written);
            w.number(may_write);
        },
    );
}

/// Read what [`write_signature`] wrote.
pub fn read_signature(r: &mut Reader) -> Option<Signature> {
    Some(Signature {
        name: r.text()?,
        args: r.list(read_arg)?,
        builtins: r.list(|r| Some(Builtin { attribute: r.text()?, dimensions: r.small()? }))?,
        file: r.text()?,
        line: r.small()?,
        max_threads_per_threadgroup: r.option(Reader::small)?,
        code: r.option(|r| {
            Some(CodeFacts {
                threadgroup_memory: r.number()?,
                barriers: r.small()?,
                atomics: r.small()?,
                simdgroup: r.flag()?,
                only_written: r.number()?,
                may_write: r.number()?,
            })
        })?,
    })
}

/// Append a diagnostic.
pub fn write_diagnostic(w: &mut Writer, diagnostic: &Diagnostic) {
    let Diagnostic { severity, file, line, column, message, source_line, notes } = diagnostic;
    choice(w, &SEVERITIES, severity);
    w.text(file);
    w.number(u64::from(*line));
    w.number(u64::from(*column));
    w.text(message);
    w.option(source_line.as_deref(), Writer::text);
    w.list(notes, write_diagnostic);
}

/// Read what [`write_diagnostic`] has written. A record is none whose notes have notes of more than [`DEEPEST`] levels.
pub fn read_diagnostic(r: &mut Reader) -> Option<Diagnostic> {
    read_nested(r, DEEPEST)
}

/// Levels of notes within notes that are read. Clang's notes have none: a record with more was damaged or made up, and
/// the stack is not for it to fill.
const DEEPEST: u32 = 16;

fn read_nested(r: &mut Reader, depth: u32) -> Option<Diagnostic> {
    let below = depth.checked_sub(1)?;
    Some(Diagnostic {
        severity: chosen(r, &SEVERITIES)?,
        file: r.text()?,
        line: r.small()?,
        column: r.small()?,
        message: r.text()?,
        source_line: r.option(Reader::text)?,
        notes: r.list(|r| read_nested(r, below))?,
    })
}

/// Append a kernel that is not supported.
pub fn write_unsupported(w: &mut Writer, kernel: &UnsupportedKernel) {
    let UnsupportedKernel { name, reason } = kernel;
    w.text(name);
    write_diagnostic(w, reason);
}

/// Read what [`write_unsupported`] has written.
pub fn read_unsupported(r: &mut Reader) -> Option<UnsupportedKernel> {
    Some(UnsupportedKernel { name: r.text()?, reason: read_diagnostic(r)? })
}

/// Append a function constant.
pub fn write_constant(w: &mut Writer, constant: &FunctionConstant) {
    let FunctionConstant { name, index, ty } = constant;
    w.text(name);
    w.number(u64::from(*index));
    write_type(w, ty);
}

/// Read what [`write_constant`] has written.
pub fn read_constant(r: &mut Reader) -> Option<FunctionConstant> {
    Some(FunctionConstant { name: r.text()?, index: r.small()?, ty: read_type(r)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature() -> Signature {
        let element = |i: usize| match i {
            0..12 => ElementType::Scalar(SCALARS[i]),
            12 => ElementType::Vector { scalar: Scalar::F16, lanes: 3, packed: true },
            13 => ElementType::Atomic(Scalar::U64),
            _ => ElementType::Other("Größe<4>".into()),
        };
        let arg = |i: usize| Arg {
            name: format!("a{i}"),
            kind: KINDS[i % 3],
            index: i as u32 * 100,
            element: element(i),
            element_size: 1 << i,
            element_align: 4,
            access: if i < 7 { Access::Read } else { Access::ReadWrite },
            constant: i > 10,
        };
        Signature {
            name: "k".into(),
            args: (0..15).map(arg).collect(),
            builtins: vec![Builtin { attribute: "thread_position_in_grid".into(), dimensions: 2 }],
            file: "k.metal".into(),
            line: 7,
            max_threads_per_threadgroup: Some(64),
            code: Some(CodeFacts {
                threadgroup_memory: 16,
                barriers: 1,
                atomics: 300,
                simdgroup: true,
                only_written: 5,
                may_write: 9,
            }),
        }
    }

    #[test]
    fn signatures() {
        let plain = Signature { code: None, max_threads_per_threadgroup: None, ..signature() };
        for signature in [signature(), plain] {
            let mut w = Writer::new();
            write_signature(&mut w, &signature);
            let bytes = w.finish();
            let mut r = Reader::new(&bytes);
            let read = read_signature(&mut r);
            assert_eq!(read.and_then(|read| r.end(read)), Some(signature));
            for end in 0..bytes.len() {
                assert_eq!(read_signature(&mut Reader::new(&bytes[..end])), None);
            }
        }
    }

    #[test]
    fn notes_within_notes_do_not_fill_the_stack() {
        let nested =
            |levels: usize| [[0, 0, 1, 1, 0, 0, 1].repeat(levels - 1), vec![0, 0, 1, 1, 0, 0, 0]].concat();
        let read = |levels| read_diagnostic(&mut Reader::new(&nested(levels)));
        assert!(read(DEEPEST as usize).is_some_and(|d| d.notes[0].notes[0].notes.len() == 1));
        assert_eq!(read(DEEPEST as usize + 1), None);
        assert_eq!(read(1 << 20), None);
    }

    #[test]
    fn diagnostics_and_constants() {
        let note = Diagnostic { severity: Severity::Note, ..Diagnostic::error("b", 3, 4, "there") };
        let source_line = Some("x = y".to_owned());
        let error =
            Diagnostic { source_line, notes: vec![note], ..Diagnostic::error("a.metal", 1, 2, "here") };
        let ty = ElementType::Vector { scalar: Scalar::Bool, lanes: 4, packed: false };
        let constant = FunctionConstant { name: "ns::c".into(), index: 65535, ty };
        let unsupported = UnsupportedKernel { name: "takes_a_texture".into(), reason: error.clone() };
        let mut w = Writer::new();
        write_diagnostic(&mut w, &error);
        write_constant(&mut w, &constant);
        write_unsupported(&mut w, &unsupported);
        let bytes = w.finish();
        let mut r = Reader::new(&bytes);
        assert_eq!((read_diagnostic(&mut r), read_constant(&mut r)), (Some(error), Some(constant)));
        assert_eq!(read_unsupported(&mut r), Some(unsupported));
        assert_eq!(r.end(()), Some(()));
    }
}
