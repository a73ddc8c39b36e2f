//! Validates a launch's arguments against the kernel's signature.
//!
//! All properties are checked here, before anything is recorded: number, element type, size, constness, alignment, threadgroup
//! memory, device. The result satisfies the contract of the drivers. Errors name the kernel, the argument and its index, from 0.

use std::sync::Arc;

use elinvar_driver as driver;
use elinvar_driver::{
    ArgKind, Binding, Dim3, ElementType, Error, InlineBytes, Pipeline, Result, Scalar, Signature, Use,
    function_handle, similar_names,
};
use smallvec::smallvec;

use crate::Device;
use crate::launch::args::{Arg, ArgList, Element, Value};
use crate::memory::operands::{declaration, no_address, place, used_place};
use crate::memory::span::Span;
use crate::memory::usage::{Access, Usage, Usages, Who};

/// Bindings of a launch, and the memory that it uses.
pub(crate) struct Bound {
    pub(crate) bindings: Vec<Binding>,
    pub(crate) uses: Vec<Use>,
    pub(crate) usages: Usages,
}

/// Validates `args` against the signature of `pipeline`, which belongs to `device`. `bindings` is an empty list to be filled.
pub(crate) fn bind(
    device: &Device,
    pipeline: &Arc<dyn Pipeline>,
    args: ArgList,
    mut bindings: Vec<Binding>,
) -> Result<Bound> {
    let signature = pipeline.signature();
    let is_use = |arg: &&Arg| matches!(arg.value, Value::Use(_));
    let given = args.len() - args.iter().filter(is_use).count();
    bindings.reserve(signature.args.len());
    let mut bound = Bound { bindings, uses: Vec::new(), usages: Usages::new() };
    for (number, arg) in args.iter().filter(is_use).enumerate() {
        bind_use(device, pipeline, number, arg, &mut bound)?;
    }
    for arg in args {
        if is_use(&&arg) {
            continue;
        }
        let index = bound.bindings.len();
        let Some(expected) = signature.args.get(index) else {
            return Err(wrong_count(signature, given));
        };
        let slot = Slot { signature, index, expected };
        match arg.value {
            Value::Size(size) => slot.bind_size(size, &mut bound.bindings)?,
            Value::Threadgroup(bytes) => bound.bindings.push(slot.bind_threadgroup(bytes)?),
            Value::Bytes { bytes, element } => bound.bindings.push(slot.bind_bytes(bytes, element)?),
            Value::Memory { span, element, writable } => {
                let same = || format!("{}: the buffer is", slot.place());
                device.expect_accessible(&span.storage.device, same)?;
                slot.check_memory(&span, element, writable)?;
                bound.bindings.push(Binding::Memory(span.memory_slice()));
                bound.usages.push(slot.usage(pipeline, &span));
            }
            Value::Unbound => bound.bindings.push(slot.bind_unbound()?),
            Value::Functions(names) => bound.bindings.push(slot.bind_functions(&names)?),
            Value::Use(_) => {}
        }
    }
    if bound.bindings.len() < signature.args.len() {
        return Err(wrong_count(signature, given));
    }
    check_threadgroup_memory(device, &**pipeline, &bound.bindings)?;
    Ok(bound)
}

/// Validates `arg` as a replacement of argument `index` of a bound launch.
pub(crate) fn rebind(
    device: &Device,
    pipeline: &Arc<dyn Pipeline>,
    index: usize,
    arg: &Arg,
) -> Result<Binding> {
    let signature = pipeline.signature();
    let slot = Slot { signature, index, expected: &signature.args[index] };
    match &arg.value {
        Value::Bytes { bytes, element } => slot.bind_bytes(bytes.clone(), *element),
        Value::Memory { span, element, writable } => {
            device.expect_accessible(&span.storage.device, || format!("{}: the buffer is", slot.place()))?;
            slot.check_memory(span, *element, *writable)?;
            Ok(Binding::Memory(span.memory_slice()))
        }
        Value::Size(size) => {
            let mut bindings = Vec::new();
            slot.bind_size(*size, &mut bindings)?;
            match (bindings.pop(), bindings.is_empty()) {
                (Some(binding), true) => Ok(binding),
                _ => slot.refuse("a `Dim3` would replace three arguments; replace each of them"),
            }
        }
        Value::Functions(names) => slot.bind_functions(names),
        Value::Threadgroup(_) | Value::Unbound | Value::Use(_) => {
            slot.refuse("can be replaced by a value or a buffer only")
        }
    }
}

