//! Index narrowing: finds indices of gathers and scatters that can be computed in 32 bits.
//!
//! An address depends on all 64 bits of its indices. Gather instructions process signed 32-bit indices at up to twice the rate of
//! 64-bit ones. MSL's `uint` indices are unsigned 32-bit numbers; interpreting one as signed is exact below 2³¹. That holds at an
//! *access* (not for the address itself, which may be compared or stored), under a condition on the sum that forms the address.
//!
//! Let the address be `b + s` modulo 2⁶⁴, where `b` is a parameter, a private array or a threadgroup variable, hence within or at
//! the end of an object of `n` bytes, and `s` is a sum of indices times sizes, each index in a known interval. A lane that makes
//! the access is within the object: checked code has compared this address before, and unchecked code is undefined otherwise. So
//! `s` is congruent to a number between -n and n. If the intervals show that -2⁶³ < s < 2⁶³, `s` *is* that number, since n is at
//! most 2⁶³ ([`SizeBound`]). An index `i` of size `z` and the other terms, whose sum is at least `l`, are then below n: `i·z + l
//! < n`, and `i < 2³¹` follows from `n - l <= z·2³¹`. Lanes that do not make the access may have any address.
//!
//! [`SizeBound`]: crate::analysis::size_bound::SizeBound

use std::collections::{HashMap, HashSet};

use elinvar_ir::{BlockId, CastOp, Const, Module, Op, Operand, Type, Typed, ValueId};

use crate::analysis::uniformity::Uniformity;
use crate::analysis::vector_shape::largest;
use crate::kernel::Kernel;
use crate::support::gep::{Step, steps};

/// Numbers below this are equal as signed and unsigned 32-bit numbers.
const SIGN: i128 = 1 << 31;
/// Maximum number of address computations of an address.
const DEPTH: u32 = 8;

/// Indices that can be interpreted as signed 32-bit numbers.
#[derive(Debug, Default)]
pub(crate) struct NarrowIndices {
    /// The widened indices of each accessed address.
    indices: HashMap<ValueId, HashSet<ValueId>>,
    /// The widened indices of all addresses, and the address computations that lead to them.
    parts: HashSet<ValueId>,
}

impl NarrowIndices {
    pub fn new(module: &Module, kernel: &Kernel, uniform: &Uniformity) -> Self {
        let mut found = Self::default();
        for block in kernel.function.block_ids() {
            for inst in &kernel.function.block(block).insts {
                let (Op::Load { ptr, .. } | Op::Store { ptr, .. }) = &inst.op else { continue };
                let Operand::Value(address) = ptr.op else { continue };
                if found.indices.contains_key(&address) || uniform.of(address).is_uniform() {
                    continue;
                }
                let sum = Sum::of(module, kernel, uniform, address);
                let indices = sum.map(|sum| sum.narrow()).unwrap_or_default();
                if !indices.is_empty() {
                    found.parts.extend(chain(kernel, uniform, address).into_iter().map(|(value, _)| value));
                    found.parts.extend(&indices);
                    found.indices.insert(address, indices);
                }
            }
        }
        found
    }

    /// The widened indices of an accessed address that can be interpreted as signed.
    pub fn of(&self, address: ValueId) -> Option<&HashSet<ValueId>> {
        self.indices.get(&address)
    }

    /// Whether an access may rematerialize a value from its operands.
    pub fn is_part(&self, value: ValueId) -> bool {
        self.parts.contains(&value)
    }
}

/// The address computations of an address, starting with its own.
pub(crate) fn chain<'k>(
    kernel: &'k Kernel,
    uniform: &Uniformity,
    address: ValueId,
) -> Vec<(ValueId, &'k Op)> {
    let mut all = Vec::new();
    let mut at = Some(address);
    while let Some(value) = at
        && let Some(op @ Op::Gep { base, .. }) = uniform.definition(kernel, value).map(|inst| &inst.op)
    {
        all.push((value, op));
        at = base.op.value();
    }
    all
}

/// An address as the sum of a base and terms.
struct Sum {
    /// Upper bound of the base's object, in bytes.
    bound: i128,
    /// The interval of all terms together.
    least: i128,
    most: i128,
    /// Zero-extended 32-bit indices, with their sizes. The minimum of each is 0.
    widened: Vec<(ValueId, i128)>,
}

