//! Barrier contexts: the values that vector iterations keep across barriers, and their layout in scratch memory.
//!
//! Each value has an array with an element for each iteration, in the forms that it has. A value that is uniform over the
//! threadgroup has a stack slot instead, which is loaded before the iterations and stored by each of them. If the threadgroup is one
//! iteration, values stay in their own slots. Slots are promoted to registers. Further arrays hold each private array of a kernel
//! with barriers, with an element for each thread, and the returned lanes, if threads can return while others continue.
//!
//! A kernel with grid barriers returns at them, so all that it keeps is in scratch memory, which begins with the place at which it
//! resumes: the slots of uniform values, the values of a single iteration, and threadgroup variables.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use elinvar_ir::{BlockId, Function, Module, Op, Operand, Type, ValueId};

use crate::analysis::liveness::Liveness;
use crate::analysis::uniformity::Uniformity;
use crate::kernel::Kernel;
use crate::support::builder::{Builder, i64_const};
use crate::support::gep::stride;
use crate::vector::emit::{Emit, Forms, Source};

/// Alignment of arrays, and of their vector elements, in bytes.
const ALIGN: u64 = 64;

/// Private arrays of up to this many bytes for all threads of an iteration are on the stack, in kernels without barriers.
const STACK_BYTES: u64 = 16 << 10;
/// Maximum total size of private arrays on the stack, in bytes. The rest is in scratch memory.
const MOST_STACK_BYTES: u64 = 1 << 20;

/// Offset of the place at which a call resumes the threadgroup: the number of its region, and the code of the fault that names the
/// grid barrier before it, u32 each.
pub(crate) const RESUME: u64 = 0;
const RESUME_BYTES: u64 = 8;

/// An array with an element for each iteration.
#[derive(Clone, Debug)]
struct Array {
    offset: u64,
    /// Element size in bytes.
    stride: u64,
    scalars: usize,
    vectors: usize,
    /// Sizes in bytes of a scalar and of a vector.
    sizes: [u64; 2],
}

/// The layout.
pub(crate) struct BarrierContext {
    values: HashMap<ValueId, Array>,
    /// Arrays of values used outside a loop with a divergent exit.
    left: HashMap<ValueId, Array>,
    /// Slots of values that are uniform over the threadgroup; none before [`Self::place_shared`].
    shared: BTreeMap<ValueId, Option<Operand>>,
    /// Offsets of these slots, with grid barriers.
    kept: HashMap<ValueId, u64>,
    /// Offsets of threadgroup variables, with grid barriers.
    threadgroup: HashMap<String, u64>,
    privates: HashMap<ValueId, u64>,
    /// Offset of the returned lanes, a u32 per vector.
    pub returned: Option<u64>,
    /// Total size in bytes, a multiple of 64.
    pub bytes: u64,
}

