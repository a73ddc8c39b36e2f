//! Sizes, alignments and fields of types, in the natural layout that x86-64 and aarch64 share.
//!
//! Integers, floats and pointers are aligned to their size (integers to the next power of two, at most
//! 16 bytes), vectors to their size rounded up to a power of two. The module's `target datalayout`
//! is not read. Opaque and undefined named types, and types that contain themselves, have size 0 and
//! alignment 1; [`crate::verify`] reports them, as it does types nested too deep to lay out.

use std::collections::HashMap;

use crate::model::*;

/// Named types nest at most this deep; see [`crate::verify`].
pub(crate) const MAX_NAMED_DEPTH: usize = 32;

impl Type {
    /// The same shape with another scalar: `<4 x float>` with `i1` is `<4 x i1>`.
    pub fn with_scalar(&self, scalar: Type) -> Type {
        match self {
            Type::Vector(lanes, _) => Type::vector(*lanes, scalar),
            _ => scalar,
        }
    }

    /// The number of lanes of a vector, else `None`.
    pub fn lanes(&self) -> Option<u32> {
        match self {
            Type::Vector(lanes, _) => Some(*lanes),
            _ => None,
        }
    }

    /// The type behind a name; other types are themselves. `None` when undefined or opaque.
    pub fn resolve<'a>(&'a self, module: &'a Module) -> Option<&'a Type> {
        let mut ty = self;
        for _ in 0..MAX_NAMED_DEPTH {
            match ty {
                Type::Named(name) => ty = module.named_type(name)?,
                other => return Some(other),
            }
        }
        None
    }

    /// The element of a struct, array or vector with this index.
    pub fn element<'a>(&'a self, index: u64, module: &'a Module) -> Option<&'a Type> {
        match self.resolve(module)? {
            Type::Struct { fields, .. } => fields.get(usize::try_from(index).ok()?),
            Type::Array(count, element) if index < *count => Some(element),
            Type::Vector(lanes, element) if index < u64::from(*lanes) => Some(element),
            _ => None,
        }
    }

    /// The type that the indices of an `extractvalue` lead to; vectors are not entered.
    pub fn at_path<'a>(&'a self, path: &[u32], module: &'a Module) -> Option<&'a Type> {
        let mut ty = self;
        for index in path {
            if matches!(ty, Type::Vector(..)) {
                return None;
            }
            ty = ty.element(u64::from(*index), module)?;
        }
        Some(ty)
    }

    /// The allocation size (a multiple of the alignment) and the ABI alignment, in bytes. Sizes beyond
    /// `u64` saturate.
    pub fn size_align(&self, module: &Module) -> (u64, u64) {
        Layout::of(module).size_align(self)
    }

    /// The byte offset of a struct's field; `None` for another type or a field that does not exist.
    pub fn field_offset(&self, field: usize, module: &Module) -> Option<u64> {
        let Type::Struct { packed, fields } = self.resolve(module)? else { return None };
        let before = fields.get(..field)?;
        let next = fields.get(field)?;
        let mut layout = Layout::of(module);
        let (end, _) = layout.fields(*packed, before);
        let align = if *packed { 1 } else { layout.size_align(next).1 };
        Some(round_up(end, align))
    }
}

impl Module {
    /// The definition of a named struct type; `None` when undefined or opaque.
    pub fn named_type(&self, name: &str) -> Option<&Type> {
        self.types.iter().find(|(n, _)| n == name)?.1.as_ref()
    }
}

/// One computation: each named type is laid out once, so shared types cost no more than distinct ones.
struct Layout<'a> {
    module: &'a Module,
    /// Types in progress are present with the layout of an opaque type, which ends any cycle.
    known: HashMap<&'a str, (u64, u64)>,
    /// How many named types are in progress.
    depth: usize,
}

impl<'a> Layout<'a> {
    fn of(module: &'a Module) -> Self {
        Layout { module, known: HashMap::new(), depth: 0 }
    }

