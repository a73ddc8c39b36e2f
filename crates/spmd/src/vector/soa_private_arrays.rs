//! Transposes private arrays to structure-of-arrays layout: element `i` of all lanes is contiguous, so that lanes that access the
//! same element access consecutive memory.
//!
//! The arrays of consecutive threads are one element apart, and byte offset `n` in an array is `n * lanes` bytes after its first
//! element. Applies to arrays whose accesses all have one size, are at multiples of it, and are addressed by indices; others keep
//! array-of-structures layout.

use std::collections::HashSet;

use elinvar_ir::{Call, Const, Function, Inst, Module, Op, Operand, Type, Typed, ValueId};

use crate::kernel::Kernel;
use crate::support::builder::i64_const;
use crate::support::gep::{Step, constant_bytes, steps, stride};
use crate::support::ir::{blocks_in_order, callee_name, is_number};

/// Maximum size of a memset that is expanded, in bytes. Arrays with larger ones are not transposed.
const MOST_SET: u64 = 512;

/// Transposes the eligible private arrays, for vectors of `lanes` threads.
pub(crate) fn transpose(module: &Module, kernel: &mut Kernel, lanes: u32) {
    if lanes == 1 {
        return;
    }
    let lanes = u64::from(lanes);
    for index in 0..kernel.private_arrays.len() {
        let uses = Uses::of(module, &kernel.function, kernel.private_arrays[index].value, lanes);
        let size = kernel.private_arrays[index].ty.size_align(module).0;
        let Some((element, pointers)) = uses.fit(size) else { continue };
        kernel.private_arrays[index].lane_stride = element;
        for block in 0..kernel.function.blocks.len() {
            let mut work = Rewrite { module, lanes, element, pointers: &pointers, out: Vec::new() };
            let insts = std::mem::take(&mut kernel.function.blocks[block].insts);
            insts.into_iter().for_each(|inst| work.inst(&mut kernel.function, inst));
            kernel.function.blocks[block].insts = work.out;
        }
    }
}

/// Uses of an array.
struct Uses {
    /// Addresses in the array.
    pointers: HashSet<ValueId>,
    /// Sizes of accesses.
    sizes: Vec<u64>,
    /// Indices of which addresses are linear combinations.
    multiples: Vec<u64>,
    /// Whether there are no other uses.
    simple: bool,
}

impl Uses {
    fn of(module: &Module, function: &Function, array: ValueId, lanes: u64) -> Self {
        let mut uses =
            Self { pointers: HashSet::from([array]), sizes: Vec::new(), multiples: Vec::new(), simple: true };
        // Definitions precede uses except for phis, which are not eligible.
        for block in blocks_in_order(function) {
            for inst in &function.block(block).insts {
                if inst.op.operands().into_iter().any(|o| uses.is_pointer(o)) {
                    uses.simple &= uses.add(module, inst, lanes);
                }
            }
            uses.simple &= !function.block(block).term.operands().into_iter().any(|o| uses.is_pointer(o));
        }
        uses
    }

    fn is_pointer(&self, operand: &Operand) -> bool {
        operand.value().is_some_and(|v| self.pointers.contains(&v))
    }

    /// Records a use; returns whether it is eligible.
    fn add(&mut self, module: &Module, inst: &Inst, lanes: u64) -> bool {
        match &inst.op {
            Op::Load { ty, volatile: false, atomic: None, .. } => {
                self.sizes.push(ty.size_align(module).0);
                is_number(ty)
            }
            Op::Store { value, volatile: false, atomic: None, .. } => {
                self.sizes.push(value.ty.size_align(module).0);
                is_number(&value.ty) && !self.is_pointer(&value.op)
            }
            Op::Gep { source, base, indices, .. } => {
                let moved = constant_bytes(module, source, indices);
                match moved {
                    Some(bytes) => self.multiples.push(bytes.unsigned_abs()),
                    None => {
                        let all = steps(module, source, indices);
                        self.multiples.extend(all.into_iter().flatten().map(|s| match s {
                            Step::Field(bytes) | Step::Elements(bytes) => bytes,
                        }));
                    }
                }
                self.pointers.extend(inst.result);
                let indexed = indices.iter().any(|i| self.is_pointer(&i.op));
                self.is_pointer(&base.op)
                    && !indexed
                    && (moved.is_some() || scaled(module, source, lanes).is_some())
            }
            Op::Call(call) => match zeroed(call) {
                Some(bytes) => {
                    self.multiples.push(bytes);
                    bytes <= MOST_SET
                }
                None => false,
            },
            _ => false,
        }
    }

    /// The common access size of an array of `size` bytes, and its addresses.
    fn fit(self, size: u64) -> Option<(u64, HashSet<ValueId>)> {
        let element = *self.sizes.first()?;
        let one_size = self.sizes.iter().all(|s| *s == element);
        let fits = self.multiples.iter().chain([&size]).all(|n| n.is_multiple_of(element));
        (self.simple && one_size && fits).then_some((element, self.pointers))
    }
}

/// Number of bytes that a call zeroes, if it is a memset with 0.
fn zeroed(call: &Call) -> Option<u64> {
    callee_name(call).filter(|name| name.starts_with("llvm.memset."))?;
    let constant = |i: usize, width| match call.args.get(i).map(|a| &a.op) {
        Some(Operand::Const(c)) => c.as_unsigned(width).and_then(|v| u64::try_from(v).ok()),
        _ => None,
    };
    let Type::Int(width) = call.args.get(2)?.ty else { return None };
    (constant(1, 8)? == 0).then(|| constant(2, width))?
}