impl BarrierContext {
    /// `group` is the uniformity over the whole threadgroup. Includes the returned lanes, if some
    /// threads return while others continue (`returns_diverge`).
    pub fn new(source: &Source<'_>, live: &Liveness, group: &Uniformity, returns_diverge: bool) -> Self {
        let mut context = Self {
            values: HashMap::new(),
            left: HashMap::new(),
            shared: BTreeMap::new(),
            kept: HashMap::new(),
            threadgroup: HashMap::new(),
            privates: HashMap::new(),
            returned: None,
            bytes: 0,
        };
        let (kernel, layout) = (source.kernel, source.layout);
        let iterations = u64::from(layout.iterations());
        let is_cooperative = kernel.is_cooperative();
        if is_cooperative {
            let place = context.reserve(RESUME_BYTES);
            debug_assert_eq!(place, RESUME);
        }
        // With one iteration, values stay in their slots.
        for value in live.all.iter().filter(|_| iterations > 1 || is_cooperative) {
            let ty = kernel.function.ty(*value);
            let (scalars, vectors) = source.counts(source.uniform.of(*value));
            let has_left = source.leaving.contains(value);
            if (scalars, vectors, has_left) == (1, 0, false) && group.of(*value).is_same() {
                context.shared.insert(*value, None);
                continue;
            }
            let array = context.array(source, ty, iterations, scalars, vectors);
            context.values.insert(*value, array);
            if has_left {
                let array = context.array(source, ty, iterations, 0, source.parts(false));
                context.left.insert(*value, array);
            }
        }
        let threads = u64::from(layout.vectors().next_multiple_of(layout.factor) * layout.lanes);
        let per_iteration = u64::from(layout.factor * layout.lanes);
        let mut on_stack = 0;
        for private in &kernel.private_arrays {
            let each = stride(source.module, &private.ty);
            let count = if kernel.barriers.is_empty() { per_iteration } else { threads };
            let fits =
                each * per_iteration <= STACK_BYTES && on_stack + each * per_iteration <= MOST_STACK_BYTES;
            if kernel.barriers.is_empty() && fits {
                on_stack += each * per_iteration;
            } else {
                let offset = context.reserve(each * count);
                context.privates.insert(private.value, offset);
            }
        }
        if returns_diverge {
            context.returned = Some(context.reserve(u64::from(layout.vectors() + layout.factor) * 4));
        }
        if is_cooperative {
            context.keep_shared(source.module, kernel);
            for name in &kernel.threadgroup {
                let Some(global) = source.module.global(name) else { continue };
                let offset = context.reserve(global.ty.size_align(source.module).0);
                context.threadgroup.insert(name.clone(), offset);
            }
        }
        context
    }

    /// Reserves memory for the slots of uniform values.
    fn keep_shared(&mut self, module: &Module, kernel: &Kernel) {
        let mut bytes = 0;
        for value in self.shared.keys() {
            let (size, align) = kernel.function.ty(*value).size_align(module);
            bytes = u64::next_multiple_of(bytes, align.max(1));
            self.kept.insert(*value, bytes);
            bytes += size;
        }
        let first = self.reserve(bytes);
        self.kept.values_mut().for_each(|offset| *offset += first);
    }

    /// The offset of a threadgroup variable's memory, if it is in the scratch memory.
    pub fn threadgroup(&self, name: &str) -> Option<u64> {
        self.threadgroup.get(name).copied()
    }

    fn reserve(&mut self, bytes: u64) -> u64 {
        let offset = self.bytes;
        self.bytes += bytes.next_multiple_of(ALIGN);
        offset
    }

    fn array(
        &mut self,
        source: &Source<'_>,
        ty: &Type,
        iterations: u64,
        scalars: usize,
        vectors: usize,
    ) -> Array {
        let scalar = stride(source.module, ty);
        let vector = (scalar.max(1) * u64::from(source.layout.lanes)).next_multiple_of(ALIGN);
        let align = if vectors > 0 { ALIGN } else { 1 };
        let stride = vector * vectors as u64 + (scalar * scalars as u64).next_multiple_of(align);
        let offset = self.reserve(stride * iterations);
        Array { offset, stride, scalars, vectors, sizes: [scalar, vector] }
    }

    /// The offset of a private array's memory, if it is in the scratch memory.
    pub fn private(&self, value: ValueId) -> Option<u64> {
        self.privates.get(&value).copied()
    }

    /// Whether a value is uniform over the threadgroup and stored once.
    pub fn is_shared(&self, value: ValueId) -> bool {
        self.shared.contains_key(&value)
    }

    /// Allocates the slots of uniform values in the entry block.
    pub fn place_shared(&mut self, f: &mut Function, entry: BlockId, kernel: &Kernel, scratch: &Operand) {
        let mut b = Builder::new(f, entry);
        for (value, slot) in &mut self.shared {
            if let Some(offset) = self.kept.get(value) {
                *slot = Some(b.gep(Type::I8, scratch.clone(), i64_const(*offset)).into());
                continue;
            }
            let ty = kernel.function.ty(*value).clone();
            let slot_of = Op::Alloca { ty, count: None, align: None, addrspace: 0 };
            *slot = Some(b.value(Type::PTR, Some("shared"), slot_of).into());
        }
    }