/// Binds resource `number` of the launch, which the kernel accesses through an address.
fn bind_use(
    device: &Device,
    pipeline: &Arc<dyn Pipeline>,
    number: usize,
    arg: &Arg,
    bound: &mut Bound,
) -> Result<()> {
    let place = || used_place(pipeline.signature(), number);
    let Value::Use(Some((span, writable))) = &arg.value else {
        return Err(Error::invalid(format!("{}: not a buffer", place())));
    };
    device.expect_accessible(&span.storage.device, || format!("{}: the buffer is", place()))?;
    let slice = span.memory_slice();
    if slice.memory.gpu_address().is_none() {
        return Err(no_address(device));
    }
    let (access, usage) = match *writable {
        true => (driver::Access::ReadWrite, Access::Write),
        false => (driver::Access::Read, Access::Read),
    };
    let who = Who::Use(pipeline.clone(), number);
    bound.uses.push(Use { slice, access });
    // The written range is unknown.
    bound.usages.push(Usage { storage: span.storage.clone(), who, access: usage, covers: false });
    Ok(())
}

fn wrong_count(signature: &Signature, given: usize) -> Error {
    let list: Vec<String> =
        signature.args.iter().map(|arg| format!("{} {}", declaration(arg), arg.name).trim().into()).collect();
    let takes = match list.len() {
        0 => "no arguments".into(),
        1 => format!("1 argument ({})", list[0]),
        count => format!("{count} arguments ({})", list.join(", ")),
    };
    Error::invalid(format!("kernel `{}` takes {takes}, {given} given", signature.name))
}

/// An argument of the signature that is being bound.
struct Slot<'a> {
    signature: &'a Signature,
    index: usize,
    expected: &'a driver::Arg,
}

