//! Vectorizes memory copies of constant size: uses words as wide as the addresses' alignment allows at run time.
//!
//! NVPTX requires naturally aligned loads and stores, so clang copies memory in units of the alignment that the source
//! guarantees: a vector that is read as bytes is copied byte by byte. Here such a copy tests its addresses at run time: it uses
//! 16-byte words if they are multiples of 16, and clang's code otherwise.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use elinvar_ir::{Call, Callee, Function, Inst, Module, Op, Operand, ValueId};

use super::library::PREFIX;
use crate::Error;
use crate::support::ir::callee_name;

const COPY: &str = "llvm.memcpy.p0.p0.i64";
/// Width of the widest word in bytes.
const WORD: u64 = 16;
/// Maximum size of a copy that is vectorized, in bytes.
const MOST: u64 = 128;
/// Maximum number of copies that share a test.
const TOGETHER: usize = 4;

/// Shape of a copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    bytes: u64,
    /// Known alignments of the target and the source.
    aligned: [u64; 2],
}

/// Vectorizes the copies of the kernel and of the functions that are not inlined. Consecutive copies without other accesses
/// between them share a test, so that the second copy does not wait for the first.
pub(super) fn write(module: &mut Module, kernel: &mut Function) -> Result<(), Error> {
    let mut needed = BTreeSet::new();
    for function in module.functions.iter_mut().chain([kernel]) {
        let mut insts = function.blocks.iter().flat_map(|block| &block.insts);
        if !insts.any(|inst| matches!(&inst.op, Op::Call(call) if callee_name(call) == Some(COPY))) {
            continue;
        }
        let own = own_memory(function);
        for block in &mut function.blocks {
            let mut written = Vec::with_capacity(block.insts.len());
            let mut open: Vec<(Shape, Inst)> = Vec::new();
            for inst in std::mem::take(&mut block.insts) {
                if let Op::Call(call) = &inst.op
                    && let Some(shape) = shape(call, &own)
                {
                    open.push((shape, inst));
                    if open.len() == TOGETHER {
                        written.extend(joined(std::mem::take(&mut open), &mut needed));
                    }
                    continue;
                }
                if touches_memory(&inst.op) {
                    written.extend(joined(std::mem::take(&mut open), &mut needed));
                }
                written.push(inst);
            }
            written.extend(joined(open, &mut needed));
            block.insts = written;
        }
    }
    let mut text = String::new();
    needed.iter().for_each(|shapes| define(shapes, &mut text));
    let parsed = Module::parse(&text).map_err(|error| Error::Malformed(format!("{error} in\n{text}")))?;
    module.functions.extend(parsed.functions);
    Ok(())
}

fn touches_memory(op: &Op) -> bool {
    matches!(
        op,
        Op::Load { .. }
            | Op::Store { .. }
            | Op::Call(_)
            | Op::AtomicRmw { .. }
            | Op::CmpXchg { .. }
            | Op::Fence(_)
    )
}

/// One call for several copies.
fn joined(copies: Vec<(Shape, Inst)>, needed: &mut BTreeSet<Vec<Shape>>) -> Option<Inst> {
    let shapes: Vec<Shape> = copies.iter().map(|(shape, _)| *shape).collect();
    let mut insts = copies.into_iter().map(|(_, inst)| inst);
    let mut first = insts.next()?;
    if let Op::Call(call) = &mut first.op {
        call.callee = Callee::Function(name(&shapes));
        call.attrs = String::new();
        call.args.truncate(2);
        for inst in insts {
            if let Op::Call(more) = inst.op {
                call.args.extend(more.args.into_iter().take(2));
            }
        }
        call.args.iter_mut().for_each(|arg| arg.attrs = String::new());
    }
    needed.insert(shapes);
    Some(first)
}

fn name(shapes: &[Shape]) -> String {
    let one = |Shape { bytes, aligned: [to, from] }: &Shape| format!(".{bytes}.{to}.{from}");
    format!("{PREFIX}copy{}", shapes.iter().map(one).collect::<String>())
}

/// Addresses of private variables, which are left to clang, since it promotes them to registers.
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

/// The shape of a copy that can be widened.
fn shape(call: &Call, own: &HashSet<ValueId>) -> Option<Shape> {
    if callee_name(call) != Some(COPY) {
        return None;
    }
    let [to, from, bytes, volatile] = &call.args[..] else { return None };
    let (Operand::Const(bytes), Operand::Const(volatile)) = (&bytes.op, &volatile.op) else { return None };
    let bytes = u64::try_from(bytes.as_unsigned(64)?).ok().filter(|bytes| (8..=MOST).contains(bytes))?;
    let shape = Shape { bytes, aligned: [to.align(), from.align()] };
    let narrow = shape.aligned.iter().any(|known| *known < shape.word());
    let is_own = [to, from].iter().any(|arg| arg.op.value().is_some_and(|value| own.contains(&value)));
    let fits = shape.word() >= 4 && volatile.as_unsigned(1) == Some(0);
    (narrow && fits && !is_own).then_some(shape)
}

impl Shape {
    /// Width in bytes of the widest word of the copy.
    fn word(self) -> u64 {
        WORD.min(1 << self.bytes.trailing_zeros())
    }
}

/// The function that performs copies of these shapes.
fn define(shapes: &[Shape], text: &mut String) {
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let params =
        (0..shapes.len()).map(|n| format!("ptr %to.{n}, ptr %from.{n}")).collect::<Vec<_>>().join(", ");
    line(format!("define internal void @{}({params}) alwaysinline nounwind {{", name(shapes)));
    // The low address bits that must be clear for an aligned access.
    let mut last = "0".to_owned();
    for (n, shape) in shapes.iter().enumerate() {
        let sides = ["to", "from"].into_iter().zip(shape.aligned);
        for (side, _) in sides.filter(|(_, known)| *known < shape.word()) {
            line(format!("  %{side}.{n}.address = ptrtoint ptr %{side}.{n} to i64"));
            line(format!("  %{side}.{n}.low = and i64 %{side}.{n}.address, {}", shape.word() - 1));
            line(format!("  %{side}.{n}.all = or i64 %{side}.{n}.low, {last}"));
            last = format!("%{side}.{n}.all");
        }
    }
    line(format!("  %fit = icmp eq i64 {last}, 0"));
    line("  br i1 %fit, label %wide, label %plain".into());
    line("wide:".into());
    for (n, shape) in shapes.iter().enumerate() {
        let word = shape.word();
        let ty = match word {
            16 => "<4 x i32>",
            8 => "i64",
            _ => "i32",
        };
        let at = |side: &str, k: u64| {
            format!("  %{side}.{n}.{k} = getelementptr i8, ptr %{side}.{n}, i64 {}", k * word)
        };
        for k in 0..shape.bytes / word {
            line(at("from", k));
            line(format!("  %value.{n}.{k} = load {ty}, ptr %from.{n}.{k}, align {word}"));
        }
        for k in 0..shape.bytes / word {
            line(at("to", k));
            line(format!("  store {ty} %value.{n}.{k}, ptr %to.{n}.{k}, align {word}"));
        }
    }
    line("  ret void".into());
    line("plain:".into());
    for (n, Shape { bytes, aligned: [to, from] }) in shapes.iter().enumerate() {
        let ends = format!("ptr align {to} %to.{n}, ptr align {from} %from.{n}");
        line(format!("  call void @{COPY}({ends}, i64 {bytes}, i1 false)"));
    }
    line("  ret void\n}".into());
}