/// The type with each scalar repeated `lanes` times, if its size is then multiplied by `lanes`.
fn scaled(module: &Module, ty: &Type, lanes: u64) -> Option<Type> {
    let new = match ty.resolve(module)? {
        Type::Array(count, element) => Type::array(*count, scaled(module, element, lanes)?),
        Type::Struct { packed, fields } => {
            let fields = fields.iter().map(|f| scaled(module, f, lanes)).collect::<Option<_>>()?;
            Type::Struct { packed: *packed, fields }
        }
        Type::Vector(count, element) => Type::array(u64::from(*count), scaled(module, element, lanes)?),
        number => Type::array(lanes, number.clone()),
    };
    let mut same = Some(stride(module, &new)) == stride(module, ty).checked_mul(lanes);
    if let Some(Type::Struct { fields, .. }) = ty.resolve(module) {
        let at = |ty: &Type, field| ty.field_offset(field, module);
        same &= (0..fields.len()).all(|f| at(&new, f) == ty.field_offset(f, module).map(|o| o * lanes));
    }
    same.then_some(new)
}

struct Rewrite<'a> {
    module: &'a Module,
    lanes: u64,
    element: u64,
    pointers: &'a HashSet<ValueId>,
    out: Vec<Inst>,
}

impl Rewrite<'_> {
    fn is_pointer(&self, operand: &Operand) -> bool {
        operand.value().is_some_and(|v| self.pointers.contains(&v))
    }

    fn inst(&mut self, function: &mut Function, mut inst: Inst) {
        match &mut inst.op {
            Op::Load { ptr, align, .. } | Op::Store { ptr, align, .. } if self.is_pointer(&ptr.op) => {
                *align = Some(align.unwrap_or(self.element).min(self.element));
            }
            Op::Gep { flags, source, base, indices } if self.is_pointer(&base.op) => {
                flags.clear();
                if let Some(bytes) = constant_bytes(self.module, source, indices) {
                    *source = Type::I8;
                    *indices = vec![Typed::new(
                        Type::I64,
                        Const::int(64, i128::from(bytes) * i128::from(self.lanes)),
                    )];
                } else if let Some(new) = scaled(self.module, source, self.lanes) {
                    *source = new;
                }
            }
            Op::Call(call) if call.args.first().is_some_and(|a| self.is_pointer(&a.op)) => {
                let (base, bytes) = (call.args[0].op.clone(), zeroed(call).unwrap_or(0));
                return (0..bytes / self.element).for_each(|index| self.clear(function, &base, index));
            }
            _ => {}
        }
        self.out.push(inst);
    }

    /// Zeroes an element at an offset from an address.
    fn clear(&mut self, function: &mut Function, base: &Operand, index: u64) {
        let at = function.new_value(Type::PTR, None);
        let op = Op::Gep {
            flags: String::new(),
            source: Type::I8,
            base: Typed::new(Type::PTR, base.clone()),
            indices: vec![Typed::new(Type::I64, i64_const(index * self.element * self.lanes))],
        };
        self.out.push(Inst { result: Some(at), op, metadata: Vec::new() });
        let value = Typed::new(Type::Int(self.element as u32 * 8), Const::Zero);
        let op = Op::Store {
            value,
            ptr: Typed::new(Type::PTR, at),
            align: Some(self.element),
            volatile: false,
            atomic: None,
        };
        self.out.push(Inst { result: None, op, metadata: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance between threads and the code, for eight lanes.
    fn turned(array: &str, body: &str) -> (u64, String) {
        let text = format!(
            "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
            define void @__elinvar_entry(ptr %a, i64 %i) {{
              %x = alloca {array}, align 16
              {body}
              ret void
            }}"
        );
        let module = Module::parse(&text).unwrap();
        let mut kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        transpose(&module, &mut kernel, 8);
        let insts = kernel.function.blocks.iter().flat_map(|b| &b.insts);
        (kernel.private_arrays[0].lane_stride, insts.map(|i| format!("{:?}\n", i.op)).collect())
    }

    #[test]
    fn indices_count_elements_of_all_lanes() {
        let (step, code) = turned(
            "[4 x [2 x float]]",
            "%p = getelementptr [4 x [2 x float]], ptr %x, i64 0, i64 %i, i64 1
             %q = getelementptr i8, ptr %p, i64 -4
             store float 1.0, ptr %q, align 8",
        );
        assert_eq!(step, 4);
        let element = Type::array(8, Type::Float);
        let source = Type::array(4, Type::array(2, element));
        assert!(code.contains(&format!("source: {source:?}")), "{code}");
        assert!(code.contains("Int(-32)"), "{code}");
        assert!(code.contains("align: Some(4)"), "{code}");
    }

    #[test]
    fn what_is_set_to_zero_is_stored_by_elements() {
        let (step, code) = turned(
            "[3 x i16]",
            "call void @llvm.memset.p0.i64(ptr %x, i8 0, i64 6, i1 false)
             %v = load i16, ptr %x, align 2",
        );
        assert_eq!((step, code.matches("Store").count(), code.matches("Call").count()), (2, 3, 0));
    }

    #[test]
    fn others_stay() {
        for body in [
            "store i32 1, ptr %x \n %v = load i64, ptr %x",
            "store ptr %x, ptr %a \n store i32 1, ptr %x",
            "%p = getelementptr i8, ptr %x, i64 %i \n store i32 1, ptr %p",
            "call void @llvm.memset.p0.i64(ptr %x, i8 1, i64 8, i1 false) \n store i32 1, ptr %x",
        ] {
            assert_eq!(turned("[4 x i32]", body).0, 16, "{body}");
        }
    }
}
