//! [`Program`]: what stands in front of a kernel: types, constants, support functions and instances of helper functions.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::Span;
use syn::spanned::Spanned;

use crate::emit::{Emit, Line};
use crate::error::{Error, Result, fail};
use crate::hir::Local;
use crate::items::Items;
use crate::lower::Lower;
use crate::support;
use crate::types::{Scalar, Space, Ty};

/// A helper function with types, constants and the address spaces of its references.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instance {
    pub(crate) function: String,
    pub(crate) generics: Vec<(String, Ty)>,
    pub(crate) constants: Vec<(String, String)>,
    pub(crate) spaces: Vec<Space>,
}

/// An instance that is written.
#[derive(Clone, Debug)]
pub(crate) struct Callee {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Ty>,
    /// Slices whose length it takes.
    pub(crate) lengths: BTreeSet<usize>,
}

/// The program around a kernel.
pub(crate) struct Program<'a> {
    pub(crate) items: &'a Items,
    /// Where the kernel is.
    pub(crate) span: Span,
    support: BTreeSet<(String, Scalar, u8)>,
    saturating: BTreeMap<String, String>,
    generic: BTreeSet<String>,
    types: Vec<Line>,
    declared: BTreeSet<String>,
    constants: Vec<Line>,
    functions: Vec<Line>,
    instances: BTreeMap<Instance, Callee>,
    names: BTreeSet<String>,
    calling: Vec<String>,
    /// Parameters of the kernel that are in constant memory.
    pub(crate) constant_parameters: BTreeSet<String>,
    pub(crate) errors: Vec<Error>,
    /// The function that is checked alone.
    pub(crate) checked: Option<String>,
    /// Whether something prints.
    pub(crate) logs: bool,
    /// Functions in the kernel's body.
    pub(crate) nested: BTreeSet<String>,
}

impl<'a> Program<'a> {
    pub(crate) fn new(items: &'a Items, span: Span) -> Self {
        Self {
            items,
            span,
            support: BTreeSet::new(),
            saturating: BTreeMap::new(),
            generic: BTreeSet::new(),
            types: Vec::new(),
            declared: BTreeSet::new(),
            constants: Vec::new(),
            functions: Vec::new(),
            instances: BTreeMap::new(),
            names: BTreeSet::new(),
            calling: Vec::new(),
            constant_parameters: BTreeSet::new(),
            errors: Vec::new(),
            checked: None,
            logs: false,
            nested: BTreeSet::new(),
        }
    }

    /// Whether something in front of the kernel has this name.
    pub(crate) fn taken(&self, name: &str) -> bool {
        self.names.contains(name)
            || self.declared.contains(name)
            || self.items.functions.contains_key(name)
            || self.items.constants.contains_key(name)
    }

    /// Whether a parameter of the kernel is in constant memory.
    pub(crate) fn in_constant(&self, name: &str) -> bool {
        self.calling.is_empty() && self.constant_parameters.contains(name)
    }

    pub(crate) fn support(&mut self, name: &str, scalar: Scalar, lanes: u8) {
        // `usize` is `uint`, and so has its functions.
        let scalar = match scalar {
            Scalar::Usize => Scalar::U32,
            Scalar::Isize => Scalar::I32,
            other => other,
        };
        self.support.insert((name.to_owned(), scalar, lanes));
    }

    pub(crate) fn saturating(&mut self, to: Scalar) -> String {
        let (name, text) = support::saturate_to(to);
        self.saturating.insert(name.clone(), text);
        name
    }

    pub(crate) fn generic_operator(&mut self, name: &str) {
        self.generic.insert(name.to_owned());
        for (support, scalar) in support::generic(name) {
            self.support.insert((support.to_owned(), scalar, 1));
        }
    }

