//! A kernel's PTX with what belongs to it, as bytes: for the cache and for bundles.
//!
//! Every field of every type is named here: one that is added does not compile until it is kept, too.

use elinvar_cache::{Reader, Writer};
use elinvar_code::{read_checks, write_checks};
use elinvar_msl::record;
use elinvar_spmd::nvptx::{Argument, Parameter};

use crate::compiler::Ptx;

pub(crate) fn write(w: &mut Writer, ptx: &Ptx) {
    let Ptx { text, entry, target, signature, parameters, static_bytes, dynamic_base, checks } = ptx;
    w.text(text);
    w.text(entry);
    w.text(&target.to_string());
    record::write_signature(w, signature);
    w.list(parameters, write_parameter);
    w.number(*static_bytes);
    w.number(*dynamic_base);
    w.option(checks.as_ref(), write_checks);
}

pub(crate) fn read(r: &mut Reader) -> Option<Ptx> {
    Some(Ptx {
        text: r.text()?,
        entry: r.text()?,
        target: r.text()?.parse().ok()?,
        signature: record::read_signature(r)?,
        parameters: r.list(read_parameter)?,
        static_bytes: r.number()?,
        dynamic_base: r.number()?,
        checks: r.option(read_checks)?,
    })
}

fn write_parameter(w: &mut Writer, parameter: &Parameter) {
    let mut pair = |kind, index: usize| {
        w.number(kind);
        w.number(index as u64);
    };
    match *parameter {
        Parameter::Argument(index, argument) => {
            pair(0, index);
            write_argument(w, argument);
        }
        Parameter::Threads(d) => pair(1, d),
        Parameter::Linear(d) => pair(2, d),
        Parameter::Record => pair(3, 0),
        Parameter::Bytes(index) => pair(4, index),
        Parameter::Extent => pair(5, 0),
    }
}

fn read_parameter(r: &mut Reader) -> Option<Parameter> {
    let (kind, index) = (r.number()?, r.small()?);
    Some(match kind {
        0 => Parameter::Argument(index, read_argument(r)?),
        1 => Parameter::Threads(index),
        2 => Parameter::Linear(index),
        3 => Parameter::Record,
        4 => Parameter::Bytes(index),
        5 => Parameter::Extent,
        _ => return None,
    })
}

fn write_argument(w: &mut Writer, argument: Argument) {
    match argument {
        Argument::Pointer { constant } => w.number(u64::from(constant)),
        Argument::Value { bytes, align } => {
            w.number(2);
            w.number(bytes);
            w.number(align);
        }
        Argument::Threadgroup => w.number(3),
    }
}

fn read_argument(r: &mut Reader) -> Option<Argument> {
    Some(match r.number()? {
        0 => Argument::Pointer { constant: false },
        1 => Argument::Pointer { constant: true },
        2 => Argument::Value { bytes: r.number()?, align: r.number()? },
        3 => Argument::Threadgroup,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Signature;
    use elinvar_spmd::bounds::Checks;

    use super::*;

    #[test]
    fn kernels() {
        let arguments = [
            Argument::Pointer { constant: true },
            Argument::Pointer { constant: false },
            Argument::Value { bytes: 12, align: 4 },
            Argument::Threadgroup,
        ];
        let mut parameters: Vec<Parameter> = arguments
            .iter()
            .enumerate()
            .map(|(index, argument)| Parameter::Argument(index, *argument))
            .collect();
        parameters.extend([
            Parameter::Threads(2),
            Parameter::Extent,
            Parameter::Linear(1),
            Parameter::Record,
            Parameter::Bytes(3),
        ]);
        let signature = Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: Vec::new(),
            file: "k.metal".into(),
            line: 1,
            max_threads_per_threadgroup: None,
            code: None,
        };
        let ptx = Ptx {
            text: ".version 7.8".into(),
            entry: "k".into(),
            target: Default::default(),
            signature,
            parameters,
            static_bytes: 64,
            dynamic_base: 16,
            checks: Some(Checks::default()),
        };
        let mut w = Writer::new();
        write(&mut w, &ptx);
        let bytes = w.finish();
        let mut r = Reader::new(&bytes);
        let back = read(&mut r).and_then(|ptx| r.end(ptx));
        assert_eq!(back, Some(ptx));
        assert!((0..bytes.len()).all(|end| read(&mut Reader::new(&bytes[..end])).is_none()));
    }
}
