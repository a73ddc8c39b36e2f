//! Reflection: a kernel's [`Signature`] from its tokens and tables, with the checks that clang does not make.

pub(crate) mod builtins;
pub(crate) mod tables;

use std::collections::HashMap;

use elinvar_driver::{Access, Arg, ArgKind, Builtin, Diagnostic, ElementType, Scalar, Severity, Signature};

use self::tables::{KernelTable, PassedBy, TypeDescription};
use crate::preprocess::source_map::SourceMap;
use crate::rewrite::attributes::Attribute;
use crate::rewrite::glue::VALUES_BEFORE_INDICES;
use crate::rewrite::kernels::{AddressSpace, Kernel, Param};
use crate::rewrite::struct_attributes::AttributedStruct;

/// Largest index of a buffer or threadgroup argument (Metal Feature Set Tables: 31 of each).
const LAST_INDEX: i64 = 30;

/// Result for a kernel.
pub(crate) enum Outcome {
    Supported(Signature),
    /// Valid, but not supported; the message names the parameter.
    Unsupported(Diagnostic),
    Invalid(Vec<Diagnostic>),
}

/// The structs whose members have attributes, with the members' types.
pub(crate) struct Structs<'a> {
    pub structs: &'a [AttributedStruct],
    pub types: &'a HashMap<usize, Vec<TypeDescription>>,
    /// Names of the visible functions.
    pub functions: &'a [String],
}

/// Build and check the signature of a kernel.
pub(crate) fn build(
    kernel: &Kernel,
    table: &KernelTable,
    structs: &Structs,
    source_map: &SourceMap,
) -> Outcome {
    let mut builder = SignatureBuilder { kernel, source_map, errors: Vec::new(), unsupported: None };
    let (file, line) = source_map.line(kernel.offset);
    let mut signature = Signature {
        name: kernel.name.clone(),
        args: Vec::new(),
        builtins: Vec::new(),
        file,
        line,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    };
    if table.values.get(1) != Some(&1) {
        builder.error(kernel.offset, format!("kernel `{}` must return void", kernel.name));
    }
    if let Some(attribute) = &kernel.max_threads {
        let value = table.values.get(2).copied().unwrap_or(0);
        match u32::try_from(value).ok().filter(|v| (1..=1024).contains(v)) {
            Some(v) => signature.max_threads_per_threadgroup = Some(v),
            None => {
                let message = format!("max_total_threads_per_threadgroup is {value}; it must be 1 to 1024");
                builder.error(attribute.offset, message);
            }
        }
    }
    let mut given = Vec::new();
    for (i, (param, d)) in kernel.params.iter().zip(&table.parameters).enumerate() {
        if param.has_members {
            signature.builtins.extend(builder.members(d, structs));
            continue;
        }
        let index = table.values.get(VALUES_BEFORE_INDICES + i).copied().unwrap_or(-1);
        match builder.param(i, param, d) {
            Some(Binding::Builtin(b)) => signature.builtins.push(b),
            Some(Binding::Arg(kind)) => {
                given.push((builder.index(param, index), param.condition().is_some()));
                signature.args.push(arg(param, d, kind, structs.functions));
            }
            None => {}
        }
    }
    builder.assign_indices(&mut signature.args, &given);
    match (builder.errors, builder.unsupported) {
        (errors, _) if !errors.is_empty() => Outcome::Invalid(errors),
        (_, Some(why)) => Outcome::Unsupported(why),
        _ => Outcome::Supported(signature),
    }
}

/// How a parameter is bound.
enum Binding {
    Arg(ArgKind),
    Builtin(Builtin),
}

struct SignatureBuilder<'a> {
    kernel: &'a Kernel,
    source_map: &'a SourceMap,
    errors: Vec<Diagnostic>,
    unsupported: Option<Diagnostic>,
}