    /// Declares the struct once, with an assertion of its size.
    pub(crate) fn use_struct(&mut self, name: &str) -> Result<()> {
        if !self.declared.insert(name.to_owned()) {
            return Ok(());
        }
        if crate::reserved::is_reserved(name) {
            return fail(self.span, format!("`{name}` has a meaning in MSL: rename the struct"));
        }
        let mut lines = Vec::new();
        for (field, ty, span) in self.items.fields(name, self.span)? {
            let mut lower = Lower::new(self.items, BTreeMap::new());
            let ty = lower.ty(&ty)?;
            let field = crate::lower::field_name(&field);
            let text = match &ty {
                Ty::Scalar(_) | Ty::Vector(..) | Ty::Struct(_) | Ty::Array(..) => {
                    format!("{} {field};", self.type_name(&ty)?)
                }
                other => {
                    return fail(
                        span,
                        format!(
                            "`{other}` is not a field of a kernel's struct: use numbers, vectors, arrays and structs"
                        ),
                    );
                }
            };
            lines.push(Line { depth: 1, text, span: Some(span) });
        }
        let span = self.items.structs.get(name).map(|item| item.ident.span());
        self.types.push(Line { depth: 0, text: format!("struct {name} {{"), span });
        self.types.extend(lines);
        self.types.push(Line { depth: 0, text: "};".into(), span });
        Ok(())
    }

    /// A variable of a type, with an array's length behind its name: `float tile[16][16]`.
    pub(crate) fn declarator(&mut self, ty: &Ty, name: &str) -> Result<String> {
        let mut element = ty;
        let mut lengths = String::new();
        while let Ty::Array(inner, length) = element {
            lengths.push_str(&format!("[{length}]"));
            element = inner;
        }
        Ok(format!("{} {name}{lengths}", self.type_name(element)?))
    }

