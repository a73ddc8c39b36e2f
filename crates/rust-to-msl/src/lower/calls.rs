//! Calls of functions: those of the prelude, of the kernel's items, and closures, which are inlined.

use std::collections::BTreeMap;
use std::rc::Rc;

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::{Closure, Lower, Meaning};
use crate::builtins::{self, Shape};
use crate::error::{Result, fail};
use crate::hir::{Block, Expr, Kind, Operation};
use crate::types::{Scalar, Ty};

impl Lower<'_> {
    pub(super) fn call(&mut self, call: &syn::ExprCall) -> Result<Expr> {
        let span = call.span();
        let syn::Expr::Path(path) = call.func.as_ref() else {
            return fail(call.func.span(), "kernels call functions and closures by their names");
        };
        let path = &path.path;
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let name = names.last().cloned().unwrap_or_default();
        if names.len() == 1
            && let Some(Meaning::Closure(closure)) = self.find(&name)
        {
            let closure = closure.clone();
            return self.inline(&closure, &call.args, span);
        }
        if names.len() == 1
            && let Some(Meaning::Local(local)) = self.find(&name)
        {
            let ty = self.locals[*local].ty.clone();
            return self.unknown(span, &ty, "kernels call functions and closures by their names");
        }
        let arguments: Vec<Expr> =
            call.args.iter().map(|argument| self.expr(argument)).collect::<Result<_>>()?;
        if names.len() > 1
            && let Some(result) = self.associated_call(&names[names.len() - 2], &name, path, &arguments)
        {
            return result;
        }
        if let Some(function) = self.items.functions.get(&name) {
            let function = function.clone();
            return self.call_item(&function, path, arguments, span);
        }
        match builtins::function(&name) {
            Some(builtin) => self.builtin(builtin, arguments, span),
            None if ["Some", "Ok", "Err"].contains(&name.as_str()) => fail(
                span,
                "kernels have no `Option` and `Result`: return the value and a `bool`, or a number that means none",
            ),
            None => fail(
                span,
                format!("`{name}` is not known in kernels: mark the function with `#[elinvar::device]`"),
            ),
        }
    }

    /// `Vec4::new(…)`, `f32::from_bits(…)`.
    fn associated_call(
        &mut self,
        of: &str,
        name: &str,
        path: &syn::Path,
        arguments: &[Expr],
    ) -> Option<Result<Expr>> {
        let span = path.span();
        let count = path.segments.len();
        if let Some(lanes) = of.strip_prefix("Vec").and_then(|lanes| lanes.parse::<u8>().ok()) {
            let lane = match &path.segments[count - 2].arguments {
                syn::PathArguments::AngleBracketed(given) => match given.args.first() {
                    Some(syn::GenericArgument::Type(ty)) => match self.ty(ty) {
                        Ok(ty) => ty,
                        Err(error) => return Some(Err(error)),
                    },
                    _ => self.table.any(),
                },
                _ => self.table.any(),
            };
            let expected = if name == "new" { usize::from(lanes) } else { 1 };
            if !["new", "splat"].contains(&name) || arguments.len() != expected {
                return Some(fail(
                    span,
                    format!("a `Vec{lanes}` is made by `Vec{lanes}::new` or `Vec{lanes}::splat`"),
                ));
            }
            for argument in arguments {
                self.same(&argument.ty, &lane, argument.span);
            }
            let ty = Ty::Vector(lanes, Box::new(lane));
            return Some(Ok(Self::expr_of(ty, span, Kind::Vector(arguments.to_vec()))));
        }
        let scalar = Scalar::named(of)?;
        let ty = Ty::Scalar(scalar);
        let text = |text, ty: Ty, operands: &[Expr]| {
            let kind = Kind::Operation {
                operation: Operation::Text(text),
                operands: operands.to_vec(),
                effect: false,
            };
            Some(Ok(Self::expr_of(ty, span, kind)))
        };
        match (scalar, name, arguments) {
            (Scalar::F32, "from_bits", [bits]) => {
                self.same(&bits.ty, &Ty::U32, bits.span);
                text("as_type<float>($0)", Ty::F32, arguments)
            }
            (Scalar::F16, "from_bits", [bits]) => {
                self.same(&bits.ty, &Ty::Scalar(Scalar::U16), bits.span);
                text("as_type<half>($0)", Ty::F16, arguments)
            }
            (Scalar::F16, "from_f32", [value]) => {
                self.same(&value.ty, &Ty::F32, value.span);
                text("half($0)", Ty::F16, arguments)
            }
            // Conversions that lose nothing.
            (_, "from", [value]) => Some(Ok(Self::expr_of(ty, span, Kind::Cast(Box::new(value.clone()))))),
            // `f32::max(a, b)` is `a.max(b)`.
            (_, _, [receiver, rest @ ..]) => {
                self.same(&receiver.ty, &ty, receiver.span);
                Some(self.method(name, receiver.clone(), rest.to_vec(), span))
            }
            _ => Some(fail(span, format!("`{of}::{name}` is not a function that kernels know"))),
        }
    }

    fn builtin(&mut self, builtin: &builtins::Builtin, arguments: Vec<Expr>, span: Span) -> Result<Expr> {
        let expected = match builtin.shape {
            Shape::Same(count) | Shape::Lane(count) => count,
            Shape::Mix => 3,
            Shape::Shuffle => 2,
            Shape::Vote | Shape::Barrier => 1,
        };
        if arguments.len() != expected {
            return fail(span, format!("`{}` takes {expected} arguments", builtin.name));
        }
        let first = arguments[0].ty.clone();
        let ty = match builtin.shape {
            Shape::Same(_) => {
                for argument in &arguments[1..] {
                    self.same(&argument.ty, &first, argument.span);
                }
                first
            }
            Shape::Lane(_) => {
                for argument in &arguments[1..] {
                    self.same(&argument.ty, &first, argument.span);
                }
                match self.table.shallow(&first) {
                    Ty::Vector(_, lane) => *lane,
                    other => return fail(span, format!("`{}` takes vectors, not `{other}`", builtin.name)),
                }
            }
            Shape::Mix => {
                self.same(&arguments[1].ty, &first, arguments[1].span);
                let factor = match (self.table.shallow(&first), self.table.shallow(&arguments[2].ty)) {
                    (Ty::Vector(_, lane), Ty::Scalar(_) | Ty::Var(_)) => *lane,
                    (first, _) => first,
                };
                self.same(&arguments[2].ty, &factor, arguments[2].span);
                first
            }
            Shape::Shuffle => {
                self.same(&arguments[1].ty, &Ty::U32, arguments[1].span);
                first
            }
            Shape::Vote => {
                self.same(&first, &Ty::BOOL, arguments[0].span);
                Ty::BOOL
            }
            Shape::Barrier => {
                self.same(&first, &Ty::Struct("mem_flags".into()), arguments[0].span);
                Ty::Unit
            }
        };
        let kind = Kind::Operation {
            operation: Operation::Function(builtin.msl),
            operands: arguments,
            effect: builtin.collective,
        };
        Ok(Self::expr_of(ty, span, kind))
    }

    /// A call of a helper function, of an instance for its types.
    fn call_item(
        &mut self,
        function: &syn::ItemFn,
        path: &syn::Path,
        arguments: Vec<Expr>,
        span: Span,
    ) -> Result<Expr> {
        let name = function.sig.ident.to_string();
        if arguments.len() != function.sig.inputs.len() {
            return fail(span, format!("`{name}` takes {} arguments", function.sig.inputs.len()));
        }
        let given: Vec<syn::GenericArgument> = match path.segments.last().map(|segment| &segment.arguments) {
            Some(syn::PathArguments::AngleBracketed(given)) => given.args.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let mut generics = Vec::new();
        let mut constants = Vec::new();
        let mut at = 0;
        for parameter in &function.sig.generics.params {
            match parameter {
                syn::GenericParam::Type(parameter) => {
                    let ty = match given.get(at) {
                        Some(syn::GenericArgument::Type(ty)) => self.ty(ty)?,
                        _ => self.table.any(),
                    };
                    self.obligations.push((ty.clone(), span));
                    generics.push((parameter.ident.to_string(), ty));
                    at += 1;
                }
                syn::GenericParam::Const(parameter) => {
                    let value = match given.get(at) {
                        Some(syn::GenericArgument::Const(value)) => self.length(value)?,
                        // `f::<N>(…)` with a const parameter parses as a type.
                        Some(syn::GenericArgument::Type(syn::Type::Path(path))) => {
                            let expr =
                                syn::ExprPath { attrs: Vec::new(), qself: None, path: path.path.clone() };
                            self.length(&syn::Expr::Path(expr))?
                        }
                        _ => {
                            let found = self.length_of_argument(function, &parameter.ident, &arguments);
                            match found {
                                Some(found) => found,
                                None => {
                                    return fail(
                                        span,
                                        format!("write the value of `{}`: `{name}::<…>(…)`", parameter.ident),
                                    );
                                }
                            }
                        }
                    };
                    constants.push((parameter.ident.to_string(), value));
                    at += 1;
                }
                syn::GenericParam::Lifetime(_) => {}
            }
        }
        // The signature's types, in terms of this call's.
        let names: BTreeMap<String, Ty> = generics.iter().cloned().collect();
        let outer = std::mem::replace(&mut self.generics, names);
        self.scopes.push(
            constants
                .iter()
                .map(|(name, value)| (name.clone(), Meaning::Constant(value.clone(), Ty::USIZE)))
                .collect(),
        );
        let types = self.signature(&function.sig);
        self.scopes.pop();
        self.generics = outer;
        let (parameters, result) = types?;
        for (argument, parameter) in arguments.iter().zip(&parameters) {
            self.same(&argument.ty, parameter, argument.span);
        }
        Ok(Self::expr_of(result, span, Kind::Call { function: name, generics, constants, arguments }))
    }

    /// The length of the array argument whose parameter has `name` as its length.
    fn length_of_argument(
        &self,
        function: &syn::ItemFn,
        name: &syn::Ident,
        arguments: &[Expr],
    ) -> Option<String> {
        fn array(ty: &syn::Type) -> Option<&syn::TypeArray> {
            match ty {
                syn::Type::Array(array) => Some(array),
                syn::Type::Reference(reference) => array(&reference.elem),
                _ => None,
            }
        }
        for (input, argument) in function.sig.inputs.iter().zip(arguments) {
            let syn::FnArg::Typed(input) = input else { continue };
            let Some(syn::TypeArray { len: syn::Expr::Path(length), .. }) = array(&input.ty) else {
                continue;
            };
            if length.path.is_ident(name)
                && let Ty::Array(_, length) = self.table.resolve(&argument.ty).peeled()
            {
                return Some(length.clone());
            }
        }
        None
    }

    /// The types of a function's parameters and of its result.
    pub(crate) fn signature(&mut self, signature: &syn::Signature) -> Result<(Vec<Ty>, Ty)> {
        let mut parameters = Vec::new();
        for input in &signature.inputs {
            match input {
                syn::FnArg::Typed(input) => parameters.push(self.ty(&input.ty)?),
                syn::FnArg::Receiver(receiver) => {
                    return fail(
                        receiver.span(),
                        "kernels have no methods: write a function that takes the value",
                    );
                }
            }
        }
        let result = match &signature.output {
            syn::ReturnType::Default => Ty::Unit,
            syn::ReturnType::Type(_, ty) => self.ty(ty)?,
        };
        if matches!(result, Ty::Ref { .. } | Ty::Array(..)) {
            return fail(
                signature.output.span(),
                "functions of kernels return numbers, vectors, tuples and structs: fill a `&mut` parameter",
            );
        }
        Ok((parameters, result))
    }

    /// A call of a closure: a block that binds the parameters, with the names that the closure's definition sees.
    fn inline(
        &mut self,
        closure: &Rc<Closure>,
        arguments: &syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>,
        span: Span,
    ) -> Result<Expr> {
        if self.inlining > 16 {
            return fail(span, "closures of a kernel do not call themselves: use a loop");
        }
        if arguments.len() != closure.syntax.inputs.len() {
            return fail(span, format!("this closure takes {} arguments", closure.syntax.inputs.len()));
        }
        let values: Vec<Expr> =
            arguments.iter().map(|argument| self.expr(argument)).collect::<Result<_>>()?;
        let mut scopes = closure.scopes.clone();
        scopes.push(std::collections::HashMap::new());
        let outer = std::mem::replace(&mut self.scopes, scopes);
        let loops = std::mem::take(&mut self.loops);
        self.inlining += 1;
        let inlined = self.inline_body(closure, values, span);
        self.inlining -= 1;
        self.loops = loops;
        self.scopes = outer;
        let (block, ty) = inlined?;
        Ok(Self::expr_of(ty, span, Kind::Block(block)))
    }

    fn inline_body(&mut self, closure: &Closure, values: Vec<Expr>, span: Span) -> Result<(Block, Ty)> {
        let mut block = Block::default();
        // A value may use names that a parameter of the closure hides, but values are lowered already.
        for (pattern, value) in closure.syntax.inputs.iter().zip(values) {
            self.bind_pattern(pattern, value, span, &mut block.statements)?;
        }
        let body = self.expr(&closure.syntax.body)?;
        if let syn::ReturnType::Type(_, ty) = &closure.syntax.output {
            let ty = self.ty(ty)?;
            self.same(&body.ty, &ty, body.span);
        }
        let ty = body.ty.clone();
        if self.table.shallow(&ty) == Ty::Unit {
            block.statements.push(crate::hir::Statement::Expr(body));
        } else {
            block.tail = Some(Box::new(body));
        }
        Ok((block, ty))
    }
}