impl Slot<'_> {
    fn place(&self) -> String {
        place(self.signature, self.index)
    }

    fn refuse<T>(&self, reason: impl std::fmt::Display) -> Result<T> {
        Err(Error::invalid(format!("{}: {reason}", self.place())))
    }

    fn bind_threadgroup(&self, bytes: u64) -> Result<Binding> {
        if self.expected.kind != ArgKind::Threadgroup {
            return self.refuse("given threadgroup memory, but it is not a threadgroup argument");
        }
        Ok(Binding::Threadgroup(bytes))
    }

    fn bind_unbound(&self) -> Result<Binding> {
        if let ElementType::Inbox { .. } | ElementType::Queue { .. } | ElementType::LaunchQueue =
            self.expected.element
        {
            self.check_element(Element::Raw, "nothing")?;
        }
        match self.expected.kind {
            ArgKind::Pointer => Ok(Binding::Unbound),
            // Compilers read what a reference refers to before they know whether it is used.
            ArgKind::Reference => Ok(Binding::Bytes(smallvec![0; self.expected.element_size as usize])),
            ArgKind::Threadgroup => self
                .refuse("threadgroup memory cannot be unbound; pass a size, such as `Threadgroup::bytes(n)`"),
        }
    }

    fn bind_functions(&self, names: &[String]) -> Result<Binding> {
        let ElementType::Function { functions, .. } = &self.expected.element else {
            return self.refuse("given functions, but it is not a visible_function_table");
        };
        if names.is_empty() {
            return self.refuse("needs at least one function");
        }
        // The number of functions, then their handles.
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let mut words = InlineBytes::new();
        words.extend_from_slice(&count.to_ne_bytes());
        for name in names {
            if !functions.contains(name) {
                let known = similar_names("functions", name, functions.iter().map(String::as_str));
                return self
                    .refuse(format_args!("no `[[visible]]` function `{name}` in the source; {known}"));
            }
            words.extend_from_slice(&function_handle(name).to_ne_bytes());
        }
        Ok(Binding::Bytes(words))
    }

    fn bind_bytes(&self, bytes: InlineBytes, element: Element) -> Result<Binding> {
        self.refuse_threadgroup()?;
        if self.expected.access == driver::Access::ReadWrite {
            return self.refuse("the kernel may write to it; pass a `&mut` buffer instead of a value");
        }
        self.check_element(element, "a value")?;
        let (len, size) = (bytes.len() as u64, self.expected.element_size);
        let exact = self.expected.kind == ArgKind::Reference && element != Element::Raw;
        if exact && len != size {
            return self.refuse(format_args!("expected a value of {size} bytes, given {len}"));
        }
        self.check_size(len, "the value")?;
        Ok(Binding::Bytes(bytes))
    }

    fn check_memory(&self, span: &Span, element: Element, writable: bool) -> Result<()> {
        self.refuse_threadgroup()?;
        self.check_element(element, "a buffer")?;
        if !writable && self.expected.access == driver::Access::ReadWrite {
            return self.refuse("the kernel may write to it; pass the buffer as `&mut`");
        }
        let align = self.expected.element_align.max(1);
        if !span.offset.is_multiple_of(align) {
            let offset = span.offset;
            return self.refuse(format_args!(
                "the slice begins at byte {offset}, which is not a multiple of {align}"
            ));
        }
        let address = span.storage.block.memory.host_ptr().map_or(0, |first| first.addr().get() as u64);
        if !address.wrapping_add(span.offset).is_multiple_of(align) {
            return self.refuse(format_args!("the memory's address is not a multiple of {align}"));
        }
        if span.len == 0 && self.expected.kind == ArgKind::Pointer && !self.is_reinterpreted(element) {
            return Ok(());
        }
        self.check_size(span.len, "the buffer")
    }

    /// Requires at least one element. The memory behind a pointer may end with a part of one.
    fn check_size(&self, len: u64, subject: &str) -> Result<()> {
        let size = self.expected.element_size;
        if len < size || len == 0 {
            return self.refuse(format_args!("needs at least {size} bytes, {subject} has {len}"));
        }
        Ok(())
    }

    /// Whether bytes are given for a struct.
    fn is_reinterpreted(&self, element: Element) -> bool {
        let bytes = matches!(element, Element::Raw | Element::Scalars { scalar: Scalar::U8, lanes: 1, .. });
        bytes && matches!(self.expected.element, ElementType::Other(_))
    }

    fn refuse_threadgroup(&self) -> Result<()> {
        if self.expected.kind == ArgKind::Threadgroup {
            return self.refuse("requires a size of threadgroup memory, such as `Threadgroup::bytes(n)`");
        }
        Ok(())
    }

    fn check_element(&self, element: Element, subject: &str) -> Result<()> {
        if element == Element::Double {
            return self.refuse(format_args!("given {subject} of f64, but MSL has no double; use f32"));
        }
        if self.fits(element) {
            return Ok(());
        }
        let expected = &self.expected.element;
        if let ElementType::Function { .. } = expected {
            return self
                .refuse("a visible_function_table takes functions, as `Arg::functions([\"f\", \"g\"])`");
        }
        if let ElementType::Inbox { .. } = expected {
            return self.refuse("a kernel with an inbox is launched by `PersistentKernel::start`");
        }
        if let ElementType::LaunchQueue = expected {
            return self.refuse("a kernel with a launch queue is launched by `launch_nested`");
        }
        if let ElementType::Queue { message, .. } = expected {
            return self.refuse(format_args!(
                "expected a `MessageQueue` with messages of {message} bytes, aligned to at most 8"
            ));
        }
        match element {
            Element::LaunchQueue => self.refuse(format_args!("expected {expected}, given a launch queue")),
            Element::Inbox => self.refuse(format_args!("expected {expected}, given an inbox")),
            Element::Queue { message } => {
                self.refuse(format_args!("expected {expected}, given a queue of messages of {message} bytes"))
            }
            Element::Scalars { scalar, lanes, name } => {
                let msl = if lanes == 1 {
                    scalar.msl_name().into()
                } else {
                    format!("{}{lanes}", scalar.msl_name())
                };
                let name = if name == msl { format!("`{name}`") } else { format!("`{name}` ({msl})") };
                self.refuse(format_args!("expected {expected}, given {subject} of {name}"))
            }
            Element::Pod { name, size } => {
                let wanted = self.expected.element_size;
                self.refuse(format_args!(
                    "expected {expected} ({wanted} bytes), given {subject} of `{name}` ({size} bytes)"
                ))
            }
            Element::Double | Element::Raw => self.refuse("raw bytes are not accepted"),
        }
    }

    fn fits(&self, element: Element) -> bool {
        let size = self.expected.element_size;
        let same = |host: Scalar, msl: Scalar| host == msl || (host == Scalar::U8 && msl == Scalar::Bool);
        match (&self.expected.element, element) {
            (ElementType::Function { .. }, _) => false,
            (ElementType::Inbox { .. }, element) => element == Element::Inbox,
            (ElementType::Queue { message, slot }, Element::Queue { message: given }) => {
                *message == given && *slot == 8 + given.next_multiple_of(8)
            }
            (ElementType::LaunchQueue, element) => element == Element::LaunchQueue,
            (ElementType::Queue { .. }, _)
            | (_, Element::Inbox | Element::Queue { .. } | Element::LaunchQueue) => false,
            (_, Element::Raw) => true,
            (_, Element::Double) => false,
            (ElementType::Scalar(msl) | ElementType::Atomic(msl), Element::Scalars { scalar, .. }) => {
                same(scalar, *msl)
            }
            (ElementType::Vector { scalar: msl, .. }, Element::Scalars { scalar, lanes, .. }) => {
                same(scalar, *msl) && (lanes == 1 || u64::from(lanes) * scalar.size() == size)
            }
            (ElementType::Other(_), Element::Scalars { scalar: Scalar::U8, lanes: 1, .. }) => true,
            (ElementType::Other(_), Element::Scalars { scalar, lanes, .. }) => {
                u64::from(lanes) * scalar.size() == size
            }
            (ElementType::Scalar(_) | ElementType::Atomic(_), Element::Pod { .. }) => false,
            (ElementType::Vector { .. } | ElementType::Other(_), Element::Pod { size: host, .. }) => {
                host == size
            }
        }
    }

    /// Binds one `uint3`, or three consecutive `uint`s.
    fn bind_size(&self, size: Dim3, bindings: &mut Vec<Binding>) -> Result<()> {
        let by_value =
            |arg: &driver::Arg| arg.kind != ArgKind::Threadgroup && arg.access == driver::Access::Read;
        let is_uint = |arg: &driver::Arg| by_value(arg) && arg.element == ElementType::Scalar(Scalar::U32);
        let words = size.to_array();
        if by_value(self.expected)
            && matches!(self.expected.element, ElementType::Vector { scalar: Scalar::U32, lanes: 3, .. })
        {
            let mut bytes = InlineBytes::from_slice(bytemuck::cast_slice(&words));
            bytes.resize(self.expected.element_size as usize, 0);
            bindings.push(Binding::Bytes(bytes));
            return Ok(());
        }
        let next = self.signature.args.get(self.index..self.index + 3);
        if next.is_some_and(|args| args.iter().all(is_uint)) {
            bindings.extend(words.map(|word| Binding::bytes(&word.to_ne_bytes())));
            return Ok(());
        }
        self.refuse("a `Dim3` requires a read-only `uint3`, or three consecutive `uint` arguments")
    }

    fn usage(&self, pipeline: &Arc<dyn Pipeline>, span: &Span) -> Usage {
        let access = match self.expected.access {
            driver::Access::Read => Access::Read,
            driver::Access::ReadWrite => Access::Write,
        };
        Usage {
            storage: span.storage.clone(),
            who: Who::Argument(pipeline.clone(), self.index),
            access,
            covers: span.covers_storage(),
        }
    }
}

fn check_threadgroup_memory(device: &Device, pipeline: &dyn Pipeline, bindings: &[Binding]) -> Result<()> {
    let own = pipeline.threadgroup_memory();
    let given = bindings.iter().fold(0u64, |sum, binding| match binding {
        Binding::Threadgroup(bytes) => {
            sum.saturating_add(bytes.checked_next_multiple_of(16).unwrap_or(u64::MAX))
        }
        _ => sum,
    });
    let allowed = device.caps().limits.max_threadgroup_memory;
    if own.saturating_add(given) > allowed {
        let (kernel, device) = (&pipeline.signature().name, device.name());
        return Err(Error::invalid(format!(
            "kernel `{kernel}`: {given} bytes of threadgroup memory given and {own} declared by the kernel; \
             device `{device}` allows {allowed}"
        )));
    }
    Ok(())
}