    /// Declares the enum once.
    pub(crate) fn use_enum(&mut self, name: &str) -> Result<()> {
        if !self.declared.insert(name.to_owned()) {
            return Ok(());
        }
        let mut variants = Vec::new();
        for (variant, value) in self.items.variants(name, self.span)? {
            let value = match value {
                Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Int(value), .. })) => {
                    format!(" = {}", value.base10_digits())
                }
                Some(other) => return fail(other.span(), "the value of a variant is a number in kernels"),
                None => String::new(),
            };
            variants.push(format!("{variant}{value}"));
        }
        let span = self.items.enums.get(name).map(|item| item.ident.span());
        let text = format!("enum class {name} : uint {{ {} }};", variants.join(", "));
        self.types.push(Line { depth: 0, text, span });
        Ok(())
    }

    /// The struct of a tuple.
    pub(crate) fn tuple(&mut self, fields: &[Ty]) -> Result<String> {
        let mut names = Vec::new();
        for field in fields {
            names.push(self.type_name(field)?);
        }
        let plain: String =
            names.join("_").chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
        let name = format!("Tuple_{plain}");
        if self.declared.insert(name.clone()) {
            let fields: Vec<_> = names.iter().enumerate().map(|(at, ty)| format!("{ty} _{at};")).collect();
            let text = format!("struct {name} {{ {} }};", fields.join(" "));
            self.types.push(Line { depth: 0, text, span: None });
        }
        Ok(name)
    }

    /// Declares a constant once, if the name is one.
    pub(crate) fn use_constant(&mut self, name: &str) -> Result<()> {
        let Some(constant) = self.items.constants.get(name) else { return Ok(()) };
        if !self.declared.insert(name.to_owned()) {
            return Ok(());
        }
        if crate::reserved::is_reserved(name) {
            return fail(
                constant.ident.span(),
                format!("`{name}` has a meaning in MSL: rename the constant"),
            );
        }
        let mut lower = Lower::new(self.items, BTreeMap::new());
        let ty = lower.ty(&constant.ty)?;
        let (function, table) = match lower.constant_value(&constant.expr, &ty) {
            Ok(found) => found,
            Err(mut errors) => return Err(errors.remove(0)),
        };
        let Some(tail) = function.body.tail.clone().filter(|_| function.body.statements.is_empty()) else {
            return fail(
                constant.expr.span(),
                "a constant of a kernel is an expression of numbers and constants",
            );
        };
        let (code, lines) = Emit::new(self, &function, &table).value(&tail)?;
        if !lines.is_empty() {
            return fail(
                constant.expr.span(),
                "a constant of a kernel is an expression of numbers and constants",
            );
        }
        let declarator = self.declarator(&ty, name)?;
        let code = if let Ty::Array(..) = ty { braces(&code) } else { code };
        let qualifier = if let Ty::Array(..) = ty { "constant" } else { "constant constexpr" };
        self.constants.push(Line {
            depth: 0,
            text: format!("{qualifier} {declarator} = {code};"),
            span: Some(constant.ident.span()),
        });
        Ok(())
    }

    /// The instance, written in front of what calls it.
    pub(crate) fn instance(&mut self, instance: &Instance, span: Span) -> Result<Callee> {
        if let Some(callee) = self.instances.get(instance) {
            return Ok(callee.clone());
        }
        if self.calling.contains(&instance.function) {
            return fail(
                span,
                format!(
                    "`{}` calls itself, which devices cannot: use a loop, with an array as the stack",
                    instance.function
                ),
            );
        }
        let Some(function) = self.items.functions.get(&instance.function) else {
            return fail(span, format!("`{}` is not known in kernels", instance.function));
        };
        // Errors of another item are reported where it is defined; here they are one at the call.
        let known = self.errors.len();
        self.calling.push(instance.function.clone());
        let callee = self.write_instance(instance, function);
        self.calling.pop();
        let callee = match callee {
            Err(error) if self.is_alone(&instance.function) => {
                self.errors.truncate(known);
                let message = format!("`{}` is not translated: {}", instance.function, error.message);
                return fail(span, message);
            }
            other => other?,
        };
        self.instances.insert(instance.clone(), callee.clone());
        Ok(callee)
    }

    /// Whether the function is checked where it is defined, and that is not what happens now.
    fn is_alone(&self, function: &str) -> bool {
        self.checked.as_deref() != Some(function)
            && !self.nested.contains(function)
            && self
                .items
                .functions
                .get(function)
                .is_some_and(|function| function.sig.generics.params.is_empty())
    }

    fn write_instance(&mut self, instance: &Instance, function: &syn::ItemFn) -> Result<Callee> {
        check_signature(&function.sig)?;
        let mut name = instance.function.clone();
        let mut count = 1;
        if crate::reserved::is_reserved(&name) {
            name.push('_');
        }
        while self.names.contains(&name) {
            count += 1;
            name = format!("{}_{count}", instance.function);
        }
        self.names.insert(name.clone());
        let generics: BTreeMap<String, Ty> = instance.generics.iter().cloned().collect();
        let mut lower = Lower::new(self.items, generics);
        for (name, value) in &instance.constants {
            lower.constant(name, value, Ty::USIZE);
        }
        let (types, result) = lower.signature(&function.sig)?;
        let mut locals = Vec::new();
        for ((input, ty), space) in function.sig.inputs.iter().zip(&types).zip(&instance.spaces) {
            let (rust, mutable) = parameter_name(input)?;
            locals.push(lower.parameter(Local {
                name: rust,
                ty: ty.clone(),
                space: *space,
                stable: !mutable,
            }));
        }
        let (function_, table) = match lower.function(&function.block, result.clone()) {
            Ok(lowered) => lowered,
            Err(errors) => return Err(self.all_but_last(errors)),
        };
        let (lines, lengths) = Emit::new(self, &function_, &table).body()?;
        let mut parameters = Vec::new();
        let mut taken = BTreeSet::new();
        for (index, (local, ty)) in locals.iter().zip(&types).enumerate() {
            let name = function_.locals[*local].name.clone();
            let space = instance.spaces[index].msl();
            match ty {
                Ty::Ref { mutable, inner } => {
                    let constness = if *mutable
                        || matches!(inner.peeled(), Ty::Slice(element) if matches!(**element, Ty::Atomic(_)))
                        || matches!(**inner, Ty::Atomic(_))
                    {
                        ""
                    } else {
                        "const "
                    };
                    match inner.as_ref() {
                        Ty::Slice(element) => {
                            let element = self.type_name(element)?;
                            parameters.push(format!("{space} {constness}{element}* {name}"));
                            if lengths.contains(local) {
                                parameters.push(format!("uint {name}_len"));
                                taken.insert(index);
                            }
                        }
                        // Private arrays are objects; those of a threadgroup are arrays.
                        Ty::Array(..) if instance.spaces[index] != Space::Thread => {
                            let declarator = self.declarator(inner, &format!("(&{name})"))?;
                            parameters.push(format!("{space} {constness}{declarator}"));
                        }
                        other => {
                            let other = self.type_name(other)?;
                            parameters.push(format!("{space} {constness}{other}& {name}"));
                        }
                    }
                }
                other => {
                    let other = self.type_name(other)?;
                    parameters.push(format!("{other} {name}"));
                }
            }
        }
        let result = self.type_name(&result)?;
        let span = Some(function.sig.ident.span());
        let head = format!("inline {result} {name}({}) {{", parameters.join(", "));
        self.functions.push(Line { depth: 0, text: head, span });
        self.functions.extend(lines.into_iter().map(|line| Line { depth: line.depth + 1, ..line }));
        self.functions.push(Line { depth: 0, text: "}".into(), span: None });
        self.functions.push(Line { depth: 0, text: String::new(), span: None });
        Ok(Callee { name, parameters: types, lengths: taken })
    }

    /// Keeps all errors but the last, which is returned.
    fn all_but_last(&mut self, mut errors: Vec<Error>) -> Error {
        let last = errors.pop();
        self.errors.extend(errors);
        last.unwrap_or_else(|| Error::new(self.span, "this is not translated to MSL"))
    }

    /// Everything in front of the kernel.
    pub(crate) fn preamble(&self) -> Vec<Line> {
        let line = |text: String| Line { depth: 0, text, span: None };
        let mut lines = Vec::new();
        let section = |lines: &mut Vec<Line>, more: Vec<Line>| {
            if !more.is_empty() {
                lines.extend(more);
                lines.push(Line { depth: 0, text: String::new(), span: None });
            }
        };
        section(&mut lines, self.constants.clone());
        section(&mut lines, self.types.clone());
        let mut support: Vec<Line> = self
            .support
            .iter()
            .flat_map(|(name, scalar, lanes)| {
                let text = support::definition(name, *scalar, *lanes);
                text.lines().map(|text| line(text.to_owned())).collect::<Vec<_>>()
            })
            .collect();
        support.extend(self.saturating.values().cloned().map(line));
        for name in &self.generic {
            let symbol = match name.as_str() {
                "add" => "+",
                "sub" => "-",
                "mul" => "*",
                "div" => "/",
                _ => "%",
            };
            for ty in ["float", "half"] {
                let body = if symbol == "%" { "fmod(a, b)".to_owned() } else { format!("a {symbol} b") };
                support.push(line(format!("inline {ty} {name}({ty} a, {ty} b) {{ return {body}; }}")));
            }
            for (integer, scalar) in support::generic(name) {
                let ty = scalar.msl();
                support
                    .push(line(format!("inline {ty} {name}({ty} a, {ty} b) {{ return {integer}(a, b); }}")));
            }
        }
        section(&mut lines, support);
        lines.extend(self.functions.clone());
        lines
    }
}

