//! Metal's reflection: a kernel's arguments according to its compiler.
//!
//! It is compared with the signature of Elinvar's front end, and replaces it if there is none. Such a signature lacks what Metal does not
//! report: whether an argument is a pointer or a reference, `const` if the kernel happens not to write, `constant` or `device`, positions
//! and sizes that the kernel uses, and its location in the source.

use elinvar_driver::{Access, Arg, ArgKind, ElementType, Error, FunctionConstant, Result, Signature};
use objc2::Message;
use objc2::rc::Retained;
use objc2::runtime::{NSObjectProtocol as _, ProtocolObject};
use objc2::sel;
use objc2_metal::{
    MTLBinding, MTLBindingAccess, MTLBindingType, MTLBufferBinding, MTLComputePipelineReflection,
    MTLFunction, MTLFunctionConstant, MTLThreadgroupBinding,
};

use super::types::element;

/// An argument according to Metal.
#[derive(Clone, Debug)]
pub(super) struct Reflected {
    name: String,
    threadgroup: bool,
    index: u32,
    /// Whether the code uses it.
    used: bool,
    element: ElementType,
    /// Size of an element in bytes; 0 for threadgroup memory.
    size: u64,
    align: u64,
    writes: bool,
}

/// Buffers and threadgroup memory of a kernel, and the name of the first argument of another kind.
#[derive(Default)]
pub(super) struct Reflection {
    args: Vec<Reflected>,
    other: Option<String>,
}