impl SignatureBuilder<'_> {
    fn diagnostic(&self, offset: usize, message: String) -> Diagnostic {
        let p = self.source_map.location(offset);
        Diagnostic { source_line: p.source_line, ..Diagnostic::error(p.file, p.line, p.column, message) }
    }

    fn error(&mut self, offset: usize, message: String) {
        let d = self.diagnostic(offset, message);
        debug_assert_eq!(d.severity, Severity::Error);
        self.errors.push(d);
    }

    fn unsupported(&mut self, offset: usize, what: String) {
        let message = format!("kernel `{}` takes {what}, which is not supported", self.kernel.name);
        let d = self.diagnostic(offset, message);
        self.unsupported.get_or_insert(d);
    }

    /// A parameter of a type of the library that is not supported.
    fn opaque(&mut self, name: &str, param: &Param, of: &str) {
        let what = format!("parameter {name} of type `{of}`");
        if builtins::is_array_of_buffers(of) {
            let message = format!(
                "kernel `{}` takes {what}; Metal has arrays of buffers as members of argument buffers, \
                 `constant Arguments& a [[buffer(n)]]`, not as parameters",
                self.kernel.name
            );
            let d = self.diagnostic(param.offset, message);
            self.unsupported.get_or_insert(d);
        } else {
            self.unsupported(param.offset, what);
        }
    }

    fn param(&mut self, i: usize, param: &Param, d: &TypeDescription) -> Option<Binding> {
        let name = if param.name.is_empty() { format!("number {i}") } else { format!("`{}`", param.name) };
        for a in &param.attributes {
            if builtins::unsupported(&a.name) {
                self.unsupported(param.offset, format!("parameter {name} with `[[{}]]`", a.name));
                return None;
            }
        }
        if let Some(condition) = param.condition()
            && condition.argument.is_none()
        {
            let message = format!("`[[function_constant]]` on parameter {name} needs the name of a constant");
            self.error(condition.offset, message);
        }
        let of = d.element.to_string();
        if d.passed == PassedBy::Value && builtins::is_opaque(&of) {
            self.opaque(&name, param, &of);
            return None;
        }
        match param.binding_attributes().collect::<Vec<_>>()[..] {
            [] => self.plain(&name, param, d),
            [a] => match (a.name.as_str(), builtins::dimensions(&a.name)) {
                ("buffer" | "threadgroup", _) => self.memory(&name, param, a, d),
                (_, Some(most)) => self.builtin(&format!("parameter {name}"), a, most, d),
                _ => {
                    self.error(a.offset, format!("unknown attribute `{}` on parameter {name}", a.name));
                    None
                }
            },
            [.., a] => {
                self.error(a.offset, format!("more than one attribute on parameter {name}"));
                None
            }
        }
    }

    /// A struct passed by value: each member is a position or a size.
    fn members(&mut self, d: &TypeDescription, structs: &Structs) -> Vec<Builtin> {
        let Some((of, types)) =
            d.members.and_then(|k| Some((structs.structs.get(k)?, structs.types.get(&k)?)))
        else {
            return Vec::new();
        };
        let mut builtins = Vec::new();
        for (member, d) in of.members.iter().zip(types) {
            let name = format!("`{}::{}`", of.path, member.name);
            let Some(a) = &member.attribute else {
                let message = format!(
                    "member {name} of a parameter passed by value has no attribute such as \
                             [[thread_position_in_grid]]"
                );
                self.error(member.offset, message);
                continue;
            };
            if let Some(most) = builtins::dimensions(&a.name)
                && let Some(Binding::Builtin(b)) = self.builtin(&name, a, most, d)
            {
                builtins.push(b);
            }
        }
        builtins
    }

    /// A parameter without attribute: a pointer or reference gets the next free index.
    fn plain(&mut self, name: &str, param: &Param, d: &TypeDescription) -> Option<Binding> {
        if d.passed != PassedBy::Value || functions(d).is_some() {
            return self.pointer(name, param, d);
        }
        let of = d.element.to_string();
        if builtins::is_opaque(&of) {
            self.opaque(name, param, &of);
        } else {
            self.error(
                param.offset,
                format!(
                    "parameter {name} of type `{of}` is passed by value without an attribute; pass a value of the \
                     launch as `constant {of}&`, or give it an attribute such as [[thread_position_in_grid]]"
                ),
            );
        }
        None
    }

    fn memory(&mut self, name: &str, param: &Param, a: &Attribute, d: &TypeDescription) -> Option<Binding> {
        let is_table = functions(d).is_some();
        if d.passed == PassedBy::Value && !is_table {
            let message = format!("parameter {name} with `[[{}]]` must be a pointer or a reference", a.name);
            self.error(a.offset, message);
            return None;
        }
        let shared = param.space == Some(AddressSpace::Threadgroup);
        if (param.space.is_some() || is_table) && shared != (a.name == "threadgroup") {
            let space = if shared { "threadgroup" } else { "device or constant" };
            let message =
                format!("parameter {name} points to {space} memory and cannot have `[[{}]]`", a.name);
            self.error(a.offset, message);
            return None;
        }
        self.pointer(name, param, d)
    }

    fn pointer(&mut self, name: &str, param: &Param, d: &TypeDescription) -> Option<Binding> {
        match param.space {
            _ if functions(d).is_some() => Some(Binding::Arg(ArgKind::Pointer)),
            Some(AddressSpace::Threadgroup) => Some(Binding::Arg(ArgKind::Threadgroup)),
            Some(AddressSpace::Device | AddressSpace::Constant) if d.passed == PassedBy::Pointer => {
                Some(Binding::Arg(ArgKind::Pointer))
            }
            Some(AddressSpace::Device | AddressSpace::Constant) => Some(Binding::Arg(ArgKind::Reference)),
            Some(AddressSpace::Thread) | None => {
                let message =
                    format!("parameter {name} must point to `device`, `constant` or `threadgroup` memory");
                self.error(param.offset, message);
                None
            }
        }
    }

    fn builtin(&mut self, name: &str, a: &Attribute, most: u32, d: &TypeDescription) -> Option<Binding> {
        let dimensions = match &d.element {
            ElementType::Scalar(Scalar::U32 | Scalar::U16) => Some(1),
            ElementType::Vector { scalar: Scalar::U32 | Scalar::U16, lanes, packed: false } => Some(*lanes),
            _ => None,
        };
        match dimensions.filter(|n| d.passed == PassedBy::Value && *n <= most) {
            Some(dimensions) => Some(Binding::Builtin(Builtin { attribute: a.name.clone(), dimensions })),
            None => {
                let types = if most == 1 {
                    "uint or ushort"
                } else {
                    "uint or ushort, or a vector of 2 or 3 of them"
                };
                let message =
                    format!("{name} with `[[{}]]` has type `{}`; it must be {types}", a.name, d.element);
                self.error(a.offset, message);
                None
            }
        }
    }

    /// The index that a parameter's attribute specifies.
    fn index(&mut self, param: &Param, index: i64) -> Option<u32> {
        let a = crate::rewrite::glue::index(param)?;
        let Some(argument) = &a.argument else {
            self.error(a.offset, format!("`[[{}]]` needs an index", a.name));
            return None;
        };
        if !(0..=LAST_INDEX).contains(&index) {
            self.error(
                a.offset,
                format!("`[[{}({argument})]]`: the index is {index}; it must be 0 to {LAST_INDEX}", a.name),
            );
            return None;
        }
        u32::try_from(index).ok()
    }

    /// The lowest index that is not taken; an error if there is none.
    fn free_index(&mut self, arg: &Arg, taken: &[u32]) -> u32 {
        let free = (0..).find(|index| !taken.contains(index)).unwrap_or(0);
        if i64::from(free) > LAST_INDEX {
            let table = if arg.kind == ArgKind::Threadgroup { "threadgroup" } else { "buffer" };
            let offset = self.kernel.params.iter().find(|p| p.name == arg.name).map_or(0, |p| p.offset);
            let name = &arg.name;
            self.error(
                offset,
                format!("no {table} index is left for `{name}`: the other arguments have 0 to {LAST_INDEX}"),
            );
        }
        free
    }

    /// Assign indices: the specified one, else the lowest free one of its kind.
    ///
    /// Arguments conditional on function constants may share an index; specialization checks that.
    fn assign_indices(&mut self, args: &mut [Arg], given: &[(Option<u32>, bool)]) {
        for shared in [false, true] {
            let mine: Vec<usize> =
                (0..args.len()).filter(|&i| (args[i].kind == ArgKind::Threadgroup) == shared).collect();
            let mut taken: Vec<u32> = Vec::new();
            let mut always: Vec<u32> = Vec::new();
            for &i in &mine {
                let (Some(index), optional) = given[i] else { continue };
                if !optional && always.contains(&index) {
                    let table = if shared { "threadgroup" } else { "buffer" };
                    let offset =
                        self.kernel.params.iter().find(|p| p.name == args[i].name).map_or(0, |p| p.offset);
                    self.error(
                        offset,
                        format!("{table} index {index} is used twice in kernel `{}`", self.kernel.name),
                    );
                }
                taken.push(index);
                always.extend((!optional).then_some(index));
            }
            for i in mine {
                args[i].index = match given[i].0 {
                    Some(index) => index,
                    None => self.free_index(&args[i], &taken),
                };
                taken.push(args[i].index);
            }
        }
    }
}

