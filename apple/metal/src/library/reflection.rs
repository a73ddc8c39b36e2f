//! [`Reflection`]: [`MTLComputePipelineReflection`](https://developer.apple.com/documentation/metal/mtlcomputepipelinereflection), the
//! arguments of a kernel, as bindings and, in the older API, as arguments.

use elinvar_driver::{Access, Arg, ArgKind, Signature};
use elinvar_objc::foundation::{NsArray, NsString, os_version};
use elinvar_objc::{Declaration, Object, Ref};

use crate::library::function::data_type;

/// The arguments of a kernel.
pub struct Reflection(Vec<Arg>);

elinvar_objc::object!(Reflection, c"MTLComputePipelineReflection");

impl Reflection {
    /// Of a kernel.
    pub fn of(signature: &Signature) -> Ref<Self> {
        Ref::new(Self(signature.args.clone()))
    }

    fn bindings(this: &Ref<Self>) -> Ref<NsArray> {
        NsArray::new(this.0.iter().map(|arg| match arg.kind {
            ArgKind::Threadgroup => Ref::new(ThreadgroupBinding(arg.clone())).into_object(),
            _ => Ref::new(BufferBinding(arg.clone())).into_object(),
        }))
    }

    fn arguments(this: &Ref<Self>) -> Ref<NsArray> {
        NsArray::new(this.0.iter().map(|arg| Ref::new(Argument(arg.clone())).into_object()))
    }
}

struct BufferBinding(Arg);

elinvar_objc::object!(BufferBinding, c"ElinvarMTLBufferBinding");

struct ThreadgroupBinding(Arg);

elinvar_objc::object!(ThreadgroupBinding, c"ElinvarMTLThreadgroupBinding");

struct Argument(Arg);

elinvar_objc::object!(Argument, c"MTLArgument");

/// What the three kinds of objects have.
trait Taken: elinvar_objc::Declared {
    fn arg(&self) -> &Arg;
}

impl Taken for BufferBinding {
    fn arg(&self) -> &Arg {
        &self.0
    }
}

impl Taken for ThreadgroupBinding {
    fn arg(&self) -> &Arg {
        &self.0
    }
}

impl Taken for Argument {
    fn arg(&self) -> &Arg {
        &self.0
    }
}

/// `MTLBindingAccess`: 0 reads, 1 reads and writes.
fn access(arg: &Arg) -> usize {
    usize::from(arg.access == Access::ReadWrite)
}

/// `MTLBindingType`: 0 for a buffer, 1 for threadgroup memory.
fn kind(arg: &Arg) -> usize {
    usize::from(arg.kind == ArgKind::Threadgroup)
}

fn size(arg: &Arg) -> usize {
    usize::try_from(arg.element_size).unwrap_or(0)
}

fn align(arg: &Arg) -> usize {
    usize::try_from(arg.element_align).unwrap_or(1)
}

fn common<T: Taken>(class: Declaration<T>) -> Declaration<T> {
    class
        .method("name", |this: &Ref<T>| NsString::new(&this.arg().name))
        .method("index", |this: &Ref<T>| this.arg().index as usize)
        .method("access", |this: &Ref<T>| access(this.arg()))
}

fn of_buffer<T: Taken>(class: Declaration<T>) -> Declaration<T> {
    class
        .method("bufferAlignment", |this: &Ref<T>| align(this.arg()))
        .method("bufferDataSize", |this: &Ref<T>| size(this.arg()))
        .method("bufferDataType", |this: &Ref<T>| data_type(&this.arg().element))
        .method("bufferStructType", |_: &Ref<T>| None::<Object>)
        .method("bufferPointerType", |_: &Ref<T>| None::<Object>)
}

fn of_threadgroup<T: Taken>(class: Declaration<T>) -> Declaration<T> {
    class
        .method("threadgroupMemoryAlignment", |this: &Ref<T>| align(this.arg()))
        .method("threadgroupMemoryDataSize", |this: &Ref<T>| size(this.arg()))
}

pub fn register() {
    let binding = |kind: &'static std::ffi::CStr| {
        move |class: Declaration<BufferBinding>| class.follows(c"MTLBinding").follows(kind)
    };
    of_buffer(common(binding(c"MTLBufferBinding")(Declaration::new())))
        .method("type", |this: &Ref<BufferBinding>| kind(this.arg()) as isize)
        .method("isUsed", |_: &Ref<BufferBinding>| true)
        .method("isArgument", |_: &Ref<BufferBinding>| true)
        .register();
    let threadgroup =
        Declaration::<ThreadgroupBinding>::new().follows(c"MTLBinding").follows(c"MTLThreadgroupBinding");
    of_threadgroup(common(threadgroup))
        .method("type", |this: &Ref<ThreadgroupBinding>| kind(this.arg()) as isize)
        .method("isUsed", |_: &Ref<ThreadgroupBinding>| true)
        .method("isArgument", |_: &Ref<ThreadgroupBinding>| true)
        .register();
    of_threadgroup(of_buffer(common(Declaration::<Argument>::new())))
        .method("type", |this: &Ref<Argument>| kind(this.arg()))
        .method("isActive", |_: &Ref<Argument>| true)
        .method("arrayLength", |_: &Ref<Argument>| 1_usize)
        .register();
    Declaration::<Reflection>::new()
        .method("arguments", Reflection::arguments)
        .when(os_version() >= (13, 0), |class| class.method("bindings", Reflection::bindings))
        .register();
}
