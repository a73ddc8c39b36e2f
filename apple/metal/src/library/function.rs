//! [`Function`]: [`MTLFunction`](https://developer.apple.com/documentation/metal/mtlfunction), a kernel's name with values of its function
//! constants; [`MTLFunctionConstantValues`](https://developer.apple.com/documentation/metal/mtlfunctionconstantvalues) and
//! `MTLFunctionDescriptor`.

use std::ffi::c_void;

use elinvar_driver::{Constant, ConstantKey, ElementType, FunctionConstant, PipelineOptions, Scalar};
use elinvar_objc::foundation::{NsArray, NsDictionary, NsError, NsString};
use elinvar_objc::{Declaration, NsRange, Out, Property, Ref};
use parking_lot::Mutex;

use crate::library::{DOMAIN, Library, error};
use crate::require;

/// Values of constants.
#[derive(Default)]
pub struct ConstantValues(Mutex<Vec<Constant>>);

elinvar_objc::object!(ConstantValues, c"MTLFunctionConstantValues");

impl Clone for ConstantValues {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().clone()))
    }
}

/// The first `MTLDataType` of each scalar; those with two to four components follow.
const TYPES: [(usize, Scalar); 12] = [
    (3, Scalar::F32),
    (16, Scalar::F16),
    (29, Scalar::I32),
    (33, Scalar::U32),
    (37, Scalar::I16),
    (41, Scalar::U16),
    (45, Scalar::I8),
    (49, Scalar::U8),
    (53, Scalar::Bool),
    (81, Scalar::I64),
    (85, Scalar::U64),
    (121, Scalar::BF16),
];

/// Decodes an `MTLDataType`: scalar and number of components.
fn scalar_of(kind: usize) -> Option<(Scalar, usize)> {
    let (first, scalar) = TYPES.into_iter().find(|(first, _)| (*first..first + 4).contains(&kind))?;
    Some((scalar, kind - first + 1))
}

/// The `MTLDataType` of an argument's pointee; 1 (struct) for types without another constant.
pub fn data_type(element: &ElementType) -> usize {
    let Some(scalar) = element.scalar() else { return 1 };
    let lanes = match element {
        ElementType::Vector { lanes, .. } => *lanes as usize,
        _ => 1,
    };
    TYPES.iter().find(|(_, known)| *known == scalar).map_or(1, |(first, _)| first + lanes - 1)
}

impl ConstantValues {
    fn set(&self, method: &str, key: ConstantKey, kind: usize, value: *const c_void) -> Option<usize> {
        let known = scalar_of(kind);
        require!(known.is_some(), "{method} constants cannot have the data type {kind}");
        require!(!value.is_null(), "{method} the value is null");
        let (scalar, lanes) = known?;
        let size = usize::try_from(scalar.size()).unwrap_or(1);
        // SAFETY: the program passes a value of that type. A vector of three components has the size of one of four.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size * lanes) }.to_vec();
        let mut values = self.0.lock();
        values.retain(|known| known.key != key);
        values.push(Constant { key, scalar, bytes });
        Some(size * if lanes == 3 { 4 } else { lanes })
    }

    fn set_at(this: &Ref<Self>, value: *mut c_void, kind: usize, index: usize) {
        const METHOD: &str = "setConstantValue:type:atIndex:";
        require!(index <= usize::from(u16::MAX), "{METHOD} the index {index} is over 65535");
        this.set(METHOD, ConstantKey::Index(u32::try_from(index).unwrap_or(0)), kind, value);
    }

    fn set_named(this: &Ref<Self>, value: *mut c_void, kind: usize, name: Ref<NsString>) {
        this.set("setConstantValue:type:withName:", name.as_str().into(), kind, value);
    }

    fn set_range(this: &Ref<Self>, values: *mut c_void, kind: usize, range: NsRange) {
        const METHOD: &str = "setConstantValues:type:withRange:";
        let end = range.end().filter(|end| *end <= 1 << 16);
        require!(end.is_some(), "{METHOD} {range:?} goes over 65535");
        let mut next = values;
        for index in range.location..end.unwrap_or(0) {
            let key = ConstantKey::Index(u32::try_from(index).unwrap_or(0));
            let Some(step) = this.set(METHOD, key, kind, next) else { return };
            next = next.wrapping_byte_add(step);
        }
    }

    /// The values of the constants that a library declares; others are ignored.
    fn of(&self, declared: &[FunctionConstant]) -> Vec<Constant> {
        let is_declared = |constant: &&Constant| match &constant.key {
            ConstantKey::Index(index) => declared.iter().any(|known| known.index == *index),
            ConstantKey::Name(name) => declared.iter().any(|known| known.name == *name),
        };
        self.0.lock().iter().filter(is_declared).cloned().collect()
    }
}

/// Which function is meant.
#[derive(Clone, Default)]
pub struct FunctionDescriptor {
    name: Property<Option<Ref<NsString>>>,
    specialized: Property<Option<Ref<NsString>>>,
    constants: Property<Option<Ref<ConstantValues>>>,
    options: Property<usize>,
    archives: Property<Option<Ref<NsArray>>>,
}

elinvar_objc::object!(FunctionDescriptor, c"MTLFunctionDescriptor");

