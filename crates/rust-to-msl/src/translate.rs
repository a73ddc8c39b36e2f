//! [`translate`]: a kernel with its items becomes MSL.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;

use crate::emit::{Emit, Line};
use crate::error::{Error, Result, fail};
use crate::hir::Local;
use crate::items::Items;
use crate::lower::Lower;
use crate::program::{Program, check_signature, parameter_name};
use crate::types::{Scalar, Space, Ty};

/// Positions and sizes that are attributes of parameters, as in Metal.
pub const POSITIONS: &[&str] = &[
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "thread_index_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_grid",
    "threads_per_threadgroup",
    "threadgroups_per_grid",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
];

/// Positions that are one number.
const SCALARS: &[&str] = &[
    "thread_index_in_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
];

/// What a parameter of a kernel is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// A slice: a device buffer.
    Buffer {
        /// Whether it is a `&mut [T]`.
        mutable: bool,
        /// Whether its elements are atomics.
        atomic: bool,
    },
    /// `Constant<T>`: a buffer in constant memory.
    ConstantBuffer,
    /// A number, vector or struct, copied into constant memory.
    Value,
    /// A position or size, by its attribute.
    Position(String),
    /// An array in threadgroup memory.
    Threadgroup {
        /// Its length is that of the launch.
        dynamic: bool,
        atomic: bool,
    },
    /// A function constant.
    Constant,
}

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub struct Parameter {
    pub name: String,
    pub role: Role,
    pub ty: syn::Type,
    pub mutable: bool,
    /// Its length is a further argument.
    pub length: bool,
}

/// A kernel in MSL.
#[derive(Clone, Debug)]
pub struct Translation {
    pub name: String,
    pub parameters: Vec<Parameter>,
    /// Names of type parameters, which `using` declarations in front of the text define.
    pub type_parameters: Vec<String>,
    /// Names of const parameters with their types in MSL, which constants in front of the text define.
    pub const_parameters: Vec<(String, String)>,
    /// Whether its threads wait for one another.
    pub collective: bool,
    /// The math mode, which the text states.
    pub math: Math,
    /// Whether it prints.
    logs: bool,
    lines: Vec<Line>,
}

/// How floating-point operations may be changed, as Metal's math modes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Math {
    /// Not at all: as rustc computes them.
    #[default]
    Safe,
    Relaxed,
    Fast,
}

impl Math {
    const ALL: [Self; 3] = [Self::Safe, Self::Relaxed, Self::Fast];

    /// Its name in Metal.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Relaxed => "relaxed",
            Self::Fast => "fast",
        }
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|math| math.name() == name)
    }
}

impl Translation {
    fn head(&self) -> String {
        let logging = if self.logs { "#include <metal_logging>\n" } else { "" };
        let mode = self.math.name();
        // Metal contracts expressions in every mode; rustc in none.
        let contract = if self.math == Math::Safe { "#pragma METAL fp contract(off)\n" } else { "" };
        format!(
            "#include <metal_stdlib>\n{logging}using namespace metal;\n#pragma METAL fp math_mode({mode})\n{contract}\n"
        )
    }

    /// The text, as one reads it: without `#line` directives.
    pub fn text(&self) -> String {
        let mut out = self.head();
        for line in &self.lines {
            push(&mut out, line.depth * 4, &line.text);
        }
        out
    }

    /// The text with `#line` directives, after which compilers name the Rust file; each statement begins in the column of the Rust
    /// statement. `file` is the name for spans that have none.
    pub fn text_with_lines(&self, file: &str) -> String {
        let mut out = self.head();
        let mut next: Option<(String, usize)> = None;
        for line in &self.lines {
            let place = line.span.map(|span| {
                let name = span.file();
                let name = if name.is_empty() || name.starts_with('<') { file.to_owned() } else { name };
                (name, span.start().line, span.start().column)
            });
            let mut indent = line.depth * 4;
            if let Some((name, number, column)) = place {
                if next != Some((name.clone(), number)) {
                    out.push_str(&format!(
                        "#line {number} \"{}\"\n",
                        name.replace('\\', "/").replace('"', "")
                    ));
                }
                indent = column;
                next = Some((name, number + 1));
            } else if let Some((_, number)) = &mut next {
                *number += 1;
            }
            push(&mut out, indent, &line.text);
        }
        out
    }
}