impl Sum {
    fn of(module: &Module, kernel: &Kernel, uniform: &Uniformity, address: ValueId) -> Option<Self> {
        let all = chain(kernel, uniform, address);
        let Op::Gep { base, .. } = all.last().filter(|_| all.len() <= DEPTH as usize)?.1 else {
            return None;
        };
        let is_object = match &base.op {
            Operand::Const(c) => matches!(c, Const::Global(_)),
            Operand::Value(v) => uniform.home(*v).is_none(),
        };
        let bound = i128::from(kernel.bound_of(&base.op));
        let mut sum = is_object.then_some(Self { bound, least: 0, most: 0, widened: Vec::new() })?;
        for (value, op) in all {
            let (Op::Gep { source, indices, .. }, Some(block)) = (op, uniform.home(value)) else {
                return None;
            };
            for (step, index) in steps(module, source, indices).into_iter().zip(indices) {
                sum.add(kernel, uniform, step?, index, block)?;
            }
        }
        let exact = -(1 << 63)..1 << 63;
        (exact.contains(&sum.least) && exact.contains(&sum.most)).then_some(sum)
    }

    fn add(
        &mut self,
        kernel: &Kernel,
        uniform: &Uniformity,
        step: Step,
        index: &Typed,
        block: BlockId,
    ) -> Option<()> {
        let size = match step {
            Step::Field(bytes) => {
                self.least += i128::from(bytes);
                self.most += i128::from(bytes);
                return Some(());
            }
            Step::Elements(size) => i128::from(size),
        };
        let (least, most) = interval(kernel, uniform, index, block)?;
        self.least = self.least.checked_add(least.checked_mul(size)?)?;
        self.most = self.most.checked_add(most.checked_mul(size)?)?;
        if let Operand::Value(value) = index.op
            && let Some(Op::Cast { op: CastOp::ZExt, from, .. }) =
                uniform.definition(kernel, value).map(|inst| &inst.op)
            && from.ty == Type::I32
            && from.op.value().is_some()
            && !uniform.of(value).is_uniform()
        {
            self.widened.push((value, size));
        }
        Some(())
    }

    fn narrow(self) -> HashSet<ValueId> {
        let room = self.bound - self.least;
        self.widened.into_iter().filter(|(_, size)| room <= size * SIGN).map(|(value, _)| value).collect()
    }
}

/// The interval of an index, modulo 2⁶⁴.
fn interval(kernel: &Kernel, uniform: &Uniformity, index: &Typed, block: BlockId) -> Option<(i128, i128)> {
    let Type::Int(width @ 1..=64) = index.ty else { return None };
    if let Operand::Const(c) = &index.op {
        let number = signed(c.as_unsigned(width)?, width);
        return Some((number, number));
    }
    let max = uniform.at(&index.op, &index.ty, block).max;
    let widened = index.op.value().and_then(|v| match &uniform.definition(kernel, v)?.op {
        Op::Cast { op: CastOp::SExt, from: Typed { ty: Type::Int(narrow @ 1..=32), .. }, .. } => {
            Some(*narrow)
        }
        _ => None,
    });
    // Narrower indices are sign-extended.
    let width = widened.unwrap_or(width);
    Some(match max <= largest(width) / 2 || width == 64 {
        true => (0, i128::from(max)),
        false => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
    })
}