/// Two arguments with the same index.
pub(crate) fn index_conflict(args: &[Arg]) -> Option<(&str, &str)> {
    let table = |arg: &Arg| (arg.index, arg.kind == ArgKind::Threadgroup);
    args.iter().enumerate().find_map(|(i, second)| {
        let first = args[..i].iter().find(|first| table(first) == table(second))?;
        Some((first.name.as_str(), second.name.as_str()))
    })
}

/// The type of the functions, for a table of functions, which is passed as a pointer to their handles.
fn functions(d: &TypeDescription) -> Option<String> {
    match &d.element {
        ElementType::Other(name) if d.passed == PassedBy::Value => {
            builtins::functions_of(name).map(str::to_owned)
        }
        _ => None,
    }
}

/// Size of a function's handle.
const HANDLE_BYTES: u64 = 4;

fn arg(param: &Param, d: &TypeDescription, kind: ArgKind, visible: &[String]) -> Arg {
    let constant = param.space == Some(AddressSpace::Constant);
    let arg = Arg {
        name: param.name.clone(),
        kind,
        index: 0,
        element: d.element.clone(),
        element_size: d.size,
        element_align: d.align,
        access: if d.constant || constant { Access::Read } else { Access::ReadWrite },
        constant,
    };
    match functions(d) {
        Some(of) => Arg {
            element: ElementType::Function { of, functions: visible.to_vec() },
            element_size: HANDLE_BYTES,
            element_align: HANDLE_BYTES,
            access: Access::Read,
            constant: true,
            ..arg
        },
        None => arg,
    }
}