fn push(out: &mut String, indent: usize, text: &str) {
    if !text.is_empty() {
        out.extend(std::iter::repeat_n(' ', indent));
        out.push_str(text);
    }
    out.push('\n');
}

/// Translates a kernel. `items` has what it refers to, beside the items in its body.
///
/// # Errors
/// Everything in it that is not in the subset, with its span.
pub fn translate(kernel: &syn::ItemFn, items: &Items) -> std::result::Result<Translation, Vec<Error>> {
    let outer = items;
    let mut items = items.clone();
    if let Err(error) = items.add_nested(&kernel.block) {
        return Err(vec![error]);
    }
    let mut program = Program::new(&items, kernel.sig.ident.span());
    program.nested =
        items.functions.keys().filter(|name| !outer.functions.contains_key(*name)).cloned().collect();
    match build(kernel, &mut program) {
        Ok(translation) if program.errors.is_empty() => Ok(translation),
        Ok(_) => Err(program.errors),
        Err(mut errors) => {
            let mut all = std::mem::take(&mut program.errors);
            all.append(&mut errors);
            Err(all)
        }
    }
}

/// Translates a helper function alone, to find its errors where it is defined. Functions with parameters are checked where they are used.
///
/// # Errors
/// As [`translate`].
pub fn check(function: &syn::ItemFn, items: &Items) -> std::result::Result<(), Vec<Error>> {
    if !function.sig.generics.params.is_empty() {
        return Ok(());
    }
    let mut items = items.clone();
    let added = items.add(&syn::Item::Fn(function.clone())).and_then(|()| items.add_nested(&function.block));
    if let Err(error) = added {
        return Err(vec![error]);
    }
    let mut program = Program::new(&items, function.sig.ident.span());
    program.checked = Some(function.sig.ident.to_string());
    let instance = crate::program::Instance {
        function: function.sig.ident.to_string(),
        generics: Vec::new(),
        constants: Vec::new(),
        spaces: function.sig.inputs.iter().map(|_| Space::Device).collect(),
    };
    let result = program.instance(&instance, function.sig.ident.span());
    let mut errors = std::mem::take(&mut program.errors);
    errors.extend(result.err());
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn build(kernel: &syn::ItemFn, program: &mut Program<'_>) -> std::result::Result<Translation, Vec<Error>> {
    let one = |error| vec![error];
    check_signature(&kernel.sig).map_err(one)?;
    if let syn::ReturnType::Type(arrow, ty) = &kernel.sig.output
        && !matches!(ty.as_ref(), syn::Type::Tuple(tuple) if tuple.elems.is_empty())
    {
        let _ = arrow;
        return Err(one(Error::new(
            ty.span(),
            "a kernel returns nothing: write results to a `&mut [T]` argument",
        )));
    }
    let mut generics = BTreeMap::new();
    let (mut type_parameters, mut const_parameters) = (Vec::new(), Vec::new());
    let mut constants = Vec::new();
    for parameter in &kernel.sig.generics.params {
        match parameter {
            syn::GenericParam::Type(parameter) => {
                let name = parameter.ident.to_string();
                generics.insert(name.clone(), Ty::Param(name.clone()));
                type_parameters.push(name);
            }
            syn::GenericParam::Const(parameter) => {
                let name = parameter.ident.to_string();
                let scalar = Scalar::named(&parameter.ty.to_token_stream().to_string());
                let Some(scalar) = scalar.filter(|scalar| !scalar.is_float()) else {
                    return Err(one(Error::new(
                        parameter.ty.span(),
                        "a const parameter of a kernel is an integer or a `bool`",
                    )));
                };
                const_parameters.push((name.clone(), scalar.msl().to_owned()));
                constants.push((name, Ty::Scalar(scalar)));
            }
            syn::GenericParam::Lifetime(_) => {}
        }
    }
    let mut lower = Lower::new(program.items, generics);
    for (name, ty) in constants {
        lower.constant(&name, &name, ty);
    }
    let mut errors = Vec::new();
    let mut parameters = Vec::new();
    let mut seen = BTreeSet::new();
    for input in &kernel.sig.inputs {
        match parameter(input, &mut lower) {
            Ok((parameter, ..)) if kernel.sig.ident == parameter.name => {
                let message =
                    "this has the name of the kernel, which is a value that names cannot hide: rename one";
                errors.push(Error::new(input.span(), message));
            }
            Ok((parameter, ty, local)) => {
                if !seen.insert(parameter.name.clone()) && parameter.name != "unused" {
                    errors.push(Error::new(input.span(), "two parameters have this name"));
                }
                parameters.push((parameter, ty, local));
            }
            Err(error) => errors.push(error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    check_helpers(program.items)?;
    let (function, table) = lower.function(&kernel.block, Ty::Unit)?;
    for (parameter, _, local) in &parameters {
        if parameter.role == Role::Value {
            program.constant_parameters.insert(function.locals[*local].name.clone());
        }
    }
    let mut collective = false;
    crate::visit::block(&function.body, &mut |expr| collective |= is_collective(expr));
    let (body, lengths) = Emit::new(program, &function, &table).body().map_err(one)?;
    let mut declarations = Vec::new();
    let mut constants = Vec::new();
    let mut variables = Vec::new();
    let mut copies = Vec::new();
    let mut buffer = 0;
    let (mut dynamic, mut constant) = (0, 0);
    let mut sizes = Vec::new();
    for (parameter, ty, local) in &mut parameters {
        let name = function.locals[*local].name.clone();
        parameter.length = lengths.contains(local);
        match &parameter.role {
            Role::Buffer { mutable, atomic } => {
                let element = match ty.peeled() {
                    Ty::Slice(element) => program.type_name(element).map_err(one)?,
                    _ => String::new(),
                };
                let constness = if *mutable || *atomic { "" } else { "const " };
                declarations.push(format!("device {constness}{element}* {name} [[buffer({buffer})]]"));
                buffer += 1;
                if parameter.length {
                    sizes.push(name);
                }
            }
            Role::ConstantBuffer => {
                let element = match ty.peeled() {
                    Ty::Slice(element) => program.type_name(element).map_err(one)?,
                    _ => String::new(),
                };
                declarations.push(format!("constant {element}* {name} [[buffer({buffer})]]"));
                buffer += 1;
                if parameter.length {
                    sizes.push(name);
                }
            }
            Role::Value => {
                let type_name = program.type_name(ty).map_err(one)?;
                let given = if parameter.mutable { format!("{name}_given") } else { name.clone() };
                declarations.push(format!("constant {type_name}& {given} [[buffer({buffer})]]"));
                buffer += 1;
                if parameter.mutable {
                    copies.push(format!("{type_name} {name} = {given};"));
                }
            }
            Role::Position(attribute) => {
                let type_name = program.type_name(ty).map_err(one)?;
                declarations.push(format!("{type_name} {name} [[{attribute}]]"));
            }
            Role::Threadgroup { dynamic: true, .. } => {
                let element = match ty.peeled() {
                    Ty::Slice(element) => program.type_name(element).map_err(one)?,
                    _ => String::new(),
                };
                declarations.push(format!("threadgroup {element}* {name} [[threadgroup({dynamic})]]"));
                dynamic += 1;
                if parameter.length {
                    sizes.push(name);
                }
            }
            Role::Threadgroup { dynamic: false, .. } => {
                let declarator = program.declarator(ty.peeled(), &name).map_err(one)?;
                variables.push(format!("threadgroup {declarator};"));
            }
            Role::Constant => {
                let type_name = program.type_name(ty).map_err(one)?;
                constants.push(format!("constant {type_name} {name} [[function_constant({constant})]];"));
                constant += 1;
            }
        }
    }
    for name in sizes {
        declarations.push(format!("constant uint& {name}_len [[buffer({buffer})]]"));
        buffer += 1;
    }
    let span = Some(kernel.sig.ident.span());
    let name = kernel.sig.ident.to_string();
    let plain = |depth: usize, text: String| Line { depth, text, span: None };
    let mut lines: Vec<Line> = constants.into_iter().map(|text| plain(0, text)).collect();
    if !lines.is_empty() {
        lines.push(plain(0, String::new()));
    }
    lines.extend(program.preamble());
    for constant in const_parameters.iter().map(|(name, _)| name) {
        if crate::reserved::is_reserved(constant) {
            return Err(one(Error::new(
                kernel.sig.generics.span(),
                format!("`{constant}` has a meaning in MSL: rename it"),
            )));
        }
    }
    if crate::reserved::is_reserved(&name) {
        return Err(one(Error::new(
            kernel.sig.ident.span(),
            format!("`{name}` has a meaning in MSL: rename the kernel"),
        )));
    }
    let indent = " ".repeat(format!("kernel void {name}(").len());
    let head = format!("kernel void {name}({}) {{", declarations.join(&format!(",\n{indent}")));
    for text in head.lines() {
        lines.push(Line { depth: 0, text: text.to_owned(), span });
    }
    lines.extend(variables.into_iter().chain(copies).map(|text| plain(1, text)));
    lines.extend(body.into_iter().map(|line| Line { depth: line.depth + 1, ..line }));
    lines.push(plain(0, "}".into()));
    let collective = collective || uses_collective(kernel, program.items);
    Ok(Translation {
        name,
        parameters: parameters.into_iter().map(|(parameter, ..)| parameter).collect(),
        type_parameters,
        const_parameters,
        collective,
        math: Math::Safe,
        logs: program.logs,
        lines,
    })
}

fn is_collective(expr: &crate::hir::Expr) -> bool {
    matches!(&expr.kind, crate::hir::Kind::Operation { operation: crate::hir::Operation::Function(name), .. }
        if crate::builtins::function(name).is_some_and(|builtin| builtin.collective))
}

/// Whether the kernel or a helper function waits for other threads.
fn uses_collective(kernel: &syn::ItemFn, items: &Items) -> bool {
    names(kernel).iter().any(|name| is_collective_name(name)) || !waiting(items).is_empty()
}

fn is_collective_name(name: &str) -> bool {
    crate::builtins::function(name).is_some_and(|builtin| builtin.collective)
}

/// Last segments of the paths in a function.
fn names(function: &syn::ItemFn) -> BTreeSet<String> {
    struct Find(BTreeSet<String>);
    impl<'a> syn::visit::Visit<'a> for Find {
        fn visit_path(&mut self, path: &'a syn::Path) {
            self.0.extend(path.segments.last().map(|segment| segment.ident.to_string()));
            syn::visit::visit_path(self, path);
        }
    }
    let mut find = Find(BTreeSet::new());
    syn::visit::Visit::visit_item_fn(&mut find, function);
    find.0
}

/// Helper functions that wait for other threads, or call one that does.
fn waiting(items: &Items) -> Vec<&syn::ItemFn> {
    let mut left: Vec<(&syn::ItemFn, BTreeSet<String>)> =
        items.functions.values().map(|function| (function, names(function))).collect();
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    loop {
        let waits = |names: &BTreeSet<String>| {
            names.iter().any(|name| is_collective_name(name) || known.contains(name))
        };
        let (new, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, names)| waits(names));
        if new.is_empty() {
            return found;
        }
        known.extend(new.iter().map(|(function, _)| function.sig.ident.to_string()));
        found.extend(new.into_iter().map(|(function, _)| function));
        left = rest;
    }
}

/// Rejects a barrier in a helper function with a `&mut` parameter: on the host, other threads would write to what the reference excludes others
/// from.
fn check_helpers(items: &Items) -> std::result::Result<(), Vec<Error>> {
    let is_exclusive = |input: &&syn::FnArg| match input {
        syn::FnArg::Typed(typed) => matches!(&*typed.ty, syn::Type::Reference(to) if to.mutability.is_some()),
        syn::FnArg::Receiver(receiver) => receiver.mutability.is_some() && receiver.reference.is_some(),
    };
    let error = |function: &syn::ItemFn| {
        let input = function.sig.inputs.iter().find(is_exclusive)?;
        let message = format!(
            "`{}` waits for other threads, and so cannot have a `&mut` parameter: move the barrier to the kernel, or return a value",
            function.sig.ident
        );
        Some(Error::new(input.span(), message))
    };
    let errors: Vec<Error> = waiting(items).into_iter().filter_map(error).collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Whether the attribute of a parameter is one of kernels.
pub fn is_parameter_attribute(attribute: &syn::Attribute) -> bool {
    attribute.path().get_ident().is_some_and(|name| {
        let name = name.to_string();
        POSITIONS.contains(&name.as_str()) || name == "threadgroup" || name == "function_constant"
    })
}

fn parameter(input: &syn::FnArg, lower: &mut Lower<'_>) -> Result<(Parameter, Ty, usize)> {
    let (name, mutable) = parameter_name(input)?;
    let syn::FnArg::Typed(typed) = input else { return fail(input.span(), "kernels have no `self`") };
    let span = typed.ty.span();
    let element = constant_element(&typed.ty);
    let ty = match element {
        Some(element) => Ty::Ref { mutable: false, inner: Box::new(Ty::Slice(Box::new(lower.ty(element)?))) },
        None => lower.ty(&typed.ty)?,
    };
    let attributes: Vec<&syn::Attribute> =
        typed.attrs.iter().filter(|attribute| !attribute.path().is_ident("allow")).collect();
    let role = match attributes.as_slice() {
        [] if element.is_some() => match plain_role(&ty, span)? {
            Role::Buffer { atomic: true, .. } => {
                return fail(span, "atomics are in device memory: write `&[AtomicU32]`");
            }
            _ => Role::ConstantBuffer,
        },
        [] => plain_role(&ty, span)?,
        [attribute] => {
            let known = attribute.path().get_ident().map(ToString::to_string).unwrap_or_default();
            match known.as_str() {
                "threadgroup" => threadgroup_role(&ty, span)?,
                "function_constant" => match &ty {
                    Ty::Scalar(scalar) if *scalar != Scalar::Usize && *scalar != Scalar::Isize => {
                        Role::Constant
                    }
                    _ => return fail(span, "a function constant is a number of 8 to 64 bits or a `bool`"),
                },
                position if POSITIONS.contains(&position) => position_role(position, &ty, span)?,
                _ => {
                    return fail(
                        attribute.span(),
                        format!(
                            "unknown attribute of a kernel's parameter: use {}, threadgroup or function_constant",
                            POSITIONS.join(", ")
                        ),
                    );
                }
            }
        }
        [_, second, ..] => return fail(second.span(), "a parameter of a kernel has one attribute"),
    };
    let space = match role {
        Role::Buffer { .. } => Space::Device,
        Role::ConstantBuffer => Space::Constant,
        Role::Threadgroup { .. } => Space::Threadgroup,
        _ => Space::Thread,
    };
    let local = lower.parameter(Local { name: name.clone(), ty: ty.clone(), space, stable: !mutable });
    Ok((Parameter { name, role, ty: typed.ty.as_ref().clone(), mutable, length: false }, ty, local))
}

/// The `T` of `Constant<T>`.
pub fn constant_element(ty: &syn::Type) -> Option<&syn::Type> {
    let syn::Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Constant")?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        syn::GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

fn plain_role(ty: &Ty, span: Span) -> Result<Role> {
    match ty {
        Ty::Ref { mutable, inner } => match inner.as_ref() {
            Ty::Slice(element) => {
                let atomic = matches!(**element, Ty::Atomic(_));
                if atomic && *mutable {
                    return fail(span, "atomics are shared: write `&[AtomicU32]`");
                }
                match element.as_ref() {
                    Ty::Atomic(_) | Ty::Vector(..) | Ty::Struct(_) | Ty::Param(_) => {}
                    Ty::Scalar(Scalar::Usize | Scalar::Isize) => {
                        return fail(span, "`usize` has another size on the host: use `u32`");
                    }
                    Ty::Scalar(Scalar::Bool) => return fail(span, "buffers have no `bool`: use `u8`"),
                    Ty::Scalar(_) => {}
                    other => {
                        return fail(
                            span,
                            format!(
                                "a buffer has no elements of type `{other}`: use numbers, vectors or structs"
                            ),
                        );
                    }
                }
                Ok(Role::Buffer { mutable: *mutable, atomic })
            }
            other => fail(
                span,
                format!(
                    "a kernel takes slices (`&[{other}]`, `&mut [{other}]`) and values: `#[threadgroup]` arrays are references too"
                ),
            ),
        },
        Ty::Scalar(Scalar::Usize | Scalar::Isize) => fail(
            span,
            "`usize` has another size on the host: take a `u32`, or add the attribute of a position, as in `#[thread_position_in_grid] i: usize`",
        ),
        Ty::Scalar(_) | Ty::Vector(..) | Ty::Struct(_) | Ty::Param(_) => Ok(Role::Value),
        Ty::Slice(_) => fail(span, "write a reference: `&[T]` or `&mut [T]`"),
        other => fail(
            span,
            format!("a kernel does not take `{other}`: pass a number, a vector, a struct or a slice"),
        ),
    }
}

fn threadgroup_role(ty: &Ty, span: Span) -> Result<Role> {
    let Ty::Ref { mutable, inner } = ty else {
        return fail(span, "threadgroup memory is shared: write `&mut [f32; 256]`");
    };
    let (dynamic, mut element) = match inner.as_ref() {
        Ty::Array(element, _) => (false, element.as_ref()),
        Ty::Slice(element) => (true, element.as_ref()),
        _ => return fail(span, "threadgroup memory is an array or a slice: write `&mut [f32; 256]`"),
    };
    while let Ty::Array(inner, _) = element {
        element = inner;
    }
    let atomic = matches!(element, Ty::Atomic(_));
    if atomic == *mutable {
        let write = if atomic {
            "atomics are shared: write `&[AtomicU32; 256]`"
        } else {
            "threadgroup memory begins without values: write `&mut`"
        };
        return fail(span, write);
    }
    if !matches!(element, Ty::Scalar(_) | Ty::Vector(..) | Ty::Struct(_) | Ty::Atomic(_) | Ty::Param(_)) {
        return fail(span, format!("threadgroup memory has no elements of type `{element}`"));
    }
    Ok(Role::Threadgroup { dynamic, atomic })
}

fn position_role(name: &str, ty: &Ty, span: Span) -> Result<Role> {
    let lane = |ty: &Ty| matches!(ty, Ty::Scalar(Scalar::U32 | Scalar::Usize | Scalar::U16));
    let fits = match ty {
        Ty::Vector(2 | 3, inner) => !SCALARS.contains(&name) && lane(inner),
        other => lane(other),
    };
    if !fits {
        let vectors = if SCALARS.contains(&name) { "" } else { ", or `Vec2` or `Vec3` of one of them" };
        return fail(span, format!("`{name}` is a `usize`, `u32` or `u16`{vectors}"));
    }
    Ok(Role::Position(name.to_owned()))
}