fn braces(code: &str) -> String {
    match code.find('{') {
        Some(at) => code[at..].to_owned(),
        None => code.to_owned(),
    }
}

/// The name of a parameter, and whether it is `mut`.
pub(crate) fn parameter_name(input: &syn::FnArg) -> Result<(String, bool)> {
    match input {
        syn::FnArg::Typed(typed) => match typed.pat.as_ref() {
            syn::Pat::Ident(ident) => Ok((ident.ident.to_string(), ident.mutability.is_some())),
            syn::Pat::Wild(_) => Ok(("unused".into(), false)),
            other => fail(other.span(), "a parameter of a kernel's function is a name"),
        },
        syn::FnArg::Receiver(receiver) => {
            fail(receiver.span(), "kernels have no methods: write a function that takes the value")
        }
    }
}

/// Refuses what no function of a kernel is.
pub(crate) fn check_signature(signature: &syn::Signature) -> Result<()> {
    if let Some(unsafety) = &signature.unsafety {
        return fail(unsafety.span(), "kernels are safe code: remove `unsafe`");
    }
    if let Some(asyncness) = &signature.asyncness {
        return fail(asyncness.span(), "kernels are not `async`: a thread waits at a barrier");
    }
    if let Some(abi) = &signature.abi {
        return fail(abi.span(), "functions of kernels have Rust's calling convention");
    }
    if let Some(variadic) = &signature.variadic {
        return fail(variadic.span(), "kernels have no variable arguments: use a slice");
    }
    Ok(())
}
