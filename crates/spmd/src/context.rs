//! Where the threads of a group keep what they carry across barriers: the layout of the scratch memory.
//!
//! Each value has an array with one element per thread of a full group; so has each private array of a
//! kernel with barriers, and, where threads can return while others go on, the mark that they have.

use std::collections::HashMap;

use elinvar_ir::{Module, Type, ValueId};

use crate::live::Live;
use crate::prepare::Kernel;
use crate::region::Region;

/// Arrays start at multiples of this.
const ALIGN: u64 = 64;

/// The layout.
pub(crate) struct Context {
    offsets: HashMap<ValueId, u64>,
    /// Offset of the marks of returned threads, one byte each.
    pub returned: Option<u64>,
    /// Size of the whole, a multiple of 64.
    pub bytes: u64,
}

impl Context {
    pub fn new(module: &Module, kernel: &Kernel, regions: &[Region], live: &Live, threads: u64) -> Self {
        let mut context = Self { offsets: HashMap::new(), returned: None, bytes: 0 };
        if kernel.barriers.is_empty() {
            return context;
        }
        for value in &live.all {
            let offset = context.array(module, kernel.function.ty(*value), threads);
            context.offsets.insert(*value, offset);
        }
        for private in &kernel.privates {
            let offset = context.array(module, &private.ty, threads);
            context.offsets.insert(private.value, offset);
        }
        if regions.iter().any(|r| r.returns && !r.barriers.is_empty()) {
            context.returned = Some(context.array(module, &Type::I8, threads));
        }
        context
    }

    fn array(&mut self, module: &Module, element: &Type, threads: u64) -> u64 {
        let offset = self.bytes;
        let (size, align) = element.size_align(module);
        self.bytes += (size.next_multiple_of(align) * threads).next_multiple_of(ALIGN);
        offset
    }

    /// Offset of the array of a value or private array.
    pub fn offset(&self, value: ValueId) -> Option<u64> {
        self.offsets.get(&value).copied()
    }
}