    fn size_align(&mut self, ty: &Type) -> (u64, u64) {
        match ty {
            Type::Void | Type::Metadata => (0, 1),
            Type::Int(bits) => {
                let bytes = u64::from(*bits).div_ceil(8).max(1);
                let align = bytes.next_power_of_two().min(16);
                (round_up(bytes, align), align)
            }
            Type::Half | Type::BFloat => (2, 2),
            Type::Float => (4, 4),
            Type::Double | Type::Ptr(_) => (8, 8),
            Type::Vector(lanes, element) => self.vector(*lanes, element),
            Type::Array(count, element) => {
                let (size, align) = self.size_align(element);
                (size.saturating_mul(*count), align)
            }
            Type::Struct { packed, fields } => {
                let (end, align) = self.fields(*packed, fields);
                (round_up(end, align), align)
            }
            Type::Named(name) => self.named(name),
        }
    }

    /// Vectors are packed bit by bit: `<8 x i1>` is one byte.
    fn vector(&mut self, lanes: u32, element: &Type) -> (u64, u64) {
        let bits = match element {
            Type::Int(bits) => u64::from(*bits),
            other => self.size_align(other).0.saturating_mul(8),
        };
        let bytes = bits.saturating_mul(u64::from(lanes)).div_ceil(8).max(1);
        let align = bytes.checked_next_power_of_two().unwrap_or(1 << 63);
        (round_up(bytes, align), align)
    }

    /// The end of the last field, without padding after it, and the largest alignment.
    fn fields(&mut self, packed: bool, fields: &[Type]) -> (u64, u64) {
        let mut end = 0u64;
        let mut largest = 1;
        for field in fields {
            let (size, align) = self.size_align(field);
            let align = if packed { 1 } else { align };
            largest = largest.max(align);
            end = round_up(end, align).saturating_add(size);
        }
        (end, largest)
    }

    fn named(&mut self, name: &str) -> (u64, u64) {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let module: &'a Module = self.module;
        let Some((name, Some(ty))) = module.types.iter().find(|(n, _)| n == name) else { return (0, 1) };
        if self.depth == MAX_NAMED_DEPTH {
            return (0, 1);
        }
        self.known.insert(name, (0, 1));
        self.depth += 1;
        let layout = self.size_align(ty);
        self.depth -= 1;
        self.known.insert(name, layout);
        layout
    }
}

fn round_up(size: u64, align: u64) -> u64 {
    size.checked_next_multiple_of(align).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn structure(packed: bool, fields: &[Type]) -> Type {
        Type::Struct { packed, fields: fields.to_vec() }
    }

    #[test]
    fn scalars_and_vectors() {
        let m = Module::default();
        let cases = [
            (Type::I1, (1, 1)),
            (Type::Int(24), (4, 4)),
            (Type::I64, (8, 8)),
            (Type::Int(128), (16, 16)),
            (Type::Half, (2, 2)),
            (Type::BFloat, (2, 2)),
            (Type::Double, (8, 8)),
            (Type::Ptr(3), (8, 8)),
            (Type::vector(3, Type::Float), (16, 16)),
            (Type::vector(8, Type::Float), (32, 32)),
            (Type::vector(8, Type::I1), (1, 1)),
            (Type::vector(3, Type::Half), (8, 8)),
        ];
        for (ty, expected) in cases {
            assert_eq!(ty.size_align(&m), expected, "{ty:?}");
        }
    }

    #[test]
    fn aggregates() {
        let mut m = Module::default();
        let mixed = [Type::I8, Type::Float, Type::I8];
        m.types.push(("pair".to_owned(), Some(structure(false, &mixed))));
        let named = Type::Named("pair".to_owned());
        assert_eq!(named.size_align(&m), (12, 4));
        assert_eq!(structure(true, &mixed).size_align(&m), (6, 1));
        assert_eq!(Type::array(3, named.clone()).size_align(&m), (36, 4));
        assert_eq!(named.field_offset(2, &m), Some(8));
        assert_eq!(named.field_offset(3, &m), None);
        assert_eq!(Type::array(u64::MAX, Type::I64).size_align(&m), (u64::MAX, 8));
    }

    #[test]
    fn types_that_contain_themselves_end() {
        let mut m = Module::default();
        let cycle = Type::Named("a".to_owned());
        m.types.push(("a".to_owned(), Some(structure(false, &[Type::I32, cycle.clone()]))));
        m.types.push(("b".to_owned(), Some(Type::Named("b".to_owned()))));
        assert_eq!(cycle.size_align(&m), (4, 4));
        assert_eq!(Type::Named("b".to_owned()).resolve(&m), None);
    }
}
