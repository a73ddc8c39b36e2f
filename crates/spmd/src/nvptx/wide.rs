//! Copies of so many bytes in words as wide as their addresses allow.
//!
//! NVPTX loads and stores at addresses that are multiples of the size alone, so clang copies a piece of memory in units of
//! the alignment that the source promises: a vector that is read as bytes goes byte by byte. Here such a copy looks at the
//! addresses when it runs: 16 bytes at a time where they are multiples of 16, else as clang has it.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use elinvar_ir::{Call, Callee, Function, Inst, Module, Op, Operand, ValueId};

use super::library::PREFIX;
use crate::Error;
use crate::prepare::callee_name;

const COPY: &str = "llvm.memcpy.p0.p0.i64";
/// The widest word.
const WORD: u64 = 16;
/// The longest copy that is made in one piece.
const MOST: u64 = 128;

/// How a copy is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    bytes: u64,
    /// What is known of the addresses: where it is written, and where it is read.
    aligned: [u64; 2],
}

/// Write the copies of the kernel and of the functions that are not inlined.
pub(super) fn write(module: &mut Module, kernel: &mut Function) -> Result<(), Error> {
    let mut shapes = BTreeSet::new();
    for function in module.functions.iter_mut().chain([kernel]) {
        let own = own_memory(function);
        for inst in function.blocks.iter_mut().flat_map(|block| &mut block.insts) {
            let Op::Call(call) = &mut inst.op else { continue };
            let Some(shape) = shape(call, &own) else { continue };
            call.callee = Callee::Function(shape.name());
            call.attrs = String::new();
            call.args.truncate(2);
            call.args.iter_mut().for_each(|arg| arg.attrs = String::new());
            shapes.insert(shape);
        }
    }
    let mut text = String::new();
    shapes.iter().for_each(|shape| shape.define(&mut text));
    let parsed = Module::parse(&text).map_err(|error| Error::Malformed(format!("{error} in\n{text}")))?;
    module.functions.extend(parsed.functions);
    Ok(())
}

/// Addresses of variables of a function's own, which are better left to clang: it keeps them in registers.
fn own_memory(function: &Function) -> HashSet<ValueId> {
    let mut own = HashSet::new();
    let insts: Vec<&Inst> = function.blocks.iter().flat_map(|block| &block.insts).collect();
    loop {
        let before = own.len();
        for inst in &insts {
            let Some(result) = inst.result else { continue };
            let is_own = match &inst.op {
                Op::Alloca { .. } => true,
                Op::Gep { base, .. } => base.op.value().is_some_and(|base| own.contains(&base)),
                _ => false,
            };
            if is_own {
                own.insert(result);
            }
        }
        if own.len() == before {
            return own;
        }
    }
}

/// The shape of a copy that can be wider than clang makes it.
fn shape(call: &Call, own: &HashSet<ValueId>) -> Option<Shape> {
    if callee_name(call) != Some(COPY) {
        return None;
    }
    let [to, from, bytes, volatile] = &call.args[..] else { return None };
    let (Operand::Const(bytes), Operand::Const(volatile)) = (&bytes.op, &volatile.op) else { return None };
    let bytes = u64::try_from(bytes.as_unsigned(64)?).ok().filter(|bytes| (8..=MOST).contains(bytes))?;
    let shape = Shape { bytes, aligned: [alignment(&to.attrs), alignment(&from.attrs)] };
    let narrow = shape.aligned.iter().any(|known| *known < shape.word());
    let is_own = [to, from].iter().any(|arg| arg.op.value().is_some_and(|value| own.contains(&value)));
    let fits = shape.word() >= 4 && volatile.as_unsigned(1) == Some(0);
    (narrow && fits && !is_own).then_some(shape)
}

/// The alignment that a parameter's attributes promise.
fn alignment(attrs: &str) -> u64 {
    let words: Vec<&str> = attrs.split_whitespace().collect();
    let promised = words.windows(2).find(|pair| pair[0] == "align").and_then(|pair| pair[1].parse().ok());
    promised.unwrap_or(1)
}

impl Shape {
    /// Bytes of the widest word that the copy is made of.
    fn word(self) -> u64 {
        WORD.min(1 << self.bytes.trailing_zeros())
    }

    fn name(self) -> String {
        let [to, from] = self.aligned;
        format!("{PREFIX}copy.{}.{to}.{from}", self.bytes)
    }

    fn define(self, text: &mut String) {
        let Self { bytes, aligned: [to, from] } = self;
        let word = self.word();
        let ty = match word {
            16 => "<4 x i32>",
            8 => "i64",
            _ => "i32",
        };
        let mut line = |line: String| {
            let _ = writeln!(text, "{line}");
        };
        line(format!("define internal void @{}(ptr %to, ptr %from) alwaysinline nounwind {{", self.name()));
        let unknown = [("to", to), ("from", from)].into_iter().filter(|(_, known)| *known < word);
        let mut last = "0".to_owned();
        for (name, _) in unknown {
            line(format!("  %{name}.address = ptrtoint ptr %{name} to i64"));
            line(format!("  %{name}.bits = or i64 %{name}.address, {last}"));
            last = format!("%{name}.bits");
        }
        line(format!("  %rest = and i64 {last}, {}", word - 1));
        line("  %fits = icmp eq i64 %rest, 0".into());
        line("  br i1 %fits, label %wide, label %plain".into());
        line("wide:".into());
        let at =
            |name: &str, n: u64| format!("%{name}.{n} = getelementptr i8, ptr %{name}, i64 {}", n * word);
        let count = bytes / word;
        for n in 0..count {
            line(format!("  {}", at("from", n)));
            line(format!("  %value.{n} = load {ty}, ptr %from.{n}, align {word}"));
        }
        for n in 0..count {
            line(format!("  {}", at("to", n)));
            line(format!("  store {ty} %value.{n}, ptr %to.{n}, align {word}"));
        }
        line("  ret void".into());
        line("plain:".into());
        line(format!(
            "  call void @{COPY}(ptr align {to} %to, ptr align {from} %from, i64 {bytes}, i1 false)"
        ));
        line("  ret void\n}".into());
    }
}
