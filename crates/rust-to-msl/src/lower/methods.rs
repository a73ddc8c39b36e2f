//! Methods of numbers, vectors, slices and atomics.

use proc_macro2::Span;
use syn::spanned::Spanned;

use super::Lower;
use crate::error::{Result, fail};
use crate::hir::{Binary, Expr, Kind, Operation, Unary};
use crate::types::{Scalar, Ty};

use Operation::{Function, Support, Text};

/// The type of a method's result.
enum Gives {
    Receiver,
    Is(Ty),
}

impl Lower<'_> {
    pub(super) fn method_call(&mut self, call: &syn::ExprMethodCall) -> Result<Expr> {
        let span = call.span();
        let name = call.method.to_string();
        let receiver = self.expr(&call.receiver)?;
        if let Ty::Atomic(scalar) = self.table.shallow(&receiver.ty).peeled() {
            let scalar = *scalar;
            return self.atomic(&name, receiver, scalar, &call.args, call.method.span());
        }
        let arguments: Vec<Expr> =
            call.args.iter().map(|argument| self.expr(argument)).collect::<Result<_>>()?;
        self.method(&name, receiver, arguments, span)
    }

    /// A method whose receiver and arguments are lowered.
    pub(super) fn method(
        &mut self,
        name: &str,
        receiver: Expr,
        arguments: Vec<Expr>,
        span: Span,
    ) -> Result<Expr> {
        let ty = self.table.shallow(&receiver.ty);
        if let Ty::Ref { inner, .. } = &ty
            && let inner = self.table.shallow(inner)
            && matches!(inner, Ty::Scalar(_) | Ty::Vector(..) | Ty::Param(_))
        {
            let value = Self::expr_of(inner, receiver.span, Kind::Deref(Box::new(receiver)));
            return self.method(name, value, arguments, span);
        }
        match ty.peeled() {
            Ty::Slice(_) | Ty::Array(..) => self.slice_method(name, receiver, span),
            Ty::Vector(lanes, lane) => {
                let (lanes, lane) = (*lanes, self.table.shallow(lane));
                self.vector_method(name, receiver, arguments, (lanes, lane), span)
            }
            Ty::Scalar(scalar) => self.scalar_method(name, *scalar, receiver, arguments, span),
            Ty::Param(_) => match name {
                "min" | "max" => self.operation(
                    Function(if name == "min" { "min" } else { "max" }),
                    receiver,
                    arguments,
                    Gives::Receiver,
                    span,
                ),
                _ => fail(
                    span,
                    format!(
                        "type parameters have no `{name}` in kernels: they have operators, `min` and `max`"
                    ),
                ),
            },
            Ty::Var(_) => self.unknown(
                receiver.span,
                &ty,
                "the type of this is not known here: write it, as in `1.0f32`",
            ),
            other => fail(span, format!("`{other}` has no method `{name}` that kernels know")),
        }
    }

    fn slice_method(&mut self, name: &str, receiver: Expr, span: Span) -> Result<Expr> {
        match (name, &receiver.kind, self.table.shallow(&receiver.ty).peeled()) {
            ("len", Kind::Local(local), Ty::Slice(_)) => {
                Ok(Self::expr_of(Ty::USIZE, span, Kind::Length(*local)))
            }
            ("len", _, Ty::Array(_, length)) => {
                Ok(Self::expr_of(Ty::USIZE, span, Kind::Raw(format!("uint({length})"))))
            }
            ("is_empty", Kind::Local(local), Ty::Slice(_)) => {
                let length = Self::expr_of(Ty::USIZE, span, Kind::Length(*local));
                let zero = Self::expr_of(Ty::USIZE, span, Kind::Integer("0".into()));
                let kind = Kind::Binary(Binary::Equal, Box::new(length), Box::new(zero));
                Ok(Self::expr_of(Ty::BOOL, span, kind))
            }
            ("iter" | "iter_mut" | "into_iter" | "chunks" | "windows", ..) => {
                fail(span, format!("kernels have no iterators (`{name}`): use `for i in 0..x.len()`"))
            }
            ("get" | "get_mut" | "first" | "last", ..) => fail(
                span,
                format!("kernels have no `Option`, and so no `{name}`: compare the index with `len()`"),
            ),
            ("push" | "pop" | "to_vec", ..) => {
                fail(span, format!("kernels do not allocate (`{name}`): use an array and an index"))
            }
            _ => fail(
                span,
                format!(
                    "slices and arrays have no method `{name}` in kernels: they have `len` and `is_empty`"
                ),
            ),
        }
    }

    fn operation(
        &mut self,
        operation: Operation,
        receiver: Expr,
        arguments: Vec<Expr>,
        gives: Gives,
        span: Span,
    ) -> Result<Expr> {
        let ty = match gives {
            Gives::Receiver => receiver.ty.clone(),
            Gives::Is(ty) => ty,
        };
        let operands = std::iter::once(receiver).chain(arguments).collect();
        Ok(Self::expr_of(ty, span, Kind::Operation { operation, operands, effect: false }))
    }

    fn vector_method(
        &mut self,
        name: &str,
        receiver: Expr,
        arguments: Vec<Expr>,
        (lanes, lane): (u8, Ty),
        span: Span,
    ) -> Result<Expr> {
        let vector = receiver.ty.clone();
        let known = &"xyzw"[..usize::from(lanes)];
        if arguments.is_empty() && (2..=4).contains(&name.len()) && name.chars().all(|c| known.contains(c)) {
            let ty = Ty::Vector(u8::try_from(name.len()).unwrap_or(4), Box::new(lane));
            return Ok(Self::expr_of(ty, span, Kind::Field(Box::new(receiver), name.to_owned())));
        }
        for argument in &arguments {
            self.same(&argument.ty, &vector, argument.span);
        }
        let is_float = lane.scalar().is_some_and(Scalar::is_float);
        let (operation, gives) = match (name, arguments.len()) {
            ("min", 1) => (Function(if is_float { "fmin" } else { "min" }), Gives::Receiver),
            ("max", 1) => (Function(if is_float { "fmax" } else { "max" }), Gives::Receiver),
            ("abs", 0) if is_float => (Function("fabs"), Gives::Receiver),
            ("floor", 0) if is_float => (Function("floor"), Gives::Receiver),
            ("ceil", 0) if is_float => (Function("ceil"), Gives::Receiver),
            ("sqrt", 0) if is_float => (Function("sqrt"), Gives::Receiver),
            ("mul_add", 2) if is_float => (Function("fma"), Gives::Receiver),
            ("dot", 1) if is_float => (Function("dot"), Gives::Is(lane)),
            ("length", 0) if is_float => (Function("length"), Gives::Is(lane)),
            ("normalize", 0) if is_float => (Function("normalize"), Gives::Receiver),
            _ => return fail(span, format!("a `Vec{lanes}` has no method `{name}` that kernels know")),
        };
        self.operation(operation, receiver, arguments, gives, span)
    }

    fn scalar_method(
        &mut self,
        name: &str,
        scalar: Scalar,
        receiver: Expr,
        arguments: Vec<Expr>,
        span: Span,
    ) -> Result<Expr> {
        let found = match scalar {
            Scalar::F32 | Scalar::F16 => self.float_method(name, scalar, &arguments),
            Scalar::Bool => None,
            _ => {
                if let Some(result) = self.integer_operator(name, &receiver, &arguments, span) {
                    return result;
                }
                self.integer_method(name, scalar, &arguments)
            }
        };
        match found {
            Some((operation, gives)) => self.operation(operation, receiver, arguments, gives, span),
            None => match name {
                "checked_add" | "checked_sub" | "checked_mul" | "checked_div" | "checked_rem"
                | "overflowing_add" => fail(
                    span,
                    format!(
                        "kernels have no `Option`, and so no `{name}`: use `wrapping_…` or `saturating_…`, or compare before"
                    ),
                ),
                "clone" => Ok(receiver),
                "into" | "try_into" => fail(span, format!("kernels have no `{name}`: use `as`")),
                "then" | "then_some" => {
                    fail(span, format!("kernels have no `Option`, and so no `{name}`: use `if`"))
                }
                _ => fail(span, format!("`{}` has no method `{name}` that kernels know", scalar.rust())),
            },
        }
    }

    fn float_method(&mut self, name: &str, scalar: Scalar, arguments: &[Expr]) -> Option<(Operation, Gives)> {
        let ty = Ty::Scalar(scalar);
        for argument in arguments {
            let expected = if name == "powi" { Ty::Scalar(Scalar::I32) } else { ty.clone() };
            self.same(&argument.ty, &expected, argument.span);
        }
        let found = match (name, arguments.len()) {
            ("abs", 0) => Function("fabs"),
            ("sqrt", 0) => Function("sqrt"),
            ("sin", 0) => Function("sin"),
            ("cos", 0) => Function("cos"),
            ("tan", 0) => Function("tan"),
            ("asin", 0) => Function("asin"),
            ("acos", 0) => Function("acos"),
            ("atan", 0) => Function("atan"),
            ("sinh", 0) => Function("sinh"),
            ("cosh", 0) => Function("cosh"),
            ("tanh", 0) => Function("tanh"),
            ("exp", 0) => Function("exp"),
            ("exp2", 0) => Function("exp2"),
            ("ln", 0) => Function("log"),
            ("log2", 0) => Function("log2"),
            ("log10", 0) => Function("log10"),
            ("floor", 0) => Function("floor"),
            ("ceil", 0) => Function("ceil"),
            ("trunc", 0) => Function("trunc"),
            ("round", 0) => Function("round"),
            ("round_ties_even", 0) => Function("rint"),
            ("fract", 0) => Support("fraction"),
            ("signum", 0) => Support("signum"),
            ("recip", 0) => Text("$T(1) / $0"),
            ("to_radians", 0) => Text("$0 * 0.017453292f"),
            ("to_degrees", 0) => Text("$0 * 57.29578f"),
            ("powf", 1) => Function("pow"),
            ("powi", 1) => Support("power_of"),
            ("atan2", 1) => Function("atan2"),
            ("copysign", 1) => Function("copysign"),
            ("min", 1) => Function("fmin"),
            ("max", 1) => Function("fmax"),
            ("hypot", 1) => Support("hypotenuse"),
            ("clamp", 2) => Support("clamped"),
            ("mul_add", 2) => Function("fma"),
            ("to_bits", 0) if scalar == Scalar::F32 => {
                return Some((Text("as_type<uint>($0)"), Gives::Is(Ty::U32)));
            }
            ("to_bits", 0) => return Some((Text("as_type<ushort>($0)"), Gives::Is(Ty::Scalar(Scalar::U16)))),
            ("to_f32", 0) if scalar == Scalar::F16 => return Some((Text("float($0)"), Gives::Is(Ty::F32))),
            ("is_nan", 0) => return Some((Function("isnan"), Gives::Is(Ty::BOOL))),
            ("is_infinite", 0) => return Some((Function("isinf"), Gives::Is(Ty::BOOL))),
            ("is_finite", 0) => return Some((Function("isfinite"), Gives::Is(Ty::BOOL))),
            ("is_sign_negative", 0) => return Some((Function("signbit"), Gives::Is(Ty::BOOL))),
            _ => return None,
        };
        Some((found, Gives::Receiver))
    }

    /// Methods that are operators.
    fn integer_operator(
        &mut self,
        name: &str,
        receiver: &Expr,
        arguments: &[Expr],
        span: Span,
    ) -> Option<Result<Expr>> {
        let binary = match name {
            "wrapping_add" => Binary::Add,
            "wrapping_sub" => Binary::Sub,
            "wrapping_mul" => Binary::Mul,
            "wrapping_div" => Binary::Div,
            "wrapping_rem" => Binary::Rem,
            "wrapping_shl" => Binary::Shl,
            "wrapping_shr" => Binary::Shr,
            "wrapping_neg" => {
                let kind = Kind::Unary(Unary::Neg, Box::new(receiver.clone()));
                return Some(Ok(Self::expr_of(receiver.ty.clone(), span, kind)));
            }
            _ => return None,
        };
        let [argument] = arguments else { return Some(fail(span, format!("`{name}` takes one argument"))) };
        if matches!(binary, Binary::Shl | Binary::Shr) {
            self.same(&argument.ty, &Ty::U32, argument.span);
        } else {
            self.same(&argument.ty, &receiver.ty, argument.span);
        }
        let kind = Kind::Binary(binary, Box::new(receiver.clone()), Box::new(argument.clone()));
        Some(Ok(Self::expr_of(receiver.ty.clone(), span, kind)))
    }

    fn integer_method(
        &mut self,
        name: &str,
        scalar: Scalar,
        arguments: &[Expr],
    ) -> Option<(Operation, Gives)> {
        let ty = Ty::Scalar(scalar);
        let is_u32 = matches!(name, "pow" | "wrapping_pow" | "rotate_left" | "rotate_right");
        for argument in arguments {
            self.same(&argument.ty, if is_u32 { &Ty::U32 } else { &ty }, argument.span);
        }
        let signed = scalar.is_signed();
        let found = match (name, arguments.len()) {
            ("min", 1) => Function("min"),
            ("max", 1) => Function("max"),
            ("clamp", 2) => Function("clamp"),
            ("saturating_add", 1) => Function("addsat"),
            ("saturating_sub", 1) => Function("subsat"),
            ("abs" | "wrapping_abs", 0) if signed => Support("absolute"),
            ("signum", 0) if signed => Support("signum"),
            ("unsigned_abs", 0) if signed => {
                return Some((Support("unsigned_absolute"), Gives::Is(Ty::Scalar(scalar.unsigned()))));
            }
            ("abs_diff", 1) => {
                let ty = if scalar == Scalar::Isize {
                    Scalar::Usize
                } else if signed {
                    scalar.unsigned()
                } else {
                    scalar
                };
                return Some((Support("difference"), Gives::Is(Ty::Scalar(ty))));
            }
            ("rem_euclid", 1) => Support("rem_euclid"),
            ("div_euclid", 1) => Support("div_euclid"),
            ("div_ceil", 1) if !signed => Support("div_ceil"),
            ("pow" | "wrapping_pow", 1) => Support("power"),
            ("rotate_left", 1) => Support("rotate_left"),
            ("rotate_right", 1) => Support("rotate_right"),
            ("reverse_bits", 0) => Function("reverse_bits"),
            ("count_ones", 0) => return Some((Text("uint(popcount($0))"), Gives::Is(Ty::U32))),
            ("count_zeros", 0) => return Some((Support("count_zeros"), Gives::Is(Ty::U32))),
            ("leading_zeros", 0) => return Some((Text("uint(clz($0))"), Gives::Is(Ty::U32))),
            ("trailing_zeros", 0) => return Some((Text("uint(ctz($0))"), Gives::Is(Ty::U32))),
            ("is_power_of_two", 0) if !signed => {
                return Some((Text("(popcount($0) == 1)"), Gives::Is(Ty::BOOL)));
            }
            ("is_negative", 0) if signed => return Some((Text("($0 < 0)"), Gives::Is(Ty::BOOL))),
            ("is_positive", 0) if signed => return Some((Text("($0 > 0)"), Gives::Is(Ty::BOOL))),
            _ => return None,
        };
        Some((found, Gives::Receiver))
    }

    /// Methods of `AtomicU32` and `AtomicI32`.
    fn atomic(
        &mut self,
        name: &str,
        receiver: Expr,
        scalar: Scalar,
        arguments: &syn::punctuated::Punctuated<syn::Expr, syn::Token![,]>,
        span: Span,
    ) -> Result<Expr> {
        let ty = Ty::Scalar(scalar);
        let (text, values, result) = match name {
            "load" => ("atomic_load_explicit(&$0, memory_order_relaxed)", 0, ty.clone()),
            "store" => ("atomic_store_explicit(&$0, $1, memory_order_relaxed)", 1, Ty::Unit),
            "swap" => ("atomic_exchange_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_add" => ("atomic_fetch_add_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_sub" => ("atomic_fetch_sub_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_max" => ("atomic_fetch_max_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_min" => ("atomic_fetch_min_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_and" => ("atomic_fetch_and_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_or" => ("atomic_fetch_or_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "fetch_xor" => ("atomic_fetch_xor_explicit(&$0, $1, memory_order_relaxed)", 1, ty.clone()),
            "compare_exchange" | "compare_exchange_weak" | "fetch_update" => {
                return fail(
                    span,
                    format!("kernels have no `Result`, and so no `{name}`: use `swap` or a `fetch_…`"),
                );
            }
            _ => {
                return fail(
                    span,
                    format!("`{}` has no method `{name}` that kernels know", Ty::Atomic(scalar)),
                );
            }
        };
        if arguments.len() != values + 1 {
            return fail(span, format!("`{name}` takes {} arguments", values + 1));
        }
        for order in arguments.iter().skip(values) {
            let relaxed = match order {
                syn::Expr::Path(path) => {
                    path.path.segments.last().is_some_and(|last| last.ident == "Relaxed")
                }
                _ => false,
            };
            if !relaxed {
                return fail(
                    order.span(),
                    "Metal's atomics have one order: write `Ordering::Relaxed`, and barriers for others",
                );
            }
        }
        let mut operands = vec![receiver];
        for value in arguments.iter().take(values) {
            let value = self.expr(value)?;
            self.same(&value.ty, &ty, value.span);
            operands.push(value);
        }
        let kind = Kind::Operation { operation: Text(text), operands, effect: true };
        Ok(Self::expr_of(result, span, kind))
    }
}