    /// Loads the uniform values of a region before its iterations.
    pub fn read_shared(
        &self,
        b: &mut Builder<'_>,
        kernel: &Kernel,
        live: &BTreeSet<ValueId>,
    ) -> HashMap<ValueId, Operand> {
        let shared = self.shared.iter().filter(|(value, _)| live.contains(value));
        let read = shared.filter_map(|(value, slot)| {
            Some((*value, b.load(kernel.function.ty(*value).clone(), slot.clone()?, None).into()))
        });
        read.collect()
    }

    /// Stores the values that are live after a barrier and defined in a region's blocks.
    pub fn save(&self, emit: &mut Emit<'_, '_>, place: &ContextSlot, value: ValueId, cont: BlockId) {
        if let Some(Some(slot)) = self.shared.get(&value) {
            let ty = emit.source.kernel.function.ty(value).clone();
            let slots = emit.value_slots(value);
            let forms = emit.load(&slots, &ty);
            return forms.scalars.into_iter().for_each(|one| emit.b.store(ty.clone(), one, slot.clone()));
        }
        self.each_form(emit, value, cont, &mut |emit, array, slots, ty| {
            let forms = emit.load(slots, ty);
            let addresses = place.forms(emit, array);
            let wide = emit.wide(ty);
            for (value, at) in forms.scalars.iter().zip(addresses.scalars) {
                emit.b.store(ty.clone(), value.clone(), at);
            }
            for (value, at) in forms.vectors.iter().zip(addresses.vectors) {
                emit.b.store_aligned(wide.clone(), value.clone(), at, ALIGN);
            }
        });
    }

    /// Loads the live values into their slots.
    pub fn restore(&self, emit: &mut Emit<'_, '_>, place: &ContextSlot, value: ValueId, cont: BlockId) {
        self.each_form(emit, value, cont, &mut |emit, array, slots, ty| {
            let addresses = place.forms(emit, array);
            let wide = emit.wide(ty);
            for (slot, at) in slots.scalars.iter().zip(addresses.scalars) {
                let loaded = emit.b.load(ty.clone(), at, None);
                emit.b.store(ty.clone(), loaded, slot.clone());
            }
            for (slot, at) in slots.vectors.iter().zip(addresses.vectors) {
                let loaded = emit.b.load_aligned(wide.clone(), at, ALIGN);
                emit.b.store(wide.clone(), loaded, slot.clone());
            }
        });
    }

    fn each_form(
        &self,
        emit: &mut Emit<'_, '_>,
        value: ValueId,
        cont: BlockId,
        act: &mut dyn FnMut(&mut Emit<'_, '_>, &Array, &Forms, &Type),
    ) {
        let ty = emit.source.kernel.function.ty(value).clone();
        let has_left = emit.source.uniform.has_left(value, cont);
        if let Some(array) = self.values.get(&value).filter(|_| !has_left) {
            let slots = emit.value_slots(value);
            act(emit, array, &slots, &ty);
        }
        if let Some(array) = self.left.get(&value) {
            let slots = Forms { scalars: Vec::new(), vectors: emit.left_slots(value, &ty) };
            act(emit, array, &slots, &ty);
        }
    }
}

/// Position of an iteration in the scratch memory.
#[derive(Clone)]
pub(crate) struct ContextSlot {
    pub scratch: Operand,
    /// Number of the iteration, an i64.
    pub iteration: Operand,
}

impl ContextSlot {
    fn forms(&self, emit: &mut Emit<'_, '_>, array: &Array) -> Forms {
        let first = emit.b.gep(Type::I8, self.scratch.clone(), i64_const(array.offset));
        let element = emit.b.gep(Type::array(array.stride, Type::I8), first, self.iteration.clone());
        let mut at = 0;
        let mut take = |emit: &mut Emit<'_, '_>, size: u64| -> Operand {
            let address = emit.b.gep(Type::I8, element, i64_const(at));
            at += size;
            address.into()
        };
        let [scalar, vector] = array.sizes;
        let vectors = (0..array.vectors).map(|_| take(emit, vector)).collect();
        let scalars = (0..array.scalars).map(|_| take(emit, scalar)).collect();
        Forms { scalars, vectors }
    }
}