impl Reflection {
    /// `bindings` requires macOS 13; before, `arguments` has the same information.
    pub(super) fn new(reflection: &MTLComputePipelineReflection) -> Self {
        let mut found = Self { args: Vec::new(), other: None };
        if reflection.respondsToSelector(sel!(bindings)) {
            for binding in reflection.bindings().iter().filter(|binding| binding.isArgument()) {
                found.add(binding.name().to_string(), binding.r#type(), || from_binding(&binding));
            }
        } else {
            found.add_arguments(reflection);
        }
        found
    }

    #[allow(deprecated)] // for systems that have nothing else
    fn add_arguments(&mut self, reflection: &MTLComputePipelineReflection) {
        for argument in reflection.arguments().iter() {
            let name = argument.name().to_string();
            let ty = MTLBindingType(argument.r#type().0 as isize);
            self.add(name.clone(), ty, || {
                let threadgroup = ty == MTLBindingType::ThreadgroupMemory;
                let size = if threadgroup { 0 } else { argument.bufferDataSize() as u64 };
                let align = match threadgroup {
                    true => argument.threadgroupMemoryAlignment(),
                    false => argument.bufferAlignment(),
                };
                Reflected {
                    element: element(argument.bufferDataType(), &name),
                    name,
                    threadgroup,
                    index: number(argument.index()),
                    used: argument.isActive(),
                    size,
                    align: align as u64,
                    writes: argument.access() != MTLBindingAccess::ReadOnly,
                }
            });
        }
    }

    fn add(&mut self, name: String, ty: MTLBindingType, describe: impl FnOnce() -> Reflected) {
        match ty {
            MTLBindingType::Buffer | MTLBindingType::ThreadgroupMemory => self.args.push(describe()),
            _ => self.other = self.other.take().or(Some(name)),
        }
    }

    /// Removes an argument of the driver's own. Returns the size of its elements in bytes; 0 if there is none.
    pub(super) fn take(&mut self, index: u32) -> u64 {
        let at = self.args.iter().position(|found| !found.threadgroup && found.index == index);
        at.map_or(0, |at| self.args.remove(at).size)
    }

    /// Checks that a signature agrees, as far as both have the information.
    ///
    /// # Errors
    /// `Unsupported`, with the argument and its index: a launch would bind arguments that the kernel does not expect.
    pub(super) fn compare(&self, signature: &Signature) -> Result<()> {
        let kernel = &signature.name;
        if let Some(name) = &self.other {
            return Err(Error::unsupported(format!("kernel `{kernel}`: argument `{name}` is not a buffer")));
        }
        for arg in &signature.args {
            let refuse = |what: String| {
                let (name, index) = (&arg.name, arg.index);
                Err(Error::unsupported(format!(
                    "kernel `{kernel}`: argument `{name}` (index {index}) {what}"
                )))
            };
            let threadgroup = arg.kind == ArgKind::Threadgroup;
            let found =
                self.args.iter().find(|other| other.threadgroup == threadgroup && other.index == arg.index);
            // Metal may omit arguments that the kernel does not use.
            let Some(found) = found.filter(|found| found.used) else { continue };
            if !threadgroup && found.size != arg.element_size {
                let (theirs, ours) = (found.size, arg.element_size);
                return refuse(format!(
                    "has elements of {theirs} bytes for Metal and of {ours} by the signature"
                ));
            }
            if found.writes && arg.access == Access::Read {
                return refuse("is written for Metal and only read by the signature".into());
            }
        }
        let unknown = self.args.iter().find(|found| found.used && !has(signature, found));
        match unknown {
            None => Ok(()),
            Some(Reflected { name, index, .. }) => Err(Error::unsupported(format!(
                "kernel `{kernel}`: Metal has an argument `{name}` (index {index}) that is not in the signature"
            ))),
        }
    }

    /// A signature with only this information.
    ///
    /// # Errors
    /// `Unsupported` for an argument that is not a buffer.
    pub(super) fn signature(&self, kernel: &str, file: &str) -> Result<Signature> {
        if let Some(name) = &self.other {
            return Err(Error::unsupported(format!("kernel `{kernel}`: argument `{name}` is not a buffer")));
        }
        let arg = |found: &Reflected| Arg {
            name: found.name.clone(),
            kind: if found.threadgroup { ArgKind::Threadgroup } else { ArgKind::Pointer },
            index: found.index,
            element: found.element.clone(),
            element_size: found.size.max(1),
            element_align: found.align.max(1),
            access: if found.writes { Access::ReadWrite } else { Access::Read },
            constant: false,
        };
        Ok(Signature {
            name: kernel.to_owned(),
            args: self.args.iter().map(arg).collect(),
            builtins: Vec::new(),
            file: file.to_owned(),
            line: 0,
            max_threads_per_threadgroup: None,
            code: None,
            logs: Vec::new(),
        })
    }
}

fn has(signature: &Signature, found: &Reflected) -> bool {
    let same =
        |arg: &Arg| (arg.kind == ArgKind::Threadgroup) == found.threadgroup && arg.index == found.index;
    signature.args.iter().any(same)
}

#[allow(unsafe_code)] // the binding's type says which protocol it has
fn from_binding(binding: &ProtocolObject<dyn MTLBinding>) -> Reflected {
    let name = binding.name().to_string();
    let threadgroup = binding.r#type() == MTLBindingType::ThreadgroupMemory;
    let object = binding.retain();
    let (element, size, align) = if threadgroup {
        // SAFETY: bindings of this type have this protocol.
        let memory: Retained<ProtocolObject<dyn MTLThreadgroupBinding>> =
            unsafe { Retained::cast_unchecked(object) };
        (ElementType::Other(name.clone()), 0, memory.threadgroupMemoryAlignment())
    } else {
        // SAFETY: bindings of the type that is left have this protocol.
        let buffer: Retained<ProtocolObject<dyn MTLBufferBinding>> =
            unsafe { Retained::cast_unchecked(object) };
        (element(buffer.bufferDataType(), &name), buffer.bufferDataSize(), buffer.bufferAlignment())
    };
    Reflected {
        name,
        threadgroup,
        index: number(binding.index()),
        used: binding.isUsed(),
        element,
        size: size as u64,
        align: align as u64,
        writes: binding.access() != MTLBindingAccess::ReadOnly,
    }
}

/// The function constants of a function, by index.
pub(super) fn constants(function: &ProtocolObject<dyn MTLFunction>) -> Vec<FunctionConstant> {
    let constant = |constant: Retained<MTLFunctionConstant>| {
        let name = constant.name().to_string();
        FunctionConstant { index: number(constant.index()), ty: element(constant.r#type(), &name), name }
    };
    let constants = function.functionConstantsDictionary().allValues();
    let mut found: Vec<FunctionConstant> = constants.iter().map(constant).collect();
    found.sort_by_key(|constant| constant.index);
    found
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