/// A kernel with the values of its constants.
pub struct Function {
    pub library: Ref<Library>,
    pub name: String,
    pub options: PipelineOptions,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(Function, c"ElinvarMTLFunction");

/// A library's information about a constant.
struct Declared {
    name: String,
    index: u32,
    kind: usize,
}

elinvar_objc::object!(Declared, c"MTLFunctionConstant");

impl Function {
    fn find(library: &Ref<Library>, name: &str, options: PipelineOptions) -> Result<Ref<Self>, Ref<NsError>> {
        if !library.compiled.kernels().iter().any(|kernel| kernel.name == name) {
            let message = format!("function {name} was not found in the library");
            return Err(NsError::new(DOMAIN, error::FUNCTION_NOT_FOUND, &message));
        }
        let (library, name) = (library.clone(), name.to_owned());
        Ok(Ref::new(Self { library, name, options, label: Property::default() }))
    }

    /// `newFunctionWithName:`.
    pub fn with_name(library: &Ref<Library>, name: Ref<NsString>) -> Option<Ref<Self>> {
        Self::find(library, name.as_str(), PipelineOptions::default()).ok()
    }

    /// `newFunctionWithName:constantValues:error:`.
    pub fn with_constants(
        library: &Ref<Library>,
        name: Ref<NsString>,
        constants: Ref<ConstantValues>,
        error: Out,
    ) -> Option<Ref<Self>> {
        error.catch(Self::specialized(library, name.as_str(), &constants))
    }

    fn specialized(
        library: &Ref<Library>,
        name: &str,
        constants: &ConstantValues,
    ) -> Result<Ref<Self>, Ref<NsError>> {
        let constants = constants.of(library.compiled.constants());
        Self::find(library, name, PipelineOptions { constants, ..PipelineOptions::default() })
    }

    /// `newFunctionWithDescriptor:error:`.
    pub fn with_descriptor(
        library: &Ref<Library>,
        descriptor: Ref<FunctionDescriptor>,
        error: Out,
    ) -> Option<Ref<Self>> {
        let name = descriptor.name.get();
        require!(name.is_some(), "newFunctionWithDescriptor:error: the descriptor has no name");
        let constants = descriptor.constants.get().unwrap_or_else(|| Ref::new(ConstantValues::default()));
        error.catch(Self::specialized(library, name?.as_str(), &constants))
    }

    fn constants(this: &Ref<Self>) -> Ref<NsDictionary> {
        let declared = this.library.compiled.constants().iter().map(|constant| {
            let declared = Declared {
                name: constant.name.clone(),
                index: constant.index,
                kind: data_type(&constant.ty),
            };
            (NsString::new(&constant.name), Ref::new(declared).into_object())
        });
        NsDictionary::new(declared)
    }
}

pub fn register() {
    Declaration::<ConstantValues>::new()
        .makes_default()
        .copies()
        .method("setConstantValue:type:atIndex:", ConstantValues::set_at)
        .method("setConstantValue:type:withName:", ConstantValues::set_named)
        .method("setConstantValues:type:withRange:", ConstantValues::set_range)
        .method("reset", |this: &Ref<ConstantValues>| this.0.lock().clear())
        .register();
    Declaration::<FunctionDescriptor>::new()
        .makes_default()
        .copies()
        .class_method("functionDescriptor", || Ref::new(FunctionDescriptor::default()))
        .property("name", |d: &FunctionDescriptor| &d.name)
        .property("specializedName", |d: &FunctionDescriptor| &d.specialized)
        .property("constantValues", |d: &FunctionDescriptor| &d.constants)
        .property("options", |d: &FunctionDescriptor| &d.options)
        .property("binaryArchives", |d: &FunctionDescriptor| &d.archives)
        .register();
    Declaration::<Declared>::new()
        .method("name", |this: &Ref<Declared>| NsString::new(&this.name))
        .method("type", |this: &Ref<Declared>| this.kind)
        .method("index", |this: &Ref<Declared>| this.index as usize)
        .method("required", |_: &Ref<Declared>| true)
        .register();
    Declaration::<Function>::new()
        .follows(c"MTLFunction")
        .property("label", |function: &Function| &function.label)
        .method("device", |this: &Ref<Function>| this.library.device.clone())
        .method("name", |this: &Ref<Function>| NsString::new(&this.name))
        // `MTLFunctionTypeKernel`
        .method("functionType", |_: &Ref<Function>| 3_usize)
        .method("functionConstantsDictionary", Function::constants)
        .method("options", |_: &Ref<Function>| 0_usize)
        .register();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_types_are_those_of_the_header() {
        let vector = |scalar, lanes| ElementType::Vector { scalar, lanes, packed: false };
        assert_eq!(data_type(&ElementType::Scalar(Scalar::F32)), 3);
        assert_eq!(data_type(&vector(Scalar::U32, 3)), 35);
        assert_eq!(data_type(&vector(Scalar::BF16, 4)), 124);
        assert_eq!(data_type(&ElementType::Other("S".into())), 1);
        assert_eq!(scalar_of(56), Some((Scalar::Bool, 4)));
        assert_eq!((scalar_of(57), scalar_of(58)), (None, None));
    }
}