/// Sign-extends a number of this width.
fn signed(number: u128, width: u32) -> i128 {
    let number = number as i128;
    if number >> (width - 1) & 1 == 1 { number - (1 << width) } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::lane_layout::Layout;
    use crate::analysis::size_bound::SizeBound;

    /// Which of the named indices are narrow in the access to `%p`.
    fn narrow(body: &str) -> Vec<String> {
        narrow_below(SizeBound::DEFAULT, body)
    }

    /// The same for objects of up to this size.
    fn narrow_below(objects: SizeBound, body: &str) -> Vec<String> {
        let text = format!(
            "declare i32 @__elinvar_thread_position_in_threadgroup(i32)
            define void @__elinvar_entry(ptr %a, ptr %b, ptr %c) {{
              %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
              %w = zext i32 %t to i64
              %at = getelementptr i32, ptr %b, i64 %w
              %i = load i32, ptr %at
              %z = zext i32 %i to i64
              %s = sext i32 %i to i64
              %n = load i32, ptr %c
              %u = zext i32 %n to i64
              %large = load i64, ptr %c
              {body}
              %v = load i8, ptr %p
              store i8 %v, ptr %at
              ret void
            }}"
        );
        let module = Module::parse(&text).unwrap();
        let mut kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        kernel.objects = objects;
        let uniform = crate::analysis::Analyses::default()
            .get::<Uniformity>(&module, &kernel, &Layout::new([64, 1, 1], 8, false))
            .unwrap();
        let values = &kernel.function.values;
        let address = values.iter().position(|v| v.name.as_deref() == Some("p")).unwrap();
        let found = uniform.narrow().of(ValueId(address as u32)).cloned().unwrap_or_default();
        let mut names: Vec<String> = found
            .into_iter()
            .filter_map(|v| values[v.0 as usize].name.as_ref().map(ToString::to_string))
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn an_index_of_an_object_is_narrow() {
        assert_eq!(narrow("%p = getelementptr float, ptr %a, i64 %z"), ["z"]);
        assert_eq!(narrow("%p = getelementptr i8, ptr %a, i64 %z"), ["z"]);
        assert_eq!(narrow("%p = getelementptr float, ptr %a, i64 %s"), [""; 0], "it is signed already");
    }

    #[test]
    fn an_index_of_a_large_object_is_narrow_if_its_elements_are_large() {
        let of = |gib: u64, element: &str| {
            let below = SizeBound::of(gib << 30);
            !narrow_below(below, &format!("%p = getelementptr {element}, ptr %a, i64 %z")).is_empty()
        };
        assert_eq!([2, 4].map(|gib| of(gib, "i8")), [true, false]);
        assert_eq!([2, 4, 8, 12].map(|gib| of(gib, "float")), [true, true, true, false]);
        assert_eq!([8, 32, 33].map(|gib| of(gib, "<4 x float>")), [true, true, false]);
        let before = "%q = getelementptr i8, ptr %a, i64 -4 \n %p = getelementptr float, ptr %q, i64 %z";
        assert_eq!(narrow_below(SizeBound::of(4 << 30), before), ["z"]);
        assert_eq!(narrow_below(SizeBound::of(8 << 30), before), [""; 0], "8 GiB + 4 bytes");
        assert_eq!(narrow_below(SizeBound::NONE, "%p = getelementptr [64 x i64], ptr %a, i64 %z"), [""; 0]);
    }

    #[test]
    fn variables_of_the_kernel_are_not_large() {
        let body = "%own = alloca [4 x float] \n %p = getelementptr float, ptr %own, i64 %z";
        assert_eq!(narrow_below(SizeBound::NONE, body), ["z"]);
    }

    #[test]
    fn beside_what_is_not_negative() {
        let after = |more: &str| {
            narrow(&format!("%q = getelementptr float, ptr %a, i64 %z \n %p = getelementptr {more}"))
        };
        assert_eq!(after("i8, ptr %q, i64 2000"), ["z"]);
        assert_eq!(after("{ i32, float }, ptr %q, i64 0, i32 1"), ["z"]);
        assert_eq!(after("float, ptr %q, i64 %u"), ["z"]);
        assert_eq!(after("float, ptr %q, i64 -1"), ["z"], "2^31 + 4 bytes are still below 4 * 2^31");
        assert_eq!(after("float, ptr %q, i64 -1610612736"), ["z"]);
        assert_eq!(after("float, ptr %q, i64 -1610612737"), [""; 0]);
        assert_eq!(after("float, ptr %q, i64 -4294967000"), [""; 0]);
        assert_eq!(after("float, ptr %q, i64 %s"), [""; 0]);
        assert_eq!(after("float, ptr %q, i64 %large"), [""; 0], "it may be negative");
        let half = "%h = lshr i64 %large, 4 \n %q = getelementptr i8, ptr %a, i64 %h";
        assert_eq!(narrow(&format!("{half} \n %p = getelementptr i8, ptr %q, i64 %z")), ["z"]);
        assert_eq!(narrow(&format!("{half} \n %p = getelementptr [8 x i8], ptr %q, i64 %z")), ["z"]);
        let all = half.replace("i8, ptr %a", "[8 x i8], ptr %a");
        assert_eq!(narrow(&format!("{all} \n %p = getelementptr i8, ptr %q, i64 %z")), [""; 0], "2^63");
    }

    #[test]
    fn an_address_from_elsewhere_may_be_outside() {
        assert_eq!(narrow("%q = load ptr, ptr %c \n %p = getelementptr float, ptr %q, i64 %z"), [""; 0]);
        let chosen = "%more = icmp ult i32 %n, 5 \n %q = getelementptr float, ptr %a, i64 -4294967000 \n \
                      %r = select i1 %more, ptr %q, ptr %a \n %p = getelementptr float, ptr %r, i64 %z";
        assert_eq!(narrow(chosen), [""; 0]);
    }
}
